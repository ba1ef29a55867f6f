"""Tests of dev/compiling.py and dev/progress.py: the parts that a build compiles again, and the lines that it shows."""

from __future__ import annotations

import io
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "dev"))

import compiling  # noqa: E402
import unit  # noqa: E402
from progress import Progress  # noqa: E402

pytest.importorskip("Cython", reason="a build needs it, the tests do not")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        raise OSError


def test_without_a_terminal_each_step_has_two_lines() -> None:
    out = io.StringIO()
    with Progress(2, out) as progress:
        with progress.step("_core: Cython"):
            progress.report("a warning\n")
        with progress.step("_core: C"):
            pass
    assert out.getvalue() == "   _core: Cython\na warning\n   _core: Cython: 0 s (1 of 2)\n   _core: C\n   _core: C: 0 s (2 of 2)\n"


def test_a_terminal_shows_one_line_with_the_running_steps() -> None:
    out = Terminal()
    progress = Progress(3, out)
    with progress, progress.step("_core: Cython"), progress.step("_tls: C"):
        assert progress.line() == "   [0/3, 0 s] _core: Cython 0 s, _tls: C 0 s"
    assert out.getvalue() == "\r\x1b[K   _tls: C: 0 s (1 of 3)\n\r\x1b[K   _core: Cython: 0 s (2 of 3)\n\r\x1b[K"


def test_a_step_that_fails_ends() -> None:
    progress = Progress(1, io.StringIO())
    with pytest.raises(ValueError, match="no"), progress, progress.step("x"):
        raise ValueError("no")
    assert not progress.running


def test_only_functions_that_python_calls_are_marked_cold() -> None:
    def marked(line: str) -> bool:
        return "cold" in compiling.PYTHON_FUNCTION.sub(r"static __attribute__((cold)) \1", line)

    assert marked("static PyObject *__pyx_pf_4mosq_5_core_6Engine_run(struct __pyx_obj_4mosq_5_core_Engine *__pyx_v_self) {\n")
    assert marked("static CYTHON_SMALL_CODE int __Pyx_InitConstants(__pyx_mstatetype *__pyx_mstate) {\n")
    assert not marked("static void __pyx_f_4mosq_5_core_deliver(struct __pyx_t_4mosq_5_core_Broker *__pyx_v_b) {\n")
    assert not marked("static CYTHON_INLINE int __Pyx_mod_int(int a, int b) {\n")


# ---------------------------------------------------------------- small modules, compiled

@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "cext/low").mkdir(parents=True)
    (tmp_path / "cext/low/sum.pxd").write_text("cdef int sum_of(int a, int b) noexcept nogil\n")
    (tmp_path / "cext/low/sum.pyx").write_text("cdef int sum_of(int a, int b) noexcept nogil:\n    return a + b\n")
    (tmp_path / "cext/api.pyx").write_text(
        "from cext.low.sum cimport sum_of\n\n\ndef add(int a, int b):\n    if a < 0:\n        raise ValueError(a)\n    return sum_of(a, b)\n")
    (tmp_path / "cext/__init__.py").write_text("")
    (tmp_path / "cext/low/__init__.py").write_text("")
    (tmp_path / "mosq").mkdir()
    monkeypatch.setattr(compiling, "ROOT", tmp_path)
    monkeypatch.setattr(unit, "UNITS", {"mosq._small": ("cext.api",)})
    return tmp_path


def build(tree: Path, separate: bool = False, started_ns: int = 0) -> dict[str, float]:
    """Build; return the inode of each output."""
    compiling.STARTED_NS = started_ns or time.time_ns()
    sources = unit.Sources(tree)
    parts = compiling.separate_parts(sources) if separate else compiling.unit_parts(sources, tree / "build", tests=False)
    place = {part.name: tree.joinpath(*part.name.split(".")).with_suffix(".abi.so") for part in parts}
    builder = compiling.Builder(["gcc", "-fPIC"], ["gcc", "-shared"], place, tree / "build", 2, force=False)
    builder.run(parts)
    compiling.tidy(parts, place, separate)
    return {name: path.stat().st_ino for name, path in place.items()}


