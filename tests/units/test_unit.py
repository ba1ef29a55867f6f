"""dev/unit.py: many Cython modules become one file of includes, and nothing is renamed on the way."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "dev"))

import unit  # noqa: E402

LOW_PXD = """# Memory.
from libc.stdint cimport uint32_t

cdef enum:
    LEAST = 4
    MOST = (1 << 8)

ctypedef struct Block:
    uint32_t n

# takes memory
cdef Block* block_take(uint32_t n) noexcept nogil
cdef inline uint32_t twice(uint32_t n) noexcept nogil:
    return 2 * n
"""
LOW_PYX = '''"""Low."""

from libc.stdint cimport uint32_t
from libc.stdlib cimport malloc

cdef extern from "<unistd.h>" nogil:
    int c_close "close"(int fd)
    int EOF, STDIN


cdef Block* block_take(uint32_t n) noexcept nogil:
    """Takes [a] block: a text with brackets ( and a 'quote."""
    return <Block*>malloc(n)
'''
HIGH_PXD = """from cext.low.memory cimport Block

cdef class Owner:
    cdef Block* b               # its memory
    cdef list names
    cdef int grow(self, int n) except -1
"""
HIGH_PYX = '''import os

from cext.low.memory cimport (
    LEAST, block_take,
)

cdef extern from "<unistd.h>" nogil:
    int c_close "close"(int descriptor)
    int EOF, STDOUT

NAMES = ("a", "b")


cdef class Owner:
    """Owns."""

    cdef int grow(self, int n) except -1:
        self.b = block_take(LEAST)
        return 0

    def lazily(self):
        from cext.high.later import later
        return later(os.sep)


def tail():
    return NAMES
'''
LATER_PYX = """from cext.high.owner cimport Owner


def later(x):
    return x
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in {"low/memory.pxd": LOW_PXD, "low/memory.pyx": LOW_PYX, "high/owner.pxd": HIGH_PXD, "high/owner.pyx": HIGH_PYX,
                       "high/later.pyx": LATER_PYX, "other/alone.pyx": "def alone():\n    return 1\n"}.items():
        path = tmp_path / "cext" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def made(root: Path, *roots: str) -> dict[str, str]:
    one = unit.Unit("mosq._x", roots or ("cext.high.owner",), unit.Sources(root))
    return {str(path): text for path, text in one.files().items()}


def problems(root: Path, *roots: str) -> list[str]:
    with pytest.raises(unit.UnitError) as caught:
        made(root, *roots)
    return str(caught.value).splitlines()


def test_cimported_modules_belong_to_the_unit_lowest_first(tree: Path) -> None:
    main = made(tree)["_x.pyx"]
    assert [line.split('"')[1] for line in main.splitlines()[1:]] == [
        "cext/low/memory.pxd", "cext/high/owner.pxd", "cext/low/memory.pyx", "cext/high/owner.pyx", "cext/high/later.pyx"]


def test_lines_keep_their_numbers(tree: Path) -> None:
    files = made(tree)
    for path in ("cext/low/memory.pxd", "cext/low/memory.pyx", "cext/high/later.pyx"):
        before, after = (tree / path).read_text().splitlines(), files[path].splitlines()
        assert len(before) == len(after)
        assert all(new in ("", old) for old, new in zip(before, after, strict=True))


def test_cimports_of_each_other_and_declared_functions_are_blanked(tree: Path) -> None:
    files = made(tree)
    assert "cext.low" not in files["cext/high/owner.pyx"] and "LEAST, block_take" not in files["cext/high/owner.pyx"]
    assert "from libc.stdint cimport uint32_t" in files["cext/low/memory.pxd"]
    assert "block_take" not in files["cext/low/memory.pxd"] and "return 2 * n" in files["cext/low/memory.pxd"]


def test_an_extern_declaration_is_made_once(tree: Path) -> None:
    files = made(tree)
    assert 'int c_close "close"(int fd)' in files["cext/low/memory.pyx"]
    assert "c_close" not in files["cext/high/owner.pyx"]
    assert "    int STDOUT\n" in files["cext/high/owner.pyx"] and "EOF" not in files["cext/high/owner.pyx"]


def test_a_class_gets_the_attributes_of_its_pxd(tree: Path) -> None:
    owner = made(tree)["cext/high/owner.pyx"]
    inside = owner[owner.index("cdef class Owner"):owner.index("def tail")]
    assert "    cdef Block* b               # its memory\n" in inside and "cdef list names" in inside
    assert owner.count("int grow(self, int n)") == 1
    assert owner.splitlines().index("cdef class Owner:") == HIGH_PYX.splitlines().index("cdef class Owner:")


def test_lazy_imports_are_removed_or_name_the_other_unit(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "        pass\n        return later(os.sep)" in made(tree)["cext/high/owner.pyx"]
    monkeypatch.setattr(unit, "UNITS", {"mosq._x": ("cext.high.owner",), "mosq._y": ("cext.high.later",)})
    files = made(tree)
    assert "        from mosq._y import later\n" in files["cext/high/owner.pyx"] and "cext/high/later.pyx" not in files


def test_public_names_are_known_by_module(tree: Path) -> None:
    found = unit.Unit("mosq._x", ("cext.high.owner",), unit.Sources(tree)).public_names()
    assert found == {"NAMES": "cext.high.owner", "Owner": "cext.high.owner", "tail": "cext.high.owner", "later": "cext.high.later"}


@pytest.mark.parametrize(("file", "text", "expected"), [
    ("high/later.pyx", "\n\ncdef enum:\n    FEW = 1, MOST = 2\n", "cext/high/later.pyx:8: MOST has another meaning in cext/low/memory.pxd:4"),
    ("high/later.pyx", "\n\ncdef int tail(int n) noexcept nogil:\n    return n\n", "tail has another meaning in cext/high/owner.pyx"),
    ("high/later.pyx", "\n\ncdef struct Block:\n    int n\n", "Block has another meaning in cext/low/memory.pxd:8"),
    ("high/later.pyx", "\n\nctypedef int (*twice)(int n) noexcept nogil\n", "twice has another meaning in cext/low/memory.pxd"),
    ("high/later.pyx", "\n\ncdef int[4] NAMES\n", "NAMES has another meaning in cext/high/owner.pyx:11"),
    ("high/later.pyx", "\n\nNAMES = (\n    'c',\n)\n", "NAMES has another meaning in cext/high/owner.pyx:11"),
    ("high/later.pyx", "\nfrom libc.string cimport tail\n", "tail has another meaning in"),
    ("high/later.pyx", "\nimport malloc\n", "malloc has another meaning in cext/low/memory.pyx:4: libc.stdlib.malloc | import malloc"),
    ("high/later.pyx", '\ncdef extern from "<unistd.h>" nogil:\n    long c_close "close"(int fd)\n', "c_close has another meaning in cext/low/memory.pyx"),
    ("high/later.pyx", "\n\ndef max(x):\n    return x\n", "cext/high/later.pyx:8: max hides the builtin"),
    ("high/later.pyx", "\nfrom cext.low.memory cimport Block as B\n", "Block cannot be called B"),
    ("high/later.pyx", "\ncimport cext.low.memory as m\n", "cimport the names, not the module"),
    ("high/later.pyx", "\n# cython: wraparound=True\n", "`# cython: wraparound=True` has no effect in a unit"),
    ("high/later.pyx", "\n\nfor x in NAMES:\n    pass\n", "not understood: for x in NAMES"),
])
def test_a_name_with_two_meanings_is_an_error(tree: Path, file: str, text: str, expected: str) -> None:
    path = tree / "cext" / file
    path.write_text(path.read_text() + text)
    assert [line for line in problems(tree) if expected in line]


@pytest.mark.parametrize("text", [
    "\nimport os\n",
    "\nfrom libc.stdint cimport uint32_t\n",
    "\ncdef struct Block\n",
    '\ncdef extern from "<unistd.h>" nogil:\n    int c_close "close"(int which)\n',
    "\n\ncdef class Unit:\n    cdef int MOST\n    def tail(self):\n        NAMES = 1\n        return NAMES\n",
    "\n\n# NAMES = 2\ncdef inline int other(int tail, int NAMES) noexcept nogil: return tail\n",
])
def test_equal_meanings_and_local_names_are_no_error(tree: Path, text: str) -> None:
    path = tree / "cext/high/later.pyx"
    path.write_text(path.read_text() + text)
    made(tree)


def test_unused_modules_stay_out_and_a_root_must_exist(tree: Path) -> None:
    assert not [path for path in made(tree) if "alone" in path]
    with pytest.raises(unit.UnitError, match=r"cext\.high\.none has no source"):
        made(tree, "cext.high.none")


def test_the_units_of_this_tree_have_no_name_with_two_meanings() -> None:
    sources = unit.Sources(ROOT)
    units = {**unit.UNITS, **sources.test_units()}
    assert "cext.testing.topic_api" in units and "cext.testing.topic_check" not in units
    for name, roots in units.items():
        unit.Unit(name, roots, sources).files()


def test_no_unit_of_a_wheel_has_a_module_for_tests() -> None:
    sources = unit.Sources(ROOT)
    for name, roots in unit.UNITS.items():
        assert not [module for module in unit.Unit(name, roots, sources).modules if ".testing." in module]
    assert unit.Unit("mosq._core", unit.UNITS["mosq._core"], sources).libraries == []        # OpenSSL is loaded with TLS only
