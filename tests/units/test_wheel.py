"""The list of files of a wheel, and of what a source distribution needs to build one."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
UNITS = ("_bench", "_core", "_tls")
pytest.importorskip("Cython", reason="a build needs it, the tests do not")


def setup(*arguments: str) -> None:
    subprocess.run([sys.executable, "setup.py", "-q", *arguments], cwd=ROOT, check=True, capture_output=True, text=True, timeout=600)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    if (ROOT / "build/kind").exists() and (ROOT / "build/kind").read_text() == "separate":
        pytest.skip("a tree with separate modules has no units to put into a wheel")
    folder = tmp_path_factory.mktemp("wheel")
    setup("build", "--build-base", str(folder / "build"), "bdist_wheel", "--dist-dir", str(folder), "--bdist-dir", str(folder / "bdist"))
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as archive:
        return sorted(archive.namelist())


def package_files() -> set[str]:
    kept = {".py", ".pyi", ".typed", ".properties", ".html", ".css"}
    found = (path for path in (ROOT / "mosq").rglob("*") if path.suffix in kept or path.name == "py.typed")
    return {str(path.relative_to(ROOT)) for path in found} - {f"mosq/{name}.py" for name in UNITS}


def test_a_wheel_claims_one_name_and_has_the_units_and_the_package(wheel: list[str]) -> None:
    assert {name.split("/")[0].split("-")[0] for name in wheel} == {"mosq"}
    assert [name.partition("/")[2] for name in wheel if ".data/" in name] == ["scripts/mosq"]
    compiled = {name for name in wheel if name.endswith(".so")}
    assert {name.split(".")[0] for name in compiled} == {f"mosq/{name}" for name in UNITS}
    assert set(wheel) - compiled - {name for name in wheel if ".dist-info/" in name or ".data/" in name} == package_files()


def test_a_wheel_has_no_sources_and_no_tests(wheel: list[str]) -> None:
    assert not [name for name in wheel if name.endswith((".pyx", ".pxd", ".c", ".key", ".so.new"))]
    assert not [name for name in wheel if "cext" in name or "testing" in name or name.startswith("tests")]


def test_a_source_distribution_has_all_files_of_a_build(tmp_path: Path) -> None:
    setup("egg_info", "--egg-base", str(tmp_path), "sdist", "--dist-dir", str(tmp_path))
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as archive:
        names = archive.getnames()
    inside = {name.partition("/")[2] for name in names}
    sources = {str(path.relative_to(ROOT)) for path in (ROOT / "cext").rglob("*.p[xy][xd]") if "testing" not in path.parts}
    assert sources <= inside
    assert {"setup.py", "pyproject.toml", "dev/unit.py", "dev/compiling.py", "dev/progress.py"} <= inside
    assert not [name for name in inside if "testing" in name or name.endswith((".so", ".c", ".key"))]