def test_a_unit_is_compiled_again_only_if_its_contents_change(tree: Path) -> None:
    first = build(tree)
    assert list(first) == ["mosq._small"]
    source = tree / "cext/low/sum.pyx"
    source.touch()
    assert build(tree) == first
    assert (tree / "mosq/_small.abi.so").stat().st_mtime >= source.stat().st_mtime        # mosq/built.py compares these
    source.write_text(source.read_text().replace("a + b", "a + b + 1"))
    assert build(tree) != first


@pytest.mark.parametrize("separate", [False, True])
def test_a_unit_without_its_library_is_left_out(tree: Path, monkeypatch: pytest.MonkeyPatch, separate: bool) -> None:
    source = tree / "cext/api.pyx"
    source.write_text("# distutils: libraries = :libhiredis.a\n" + source.read_text())
    monkeypatch.setattr(compiling, "has_hiredis", lambda: False)
    assert "mosq._small" not in build(tree, separate)
    assert not [so for so in tree.rglob("*.so") if "sum" not in so.name]


def test_the_library_of_stores_in_redis_is_found_by_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    assert compiling.has_hiredis.__wrapped__()
    monkeypatch.setenv("CC", "sh -c 'echo libhiredis.a'")
    assert not compiling.has_hiredis.__wrapped__()
    monkeypatch.setenv("CC", "/no/compiler")
    assert not compiling.has_hiredis.__wrapped__()


def test_errors_name_the_source_and_its_line(tree: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tree / "cext/low/sum.pyx").write_text("cdef int sum_of(int a, int b) noexcept nogil:\n    return a + nothing\n")
    with pytest.raises(compiling.BuildError, match=r"cext/low/sum.pyx:2:15: undeclared name not builtin: nothing"):
        build(tree)
    assert not (tree / "mosq/_small.abi.so").exists()


def test_a_performance_hint_is_an_error(tree: Path) -> None:
    path = tree / "cext/low/sum.pyx"
    path.write_text(path.read_text() + "\n\ncdef void other(int a) nogil:\n    pass\n")
    with pytest.raises(compiling.BuildError, match="performance hint"):
        build(tree)


def test_each_kind_of_build_removes_files_of_the_other(tree: Path) -> None:
    build(tree)
    separate = build(tree, separate=True)
    assert set(separate) == {"cext.api", "cext.low.sum"}
    assert not (tree / "mosq/_small.abi.so").exists()
    redirect = (tree / "mosq/_small.py").read_text()
    assert '"add": "cext.api"' in redirect
    build(tree)
    assert not (tree / "mosq/_small.py").exists() and not list(tree.glob("cext/**/*.so"))


def test_a_changed_declaration_recompiles_dependent_modules(tree: Path) -> None:
    first = build(tree, separate=True)
    pyx, pxd = tree / "cext/low/sum.pyx", tree / "cext/low/sum.pxd"
    pyx.write_text(pyx.read_text().replace("a + b", "b + a"))
    second = build(tree, separate=True)
    assert second["cext.api"] == first["cext.api"] and second["cext.low.sum"] != first["cext.low.sum"]
    pxd.write_text(pxd.read_text() + "cdef enum:\n    MORE = 1\n")
    third = build(tree, separate=True)
    assert third["cext.api"] != second["cext.api"] and third["cext.low.sum"] != second["cext.low.sum"]


def test_a_damaged_output_is_made_again(tree: Path) -> None:
    build(tree)
    output = tree / "mosq/_small.abi.so"
    whole = output.read_bytes()
    output.write_bytes(whole[:1000] + bytes(1000) + whole[2000:])
    build(tree)
    assert output.read_bytes() == whole


def test_a_damaged_output_of_the_same_sources_is_not_copied(tree: Path) -> None:
    build(tree)
    (tree / "mosq/_small.abi.so").write_bytes(b"another program")
    made = compiling.Made(tree / "build/keys")
    keys = {note.read_text().split("\n")[0] for note in made.folder.iterdir()}
    assert [path for key in keys if (path := made.same(key)) is not None and path.suffix == ".so"] == []


def test_a_source_that_changes_during_a_build_is_newer_than_its_output(tree: Path) -> None:
    source = tree / "cext/low/sum.pyx"
    build(tree, started_ns=source.stat().st_mtime_ns - 1)
    assert (tree / "mosq/_small.abi.so").stat().st_mtime_ns < source.stat().st_mtime_ns
