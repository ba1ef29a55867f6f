"""Checks the direction of imports, the size of rooms and of functions; writes the table of rooms in ARCHITECTURE.md.

    dev/rooms.toml -> rooms in order -> every import and cimport of cext/ and mosq/ -> problems, one line each
                                     -> the table between two markers of ARCHITECTURE.md

A room is a folder (sub-folders are rooms of their own) or a list of modules. A room imports from rooms before it in the
declaration only. Imports inside functions count; texts that name a module, such as those of lazy commands, count too.
Imports below `if TYPE_CHECKING:` do not exist at run time and do not count. Needs the standard library only, and
imports nothing that it checks.
"""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOTS = ("cext", "mosq")
OUTSIDE = ("perf", "tests", "dev")      # folders of this repository that are no part of the product
BEGIN = "<!-- rooms: dev/architecture writes this table from dev/rooms.toml -->"
END = "<!-- rooms: end -->"
FUNCTION_FOLDERS = ("cext", "mosq", "perf")
FUNCTION_LINES_MAX, PARAMETERS_MAX = 60, 7
ROOM_MODULES_MAX, ROOM_LINES_MAX = 16, 4000
TEXT = re.compile(r'("""|\'\'\')(?:\\.|.)*?\1|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|#[^\n]*', re.DOTALL)
# at the begin of a line, and after `;`, `if x:` or `def f():`
IMPORT = re.compile(r"(?:^|[;:])[ \t]*(?:from\s+(?P<base>[\w.]+)\s+c?import\s+(?P<names>\([^)]*\)|[^\n;]*)|"
                    r"c?import\s+(?P<whole>[^\n;]*))", re.MULTILINE)
# compiled units, and a module of each (dev/unit.py has them all)
UNITS = {"mosq._core": "cext.engine", "mosq._tls": "cext.setup.tls", "mosq._bench": "cext.bench.generator",
         "mosq._redis": "cext.redis.redis_api"}
UNIT = re.compile(r"mosq\._(?:core|tls|bench|redis)\b")
NAME = re.compile(r"((?:mosq|cext)(?:\.\w+)+)(?::\w+)?")
INCLUDE = re.compile(r'^\s*include\s+["\']([^"\']+)', re.MULTILINE)
FUNCTION = re.compile(r"^(?P<indent>[ \t]*)(?:(?:async\s+)?def|cp?def)\s+(?:[^\n(=:]*[\s*&])?(?P<name>\w+)\s*\(",
                      re.MULTILINE)


@dataclass
class Room:
    """One room of the declaration."""

    name: str                   # its folder, such as "cext/base"
    knows: str
    does_not_know: str
    only: tuple[str, ...]       # modules of the folder that belong to the room; (): all of them
    size: str                   # why the room may be larger than the limits; "": it may not
    compiled: str               # why a Python room may import cext; "": it may not
    cycles: dict[str, str]      # "a b c": why these modules may import each other
    upward: dict[str, str]      # "module -> module": why this import may go to a later room
    place: int = 0
    modules: list["Module"] = field(default_factory=list)

    @property
    def title(self) -> str:
        return f"{self.name}: {', '.join(one.rpartition('.')[2] for one in self.only)}" if self.only else self.name


@dataclass
class Module:
    """One Python file, or the .pyx and .pxd of one Cython module."""

    name: str
    files: list[Path]
    imports: dict[str, str] = field(default_factory=dict)       # name of a module -> "file:line" of the first import
    room: "Room | None" = None

    @property
    def short(self) -> str:
        return self.name.rpartition(".")[2]

    @property
    def is_package(self) -> bool:
        return any(path.name.startswith("__init__") for path in self.files)


@dataclass
class Function:
    """A function's size, and the reasons that its signature states."""

    where: str
    name: str
    lines: int
    parameters: int
    comment: str


# ---------------------------------------------------------------- the declaration

def rooms_of(text: str) -> list[Room]:
    """Return the rooms of a declaration, lowest first. Raises ValueError for an unknown or missing key."""
    rooms = []
    for place, row in enumerate(tomllib.loads(text)["room"]):
        unknown = row.keys() - {"name", "knows", "does_not_know", "only", "size", "compiled", "cycles", "upward"}
        missing = {"name", "knows", "does_not_know"} - row.keys()
        if unknown or missing:
            raise ValueError(f"room {row.get('name')!r}: unknown keys {sorted(unknown)}, "
                             f"missing keys {sorted(missing)}")
        rooms.append(Room(row["name"], row["knows"], row["does_not_know"], tuple(row.get("only", ())),
                          row.get("size", ""), row.get("compiled", ""), row.get("cycles", {}), row.get("upward", {}),
                          place))
    return rooms


# ---------------------------------------------------------------- files and imports

