"""Prepares many Cython modules to be compiled as one: a unit.

    root modules -> all that they cimport -> their .pxd files, lowest first, then their .pyx files -> one file of includes

The sources are copied with three things blanked out: cimports and imports of each other, declarations of functions whose bodies
follow, and extern declarations that an earlier file has made. Lines keep their numbers, and files their names, so errors and
tracebacks name the source.

A unit has one namespace. If two modules give one name to different things, that is an error here, and the sources must change.
Nothing is renamed on the way. Knows the text of the sources, not the compiler (dev/compiling.py).
"""

import builtins
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

PACKAGE = "cext"
# What a wheel contains: the modules whose names Python uses. All that they cimport belongs to the unit too.
UNITS = {
    "mosq._core": ("cext.engine", "cext.renewal", "cext.bridge_control", "cext.setup.listen", "cext.takeover", "cext.workers_control", "cext.setup.inspection",
                   "cext.setup.pbkdf2", "cext.setup.sources", "cext.journal.journal_api", "cext.session.record_api", "cext.store.store_api",
                   "cext.matching.matcher"),
    # the first listener or bridge with TLS loads it, and with it libssl
    "mosq._tls": ("cext.setup.tls", "cext.setup.tls_outward"),
    # `mosq bench` loads it
    "mosq._bench": ("cext.bench.generator", "cext.bench.certificate", "cext.bench.relay"),
    # a broker with its store in Redis loads it; it contains libhiredis
    "mosq._redis": ("cext.redis.redis_api",),
}
TEST_ROOM = "testing"                   # each of its modules that no other cimports is a unit of its own, for tests only

TOKEN = re.compile(r'("""|\'\'\')(?:\\.|.)*?\1|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|#[^\n]*|[\[({]|[\])}]|\\\n|\n', re.DOTALL)
CIMPORT = re.compile(r"from ([\w.]+) cimport (.*)$")
IMPORT = re.compile(r"from ([\w.]+) import (.*)$")
LAZY_IMPORT = re.compile(r"^([ ]+)from (cext[\w.]*) import (.*)$", re.MULTILINE)
TYPE = re.compile(r"(?:cdef|ctypedef) (?:packed )?(struct|union|enum|class)\b ?(\w*)")
# a parameter's name, which may differ between two declarations of a function
PARAMETER = re.compile(r"(?<=[\w*]) ?(?<![(,] )(?<![(,])\b(?!(?:int|long|char|short|unsigned|double|float)\b)\w+ ?(?=[,)\[])")


class UnitError(Exception):
    """Report the problems of the sources, one in each line."""


@dataclass
class Statement:
    """A statement of a file or of an extern block; `code` is its text in one line, without comments."""

    code: str
    head: str           # `code` up to the colon that opens a block
    first: int          # its lines, from 0; `last` is the line behind it
    last: int


@dataclass
class Source:
    """A .pxd or .pyx file."""

    path: Path
    text: str
    statements: list[Statement] = field(default_factory=list)


# ---------------------------------------------------------------- statements

def logical_lines(text: str) -> Iterator[tuple[int, str, int, int]]:
    """Yield (indentation, code, first line, line behind it) for each logical line that has code."""
    parts: list[str] = []
    depth, at, row, first = 0, 0, 0, 0
    for match in TOKEN.finditer(text + "\n"):
        token = match[0]
        parts.append(text[at:match.start()])
        at = match.end()
        if token == "\n" and depth == 0:
            line = "".join(parts)
            code = " ".join(line.split())
            if code:
                yield len(line) - len(line.lstrip()), code, first, row + 1
            parts, first = [], row + 1
        elif token in ("\n", "\\\n"):
            parts.append(" ")
        elif token[0] != "#":
            depth += (token in "([{") - (token in ")]}")
            parts.append(token)
        row += token.count("\n")


def statements_of(text: str, indentation: int = 0, first: int = 0) -> list[Statement]:
    """Return the statements with this indentation; decorators belong to what they decorate."""
    found: list[Statement] = []
    decorated = False
    for indent, code, begin, end in logical_lines(text):
        if indent == indentation and not decorated:
            found.append(Statement(code, _head(code), begin + first, end + first))
        elif indent == indentation or decorated:
            found[-1] = Statement(code, _head(code), found[-1].first, end + first)
        else:
            found[-1].code += f" ; {code}"
            found[-1].last = end + first
        decorated = indent == indentation and code.startswith("@")
    return found


def _head(code: str) -> str:
    depth = 0
    for match in re.finditer(r'"(?:\\.|[^"\\])*"|[\[({]|[\])}]|:', code):
        depth += (match[0] in "([{") - (match[0] in ")]}")
        if match[0] == ":" and depth == 0:
            return code[:match.start()]
    return code


