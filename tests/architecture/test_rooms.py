"""Test the direction of imports: dev/rooms.toml declares the rooms of cext/ and mosq/ in order, and dev/architecture.py checks
every import against it. The tests with small trees show that it finds each kind of violation."""

from pathlib import Path

import pytest

from dev import architecture

ROOT = Path(__file__).resolve().parents[2]
DECLARATION = (ROOT / "dev/rooms.toml").read_text()


def test_each_import_goes_to_an_earlier_room() -> None:
    assert architecture.problems(ROOT, architecture.rooms_of(DECLARATION)) == []


def test_functions_are_short_or_give_a_reason() -> None:
    assert architecture.function_problems(ROOT, architecture.FUNCTION_FOLDERS) == []


def test_the_table_in_architecture_md_is_current() -> None:
    """Test the table that `dev/architecture` writes."""
    rooms = architecture.rooms_of(DECLARATION)
    architecture.problems(ROOT, rooms)          # fills in the modules of each room
    text = (ROOT / "ARCHITECTURE.md").read_text()
    assert architecture.with_table(text, rooms) == text


def test_the_checker_reads_every_file() -> None:
    modules = architecture.modules_of(ROOT)
    read = {path for module in modules.values() for path in module.files}
    there = {path for top in architecture.ROOTS for suffix in ("py", "pyx", "pxd", "pxi") for path in (ROOT / top).rglob(f"*.{suffix}")}
    assert read == there and sum(len(module.imports) for module in modules.values()) > 1000


# ---------------------------------------------------------------- tests of the checker with small trees

DECLARED = """
[[room]]
name = "cext/low"
knows = "x"
does_not_know = "y"

[[room]]
name = "cext/high"
knows = "x"
does_not_know = "y"

[[room]]
name = "mosq/inner"
knows = "x"
does_not_know = "y"

[[room]]
name = "mosq/outer"
knows = "x"
does_not_know = "y"
compiled = "it may"
"""
TREE = {
    "cext/__init__.py": "",
    "cext/low/__init__.py": "",
    "cext/low/memory.pxd": "cdef int take(size_t n) noexcept nogil\n",
    "cext/low/memory.pyx": '"""From nothing\nimport cext.high.loop\n"""\ncdef int take(size_t n) noexcept nogil:\n    return 0\n',
    "cext/high/__init__.py": "",
    "cext/high/loop.pyx": "from cext.low.memory cimport (\n    take,\n)\n",
    "mosq/__init__.py": "",
    "mosq/inner/__init__.py": "",
    "mosq/inner/first.py": "import os\n",
    "mosq/inner/second.py": "from mosq.inner import first\n",
    "mosq/outer/__init__.py": "",
    "mosq/outer/command.py": "from mosq.inner.second import first\n\n\ndef run():\n    from cext.high.loop import run\n",
}


def tree(folder: Path, **changed: str) -> Path:
    """Make a correct tree, then append the lines of `changed` to some files (`__` stands for `/`)."""
    for name, text in TREE.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for name, text in changed.items():
        stem, _, suffix = name.rpartition("_")
        path = folder / f"{stem.replace('__', '/')}.{suffix}"
        path.write_text((path.read_text() if path.exists() else "") + text)
    return folder


def found(folder: Path, declared: str = DECLARED) -> list[str]:
    return architecture.problems(folder, architecture.rooms_of(declared))


def test_a_tree_without_a_mistake(tmp_path: Path) -> None:
    assert found(tree(tmp_path)) == []