def modules_of(root: Path) -> dict[str, Module]:
    """Return the modules of cext/ and mosq/ below `root`, with their imports of each other."""
    modules: dict[str, Module] = {}
    for top in ROOTS:
        for path in sorted((root / top).rglob("*")):
            if path.suffix in (".py", ".pyx", ".pxd", ".pxi"):
                name = ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
                modules.setdefault(name, Module(name, [])).files.append(path)
    for module in modules.values():
        for path in module.files:
            text = path.read_text("utf-8")
            found = python_imports(text) if path.suffix == ".py" else cython_imports(text)
            package = module.name if path.stem == "__init__" else module.name.rpartition(".")[0]
            for name, line in found:
                target = _resolved(name, package, modules)
                if target is not None and target != module.name:
                    module.imports.setdefault(target, f"{path.relative_to(root)}:{line}")
    return modules


def _resolved(name: str, package: str, modules: dict[str, Module]) -> str | None:
    """Return the module that an imported name stands for; None if it is none of ours. A name after `=` comes from a
    text, and counts if it is a module's whole name."""
    if name.startswith("="):
        name = UNITS.get(name[1:], name[1:])
        return name if name in modules else None
    dots = len(name) - len(name.lstrip("."))
    if dots:
        parts = package.split(".")
        name = ".".join([*parts[:len(parts) - dots + 1], name[dots:]])
    unit = UNIT.match(name)
    if unit:
        name = UNITS[unit[0]]
    while name not in modules:
        if "." not in name:
            return name if name in OUTSIDE else None
        name = name.rpartition(".")[0]
    return name


def python_imports(text: str) -> Iterator[tuple[str, int]]:
    """Yield (name, line) for each import that happens at run time, also inside functions."""
    waiting: list[ast.AST] = [ast.parse(text)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            waiting += node.orelse
        elif isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((_joined("." * node.level + (node.module or ""), alias.name), node.lineno)
                        for alias in node.names)
        elif (isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module")
              and [type(argument) for argument in node.args] == [ast.Constant, ast.Constant]):
            relative, package = (argument.value for argument in node.args)      # type: ignore[attr-defined]
            yield f"{package}{relative}", node.lineno
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            match = NAME.fullmatch(node.value)
            if match:
                yield f"={match[1]}", node.lineno
        else:
            waiting += reversed(list(ast.iter_child_nodes(node)))


def cython_imports(text: str) -> Iterator[tuple[str, int]]:
    """Yield (name, line) for each import and cimport of a .pyx or .pxd."""
    code = without_text(text)
    for match in IMPORT.finditer(code):
        line = code.count("\n", 0, match.start()) + 1
        names = (match["whole"] or match["names"].strip("() \t")).split(",")
        for name in (one.split()[0] for one in names if one.strip()):
            yield name if match["base"] is None else _joined(match["base"], name), line
    for match in INCLUDE.finditer(text):
        path = re.sub(r"\.px[id]$", "", match[1])
        up = path.count("../")
        dots = "." * (up + 1) if path.startswith(".") else ""
        yield dots + path.replace("../", "").removeprefix("./").replace("/", "."), text.count("\n", 0, match.start()) + 1
    for match in TEXT.finditer(text):           # import_module("cext.engine")
        name = NAME.fullmatch(match[0].strip("\"'"))
        if name:
            yield f"={name[1]}", text.count("\n", 0, match.start()) + 1


def _joined(base: str, name: str) -> str:
    return base + name if base.endswith(".") else f"{base}.{name}"


def without_text(text: str) -> str:
    """Blank comments, strings and docstrings; each line stays where it is."""
    code = TEXT.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)
    return code.replace("\\\n", " \n")


# ---------------------------------------------------------------- problems

def problems(root: Path, rooms: list[Room]) -> list[str]:
    """Return one line for each violation below `root`."""
    modules = modules_of(root)
    found = _housed(modules, rooms)
    used: set[tuple[str, str]] = set()
    for module in modules.values():
        for target, where in module.imports.items():
            if module.room is not None:
                found += _wrong(module, target, where, modules, used)
    for room in rooms:
        found += [f"{room.title}: the reason for `{key}` is not needed any more" for key in room.upward
                  if (room.name, key) not in used]
        found += _circular(room, modules)
        found += _too_large(room)
    return found


def _housed(modules: dict[str, Module], rooms: list[Room]) -> list[str]:
    """Give each module its room; return a line for each that has none."""
    found = []
    by_module = {name: room for room in rooms for name in room.only}
    by_folder = {room.name: room for room in rooms if not room.only}
    for module in modules.values():
        package = module.name if module.is_package else module.name.rpartition(".")[0]
        module.room = by_module.get(module.name) or by_folder.get(package.replace(".", "/"))
        if module.room is not None:
            module.room.modules.append(module)
        elif not _is_empty(module):
            found.append(f"{module.name}: no room of dev/rooms.toml has it")
    for room in rooms:
        known = {module.name for module in room.modules}
        found += [f"{room.title}: there is no module {name}" for name in room.only if name not in known]
    return found + [f"{room.title}: there is no such folder or module" for room in rooms if not room.modules]