def has_block(statement: Statement) -> bool:
    return statement.head != statement.code


def items_of(listed: str) -> list[str]:
    return [item.strip() for item in listed.strip("() ").split(",") if item.strip()]


def is_text(statement: Statement) -> bool:
    return statement.code.startswith(('"', "'"))


def is_extern(statement: Statement) -> bool:
    return statement.code.startswith("cdef extern from")


def is_declaration_of_function(statement: Statement) -> bool:
    """Does it declare a C function whose body is elsewhere?"""
    return (statement.code.startswith("cdef ") and not has_block(statement) and not TYPE.match(statement.code)
            and re.match(r"[^=(]*\w\(", statement.code) is not None)


def names_of(statement: Statement) -> list[str]:
    """Return the names that a statement gives to the module. Raises ValueError for a form that is not known here."""
    code, head = statement.code, statement.head
    if match := re.match(r"(?:async )?def (\w+)|class (\w+)", code):
        return [match[1] or match[2]]
    if match := TYPE.match(code):
        names = [match[2]] if match[2] else []
        if match[1] == "enum" and has_block(statement):
            constants = re.sub(r"\([^()]*\)", "", code[len(head) + 1:])
            names += [one.split("=")[0].strip() for one in re.split("[;,]", constants) if one.strip()]
        return names
    if match := re.match(r"(?:ctypedef|cdef) [^(]*\(\*\s*(\w+)", head):
        return [match[1]]
    if match := re.match(r"ctypedef .*?(\w+)(?:\[\w*\])*$", code):
        return [match[1]]
    if match := re.match(r"cdef [^=(]*?\b(\w+) ?\(", head):
        return [match[1]]
    if code.startswith("cdef "):
        declared = [code.split("=")[0]] if "=" in code else code.split(",")
        return [re.findall(r"\w+", re.sub(r"\[[^\]]*\]", "", one))[-1] for one in declared]
    if re.match(r"[\w.]+\.\w+ ?=[^=]", code) or code == "pass":
        return []                               # fills a struct that is declared already
    if match := re.match(r"(\w+(?: ?, ?\w+)*) ?=[^=]", code):
        return items_of(match[1])
    raise ValueError(f"not understood: {code[:80]}")


def declared_by(statement: Statement) -> list[tuple[str, str]]:
    """Return (name, declaration in a normal form) for each name that a statement of an extern block declares."""
    code = statement.code
    if code == "pass" or is_text(statement):
        return []
    if re.match(r"(?:ctypedef )?enum ?:", code):
        return [(name, f"enum {name}") for name in re.findall(r"\w+", code.split(":", 1)[1])]
    if match := re.match(r"(?:ctypedef )?(?:struct|union|enum) (\w+)", code):
        return [(match[1], code)]
    if match := re.match(r"ctypedef [^(]*\(\*\s*(\w+)", code):
        return [(match[1], code)]
    if "(" in code:
        match = re.match(r'.*?\b(\w+) ?("[^"]*")? ?\(', code)
        if match is None:
            raise ValueError(f"not understood: {code[:80]}")
        return [(match[1], re.sub(r" (?=[,)])", "", PARAMETER.sub("", code)).removesuffix(" nogil"))]
    if match := re.match(r"ctypedef .*?(\w+)$", code):
        return [(match[1], code)]
    first, *more = items_of(code)
    kind, _, _ = first.partition('"')
    kind = " ".join(kind.split()[:-1])
    return [(one.split("[")[0].split()[0], f"{kind} {one}") for one in (first[len(kind):].strip(), *more)]


def libraries_of(text: str) -> list[str]:
    """Return what a module is linked with: `# distutils: libraries = ...` at its head."""
    return [name for line in re.findall(r"^# distutils: libraries = (.*)$", text, re.MULTILINE) for name in line.split()]


# ---------------------------------------------------------------- a unit