@pytest.mark.parametrize(("changed", "expected"), [
    ({"cext__low__memory_pyx": "from cext.high.loop cimport turn\n"}, "cext/low/memory.pyx:6: upward import: cext.low.memory (cext/low) imports cext.high.loop"),
    ({"cext__low__memory_pxd": "cimport cext.high.loop as loop\n"}, "cext/low/memory.pxd:2: upward import"),
    ({"cext__low__memory_pyx": "cdef f():\n    from cext.high import loop\n"}, "cext/low/memory.pyx:7: upward import"),
    ({"cext__low__memory_pyx": "from ..high.loop cimport turn\n"}, "cext/low/memory.pyx:6: upward import"),
    ({"cext__low__memory_pyx": "import mosq.inner.first\n"}, "cext/low/memory.pyx:6: upward import"),
    ({"cext__low__memory_pyx": "X = 1; from cext.high.loop cimport turn\n"}, "cext/low/memory.pyx:6: upward import"),
    ({"cext__low__memory_pyx": "if True: import cext.high.loop\n"}, "cext/low/memory.pyx:6: upward import"),
    ({"cext__low__memory_pyx": "loop = __import__('cext.high.loop')\n"}, "cext/low/memory.pyx:6: upward import"),
    ({"cext__low__memory_pyx": "include \"../high/loop.pxd\"\n"}, "cext/low/memory.pyx:6: upward import"),
    ({"mosq__inner__first_py": "import_module('.outer.command', 'mosq')\n"}, "mosq/inner/first.py:2: upward import"),
    ({"mosq__inner__first_py": "if not TYPE_CHECKING:\n    import mosq.outer.command\n"}, "mosq/inner/first.py:3: upward import"),
    ({"mosq__inner__first_py": "if True or TYPE_CHECKING:\n    import mosq.outer.command\n"}, "mosq/inner/first.py:3: upward import"),
    ({"mosq__inner__first_py": "import mosq.outer.command\n"}, "mosq/inner/first.py:2: upward import: mosq.inner.first (mosq/inner) imports mosq.outer.command"),
    ({"mosq__inner__first_py": "def f():\n    from mosq.outer import command\n"}, "mosq/inner/first.py:3: upward import"),
    ({"mosq__inner__first_py": "LATER = 'mosq.outer.command:run'\n"}, "mosq/inner/first.py:2: upward import"),
    ({"mosq__inner__first_py": "import cext.low.memory\n"}, "mosq/inner may not import the compiled package"),
    ({"mosq__inner__first_py": "import perf.tables\n"}, "imports perf, which is no part of the product"),
    ({"mosq__inner__first_py": "def f():\n    from mosq.inner import second\n"}, "mosq/inner: circular imports: first -> second (mosq/inner/first.py:3); second -> first (mosq/inner/second.py:1)"),
    ({"cext__low__memory_pyx": "from cext.low cimport disk\n", "cext__low__disk_pxd": "from cext.low.memory cimport take\n"}, "cext/low: circular imports: disk -> memory"),
    ({"mosq__new_py": "import os\n"}, "mosq.new: no room of dev/rooms.toml has it"),
    ({"mosq__inner__first_py": "\n" * 4000}, "mosq/inner: 2 modules and 4002 lines; expected at most 16 and 4000"),
    ({f"mosq__inner__m{n}_py": "import os\n" for n in range(15)}, "mosq/inner: 17 modules and 17 lines"),
])
def test_a_violation_is_found(changed: dict[str, str], expected: str, tmp_path: Path) -> None:
    problems = found(tree(tmp_path, **changed))
    assert len(problems) == 1 and expected in problems[0], problems


@pytest.mark.parametrize("changed", [
    {"mosq__inner__first_py": "TYPE_CHECKING = False\nif TYPE_CHECKING:\n    from mosq.outer import command\n"},
    {"mosq__inner__first_py": "# import mosq.outer.command\nTEXT = '''\nimport mosq.outer.command\n'''\n"},
    {"cext__low__memory_pyx": "# from cext.high.loop cimport turn\n"},
    {"cext__low__memory_pyx": "from libc.string cimport memcpy\nimport os\n"},
])
def test_type_checking_imports_comments_and_strings_are_allowed(changed: dict[str, str], tmp_path: Path) -> None:
    assert found(tree(tmp_path, **changed)) == []


def test_a_reason_allows_a_violation_and_must_be_needed(tmp_path: Path) -> None:
    declared = DECLARED.replace('compiled = "it may"', 'compiled = "it may"\nsize = "it is large"')
    assert found(tree(tmp_path / "a", mosq__outer__command_py="\n" * 4000), declared) == []
    assert "its size is not needed any more" in found(tree(tmp_path / "b"), declared)[0]
    upward = DECLARED.replace('name = "mosq/inner"', 'name = "mosq/inner"\nupward = {"mosq.inner.first -> mosq.outer.command" = "why"}')
    assert found(tree(tmp_path / "c", mosq__inner__first_py="import mosq.outer.command\n"), upward) == []
    assert "is not needed any more" in found(tree(tmp_path / "d"), upward)[0]
    cycles = DECLARED.replace('name = "cext/low"', 'name = "cext/low"\ncycles = {"disk memory" = "why"}')
    circle = {"cext__low__memory_pyx": "from cext.low cimport disk\n", "cext__low__disk_pxd": "from cext.low.memory cimport take\n"}
    assert found(tree(tmp_path / "e", **circle), cycles) == []
    assert "is not needed any more" in found(tree(tmp_path / "f"), cycles)[0]