def _is_empty(module: Module) -> bool:
    """A package of packages may have a docstring, and nothing else."""
    return all(path.name == "__init__.py" and len(ast.parse(path.read_text("utf-8")).body) <= 1
               for path in module.files)


def _wrong(module: Module, target: str, where: str, modules: dict[str, Module],
           used: set[tuple[str, str]]) -> list[str]:
    """Return what is wrong with one import."""
    assert module.room is not None
    room = module.room
    other = modules[target].room if target in modules else None
    if target not in modules:
        return [f"{where}: {module.name} imports {target}, which is no part of the product"]
    if other is None:
        return []
    if other.place > room.place:
        key = f"{module.name} -> {target}"
        if key in room.upward:
            used.add((room.name, key))
            return []
        return [f"{where}: upward import: {module.name} ({room.title}) imports {target} ({other.title})"]
    if module.name.startswith("mosq") and target.startswith("cext") and not room.compiled:
        return [f"{where}: {module.name} imports {target}: {room.title} may not import the compiled package"]
    return []


def _circular(room: Room, modules: dict[str, Module]) -> list[str]:
    """Return the circles of modules within a room that the declaration does not allow."""
    names = {module.name for module in room.modules}
    graph = {module.name: sorted(names & module.imports.keys()) for module in room.modules}
    allowed = [set(key.split()) for key in room.cycles]
    found = []
    unused = dict(room.cycles)
    for circle in circles(graph):
        short = {name.rpartition(".")[2] for name in circle}
        matching = [key for key in room.cycles if short <= set(key.split())]
        for key in matching:
            unused.pop(key, None)
        if not any(short <= one for one in allowed):
            edges = [f"{a.rpartition('.')[2]} -> {b.rpartition('.')[2]} ({modules[a].imports[b]})"
                     for a in sorted(circle) for b in graph[a] if b in circle]
            found.append(f"{room.title}: circular imports: {'; '.join(edges)}")
    return found + [f"{room.title}: the reason for the circle `{key}` is not needed any more" for key in unused]


def circles(graph: dict[str, list[str]]) -> list[set[str]]:
    """Return the strongly connected components with more than one node."""
    order: list[str] = []
    seen: set[str] = set()
    for start in graph:
        waiting = [(start, iter(graph[start]))] if start not in seen else []
        seen.add(start)
        while waiting:
            node, below = waiting[-1]
            following = next((one for one in below if one not in seen), None)
            if following is None:
                order.append(waiting.pop()[0])
            else:
                seen.add(following)
                waiting.append((following, iter(graph[following])))
    backward: dict[str, list[str]] = {name: [] for name in graph}
    for name, targets in graph.items():
        for target in targets:
            backward[target].append(name)
    found, taken = [], set[str]()
    for start in reversed(order):
        if start in taken:
            continue
        circle, stack = set[str](), [start]
        while stack:
            node = stack.pop()
            if node not in taken:
                taken.add(node)
                circle.add(node)
                stack += backward[node]
        if len(circle) > 1:
            found.append(circle)
    return found


def _too_large(room: Room) -> list[str]:
    named = [module for module in room.modules if not _is_empty(module)]
    lines = sum(len(path.read_text("utf-8").splitlines()) for module in room.modules for path in module.files)
    is_too_large = len(named) > ROOM_MODULES_MAX or lines > ROOM_LINES_MAX
    if is_too_large and not room.size:
        return [f"{room.title}: {len(named)} modules and {lines} lines; expected at most {ROOM_MODULES_MAX} and "
                f"{ROOM_LINES_MAX}, or a reason (`size`) in dev/rooms.toml"]
    if room.size and not is_too_large:
        return [f"{room.title}: the reason for its size is not needed any more"]
    return []


# ---------------------------------------------------------------- functions

def function_problems(root: Path, folders: tuple[str, ...]) -> list[str]:
    """Return a line for each function that is too long or takes too many parameters, and gives no reason."""
    found = []
    for folder in folders:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in (".py", ".pyx", ".pxd"):
                continue
            text = path.read_text("utf-8")
            functions = python_functions(text) if path.suffix == ".py" else cython_functions(text)
            for one in functions:
                where = f"{path.relative_to(root)}:{one.where}: {one.name}"
                if one.lines > FUNCTION_LINES_MAX and not re.search(r"# .*\blong: \S", one.comment):
                    found.append(f"{where}: {one.lines} lines; expected at most {FUNCTION_LINES_MAX}, or `# long: WHY` "
                                 "on its first line")
                if one.parameters > PARAMETERS_MAX and not re.search(r"# .*\bparameters: \S", one.comment):
                    found.append(f"{where}: {one.parameters} parameters; expected at most {PARAMETERS_MAX}, or "
                                 "`# parameters: WHY` on its first line")
    return found