class Sources:
    """The files below `root`, each read once."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._read: dict[Path, Source | None] = {}

    def source(self, module: str, suffix: str) -> Source | None:
        path = Path(*module.split(".")).with_suffix(suffix)
        if path not in self._read:
            file = self.root / path
            text = file.read_text("utf-8") if file.exists() else None
            self._read[path] = None if text is None else Source(path, text, statements_of(text))
        return self._read[path]

    def of(self, module: str) -> list[Source]:
        return [one for suffix in (".pxd", ".pyx") if (one := self.source(module, suffix)) is not None]

    def needs(self, source: Source) -> list[str]:
        """Return the modules of ours that a file cimports, or imports when it is loaded."""
        found = [match[1] for one in source.statements if (match := CIMPORT.match(one.code) or IMPORT.match(one.code))]
        return [name for name in dict.fromkeys(found) if name.startswith(PACKAGE + ".") and self.of(name)]

    def declarations_for(self, module: str) -> list[Source]:
        """Return a .pyx and all .pxd files that it depends on."""
        found = [one for suffix in (".pyx", ".pxd") if (one := self.source(module, suffix)) is not None]
        for source in found:            # grows
            headers = [self.source(name, ".pxd") for name in self.needs(source)]
            found += [header for header in headers if header is not None and header not in found]
        return found

    def test_units(self) -> dict[str, tuple[str, ...]]:
        """Return the units that only tests need."""
        found = sorted((self.root / PACKAGE / TEST_ROOM).glob("*.pyx"))
        names = [f"{PACKAGE}.{TEST_ROOM}.{path.stem}" for path in found if not path.with_suffix(".pxd").exists()]
        return {name: (name,) for name in names}


class Unit:
    """A unit's modules, and their text. Raises UnitError if a root has no source."""

    def __init__(self, name: str, roots: tuple[str, ...], sources: Sources) -> None:
        self.name, self.sources = name, sources
        # Python code of the unit takes names of these modules from another unit
        self.elsewhere = {module: unit for unit, modules in UNITS.items() if unit != name for module in modules}
        self.modules = self._closure(roots)
        self.problems: list[str] = []
        self._owners: dict[str, tuple[str, str]] = {}       # name -> where it is declared first, and as what
        self._texts: set[str] = set()                       # C in extern blocks

    def _needs(self, source: Source) -> list[str]:
        lazy = [match[2] for match in LAZY_IMPORT.finditer(source.text) if match[2] not in self.elsewhere]
        return [*self.sources.needs(source), *(name for name in lazy if self.sources.of(name))]

    def _closure(self, roots: tuple[str, ...]) -> list[str]:
        seen: list[str] = []
        waiting = list(roots)
        while waiting:
            module = waiting.pop(0)
            if module not in seen:
                found = self.sources.of(module)
                if not found:
                    raise UnitError(f"{module} has no source")
                seen.append(module)
                waiting += [name for source in found for name in self._needs(source)]
        return sorted(seen)

    def _ordered(self, suffix: str) -> list[Source]:
        """The files with this suffix, needed ones first; a circle is cut where it is met."""
        out: list[Source] = []
        met: set[str] = set()

        def visit(module: str) -> None:
            source = self.sources.source(module, suffix)
            if module not in met and source is not None:
                met.add(module)
                for other in self._needs(source):
                    visit(other)
                out.append(source)

        for module in self.modules:
            visit(module)
        return out

    @property
    def libraries(self) -> list[str]:
        """Return what `# distutils: libraries = ...` at the head of a file names."""
        found = [name for module in self.modules for source in self.sources.of(module) for name in libraries_of(source.text)]
        return sorted(set(found), reverse=True)             # ssl before crypto

    def files(self) -> dict[Path, str]:
        """Return the text of each file to compile: the first includes the others. Raises UnitError."""
        declarations, bodies = self._ordered(".pxd"), self._ordered(".pyx")
        includes = [f'include "{source.path}"\n' for source in (*declarations, *bodies)]
        head = f"# {self.name}, one unit of {len(self.modules)} modules; dev/unit.py writes this file\n"
        files = {Path(self.name.rpartition(".")[2] + ".pyx"): head + "".join(includes)}
        for source in (*declarations, *bodies):
            files[source.path] = self._blanked(source)
        if self.problems:
            raise UnitError("\n".join(self.problems))
        return files

    def public_names(self) -> dict[str, str]:
        """Return which module each name comes from that Python can see."""
        found: dict[str, str] = {}
        for module in self.modules:
            source = self.sources.source(module, ".pyx")
            for one in source.statements if source else ():
                if re.match(r"(?:cdef )?class |(?:async )?def |\w+ ?=[^=]", one.code):
                    found |= dict.fromkeys(names_of(one), module)
        return found

    # ------------------------------------------------------------ one file

    def _blanked(self, source: Source) -> str:
        lines = source.text.splitlines(keepends=True)
        is_header = source.path.suffix == ".pxd"
        added: list[tuple[int, str]] = []
        if match := re.search(r"^# cython:.*", source.text, re.MULTILINE):
            self.problems.append(f"{source.path}: `{match[0]}` has no effect in a unit; use decorators")
        for one in source.statements:
            where = f"{source.path}:{one.first + 1}"
            try:
                if self._is_elsewhere(one, where) or is_text(one):
                    _blank(lines, one)
                elif is_extern(one):
                    self._blank_extern(lines, one, source, where)
                elif is_header and (is_declaration_of_function(one) or one.code.startswith("cdef class ")):
                    _blank(lines, one)
                elif not re.match(r"(?:from \S+ c?import|c?import) ", one.code):
                    if not TYPE.match(one.code) or has_block(one):      # else: a type that is declared later
                        self._claim_all(names_of(one), where)
                    if one.code.startswith("cdef class ") and (members := self._members(source, names_of(one)[0])):
                        added.append((one.last, members))
            except ValueError as error:
                self.problems.append(f"{where}: {error}")
        for row, text in reversed(added):
            lines.insert(row, text)
        return LAZY_IMPORT.sub(self._lazy, "".join(lines))

    def _is_elsewhere(self, one: Statement, where: str) -> bool:
        """Is it a cimport or an import of a module of this unit? Claims the names of other imports."""
        match = CIMPORT.match(one.code) or IMPORT.match(one.code)
        if match is None:
            if other := re.match(r"import (.*)", one.code):
                self._claim_all([(item.partition(" as ")[2] or item).split(".")[0] for item in items_of(other[1])], where, one.code)
            elif (other := re.match(r"cimport (.*)", one.code)) and PACKAGE + "." in other[1]:
                self.problems.append(f"{where}: cimport the names, not the module: a unit has no modules")
            return False
        inside = match[1] in self.modules
        for item in items_of(match[2]):
            name, _, alias = item.partition(" as ")
            if inside and alias:
                self.problems.append(f"{where}: {name} cannot be called {alias}: a unit has one name for it")
            elif not inside:
                self._claim(alias or name, where, f"{match[1]}.{name}")
        return inside

    def _claim_all(self, names: list[str], where: str, what: str = "") -> None:
        for name in names:
            self._claim(name, where, what or where)

    def _claim(self, name: str, where: str, what: str) -> None:
        """`what` must be the same if the same name is claimed twice."""
        first, known = self._owners.setdefault(name, (where, what))
        if known != what:
            is_external = not known.startswith(PACKAGE) and not what.startswith(PACKAGE)
            self.problems.append(f"{where}: {name} has another meaning in {first}" + (f": {known} | {what}" if is_external else ""))
        elif hasattr(builtins, name) and not what.startswith(("libc.", "cpython.")):
            self.problems.append(f"{where}: {name} hides the builtin from all modules of the unit")

    def _blank_extern(self, lines: list[str], block: Statement, source: Source, where: str) -> None:
        inside = lines[block.first + 1:block.last]
        indentation = min(len(line) - len(line.lstrip()) for line in inside if line.strip())
        left = 0
        for one in statements_of("".join(inside), indentation, block.first + 1):
            if is_text(one):
                fresh = one.code not in self._texts
                self._texts.add(one.code)
                left += fresh
                if not fresh:
                    _blank(lines, one)
                continue
            declared = declared_by(one)
            fresh_names = [(name, what) for name, what in declared if name not in self._owners]
            for name, what in declared:
                self._claim(name, f"{source.path}:{one.first + 1}", what)
            left += len(fresh_names)
            if declared and len(fresh_names) < len(declared):
                _blank(lines, one)
                if fresh_names:         # a line with several names, of which some are known
                    kind = declared[0][1][:-len(items_of(one.code)[0].split()[-1])]
                    listed = ", ".join(what[len(kind):] for _, what in fresh_names)
                    lines[one.first] = " " * indentation + f"{kind}{listed}\n"
        if not left:
            _blank(lines, block)

    def _members(self, source: Source, name: str) -> str:
        """Return the attributes that a class's .pxd declares; the forward declarations of its methods are not needed."""
        header = self.sources.source(".".join(source.path.with_suffix("").parts), ".pxd")
        for one in header.statements if header else ():
            if one.code.startswith(f"cdef class {name}"):
                declared = header.text.splitlines(keepends=True)[one.first + 1:one.last] if header else []
                return "".join(line for line in declared if line.split("#")[0].strip() and "(" not in line.split("#")[0])
        return ""

    def _lazy(self, match: re.Match[str]) -> str:
        if match[2] in self.modules:
            return match[1] + "pass"
        return f"{match[1]}from {self.elsewhere[match[2]]} import {match[3]}" if match[2] in self.elsewhere else match[0]


def _blank(lines: list[str], one: Statement) -> None:
    lines[one.first:one.last] = ["\n"] * (one.last - one.first)