def test_a_mistake_in_the_declaration(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"unknown keys \['knwos'\], missing keys \['knows'\]"):
        architecture.rooms_of(DECLARED.replace("knows =", "knwos =", 1))
    assert found(tree(tmp_path), f'{DECLARED}\n[[room]]\nname = "mosq/gone"\nknows = ""\ndoes_not_know = ""\n') == [
        "mosq/gone: there is no such folder or module"]


LONG = "    x = 1\n" * 60


@pytest.mark.parametrize(("suffix", "text", "expected"), [
    ("py", f"def f():\n{LONG}", "1: f: 61 lines"),
    ("py", f"class A:\n    def f(self):\n{LONG.replace('    ', '        ')}", "2: f: 61 lines"),
    ("py", "def f(a, b, c, d, e, f, *, g, h):\n    pass\n", "1: f: 8 parameters"),
    ("pyx", f"cdef int f(int* a) noexcept nogil:\n{LONG}\ncdef int g() except -1:\n    return 1\n", "1: f: 61 lines"),
    ("pyx", "cdef void f(\n    A* a, B* b, int c, fn* d,\n    (int, int) e, int f, int g, int h,\n) noexcept nogil:\n    pass\n", "1: f: 8 parameters"),
    ("pyx", f"cdef class A:\n    def f(self):\n        '''Text.'''\n{LONG.replace('    ', '        ')}", "2: f: 62 lines"),
    ("pxd", "cdef inline int f(int a, int b, int c, int d, int e, int f, int g, int h) noexcept nogil:\n    return 0\n", "1: f: 8 parameters"),
])
def test_a_large_function_is_found(suffix: str, text: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / "mosq").mkdir()
    path = tmp_path / f"mosq/a.{suffix}"
    path.write_text(text)
    [problem] = architecture.function_problems(tmp_path, ("mosq",))
    assert f"mosq/a.{suffix}:{expected}" in problem
    at = int(expected.partition(":")[0]) - 1
    lines = text.splitlines()
    lines[at] += "     # long: one table; parameters: one for each field"
    path.write_text("\n".join(lines))
    assert architecture.function_problems(tmp_path, ("mosq",)) == []


@pytest.mark.parametrize(("suffix", "text"), [
    ("py", f"def f():\n{LONG[10:]}"),
    ("py", "class A:\n    def f(self, a, b, c, d, e, f, g):\n        pass\n"),
    ("pyx", "cdef int f(int a, int b, int c, int d, int e, int f, int g, int h) noexcept nogil\n"),
    ("pyx", 'cdef extern from "x.h" nogil:\n    int f(int a, int b, int c, int d, int e, int f, int g, int h)\n'),
])
def test_a_function_within_the_limits(suffix: str, text: str, tmp_path: Path) -> None:
    (tmp_path / "mosq").mkdir()
    (tmp_path / f"mosq/a.{suffix}").write_text(text)
    assert architecture.function_problems(tmp_path, ("mosq",)) == []


def test_the_table_is_written_between_its_markers(tmp_path: Path) -> None:
    tree(tmp_path)
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/rooms.toml").write_text(DECLARED)
    page = tmp_path / "ARCHITECTURE.md"
    page.write_text(f"before\n{architecture.BEGIN}\nold\n{architecture.END}\nafter\n")
    assert architecture.main(["--check"], tmp_path) == 1
    assert architecture.main([], tmp_path) == 0
    assert "| 2 | `cext/high` | loop | x | y |\n" in page.read_text() and "old" not in page.read_text()
    assert page.read_text().startswith("before\n") and page.read_text().endswith("\nafter\n")
    assert architecture.main(["--check"], tmp_path) == 0