def python_functions(text: str) -> Iterator[Function]:
    """Yield the functions of a Python file. `self` and `cls` are no parameters."""
    rows = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            given = node.args
            names = [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
            names = names[1:] if names[:1] in (["self"], ["cls"]) else names
            count = len(names) + (given.vararg is not None) + (given.kwarg is not None)
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            comment = "\n".join(rows[node.lineno - 1:node.body[0].lineno - 1] or rows[node.lineno - 1:node.lineno])
            yield Function(str(node.lineno), node.name, lines, count, comment)


def cython_functions(text: str) -> Iterator[Function]:
    """Yield the functions of a .pyx or .pxd that have a body, by indentation."""
    code = without_text(text)
    rows, blank = text.splitlines(), code.splitlines()
    for match in FUNCTION.finditer(code):
        if re.match(r"\s*cdef\s+extern\b", match[0]):
            continue
        end = _closing(code, match.end())
        tail = code[end:code.find("\n", end) if code.find("\n", end) >= 0 else len(code)]
        if not tail.rstrip().endswith(":"):
            continue                            # a declaration, or a call
        first = code.count("\n", 0, match.start("name"))
        last = begin = code.count("\n", 0, end)
        for at in range(begin + 1, len(rows)):
            if blank[at].strip():
                if len(blank[at]) - len(blank[at].lstrip()) <= len(match["indent"].expandtabs()):
                    break
                last = at
            elif rows[at].strip() and len(rows[at]) - len(rows[at].lstrip()) > len(match["indent"]):
                last = at                       # the end of a docstring, or a comment of the body
        names = _arguments(code[match.end():end])
        if names and names[0] in ("self", "cls"):
            names = names[1:]
        yield Function(str(first + 1), match["name"], last - first + 1, len(names), "\n".join(rows[first:begin + 1]))


def _closing(code: str, at: int) -> int:
    """Return the place of the parenthesis that closes the one before `at`."""
    depth = 1
    for place in range(at, len(code)):
        depth += (code[place] in "([") - (code[place] in ")]")
        if not depth:
            return place
    return len(code) - 1


def _arguments(inside: str) -> list[str]:
    """Split a parameter list at the commas that are in no parentheses or brackets."""
    depth, parts = 0, [""]
    for one in inside:
        depth += (one in "([") - (one in ")]")
        if one == "," and not depth:
            parts.append("")
        else:
            parts[-1] += one
    return [part.strip() for part in parts if part.strip() not in ("", "*", "/")]


# ---------------------------------------------------------------- the table

def table(rooms: list[Room]) -> str:
    """Return the rows of ARCHITECTURE.md, lowest room first. `rooms` have their modules: see `problems`."""
    rows = ["| | room | modules | knows | does not know |", "|---|---|---|---|---|"]
    for room in rooms:
        names = ", ".join(sorted("__init__" if one.is_package else one.short for one in room.modules
                                 if room.only or not one.is_package))
        knows = room.knows + (f". *Above the size limits*: {room.size}" if room.size else "") + (
            f". *Imports `cext`*: {room.compiled}" if room.compiled else "")
        rows.append(f"| {room.place + 1} | `{room.name}` | {names} | {knows} | {room.does_not_know} |")
    return "\n".join(rows)


def with_table(text: str, rooms: list[Room]) -> str:
    """Return ARCHITECTURE.md with its table replaced. Raises ValueError without the two markers."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"ARCHITECTURE.md has no lines `{BEGIN}` and `{END}`")
    return f"{before}{BEGIN}\n{table(rooms)}\n{END}{after}"


def main(arguments: list[str], root: Path | None = None) -> int:
    """Write the table; with --check, report what is wrong or not current instead. Returns the exit status."""
    root = root or Path(__file__).resolve().parents[1]
    rooms = rooms_of((root / "dev/rooms.toml").read_text("utf-8"))
    found = problems(root, rooms) + function_problems(root, FUNCTION_FOLDERS)
    path = root / "ARCHITECTURE.md"
    text = path.read_text("utf-8")
    wanted = with_table(text, rooms)
    if "--check" in arguments:
        if text != wanted:
            found.append("ARCHITECTURE.md: its table of rooms is not current; run dev/architecture")
    elif text != wanted:
        path.write_text(wanted, "utf-8")
        print("== ARCHITECTURE.md: the table of rooms is written", file=sys.stderr)
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
