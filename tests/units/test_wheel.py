"""The list of files of a wheel, and of what a source distribution needs to build one without Cython."""

from __future__ import annotations

import inspect
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
UNITS = ("_bench", "_core", "_redis", "_tls")
COMPILED = (*UNITS, "_shim")
pytest.importorskip("Cython", reason="a build needs it, the tests do not")


sys.path.insert(0, str(ROOT / "dev"))
import compiling    # noqa: E402


def setup(*arguments: str) -> None:
    subprocess.run([sys.executable, "setup.py", "-q", *arguments], cwd=ROOT, check=True, capture_output=True, text=True, timeout=600)


@pytest.fixture(scope="module")
def wheel_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if (ROOT / "build/kind").exists() and (ROOT / "build/kind").read_text() == "separate":
        pytest.skip("a tree with separate modules has no units to put into a wheel")
    folder = tmp_path_factory.mktemp("wheel")
    setup("build", "--build-base", str(folder / "build"), "bdist_wheel", "--dist-dir", str(folder), "--bdist-dir", str(folder / "bdist"))
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def wheel(wheel_file: Path) -> list[str]:
    with zipfile.ZipFile(wheel_file) as archive:
        return sorted(archive.namelist())


def package_files() -> set[str]:
    kept = {".py", ".pyi", ".typed", ".properties", ".html", ".css", ".js", ".svg"}
    found = (path for path in (ROOT / "mosq").rglob("*") if path.suffix in kept or path.name == "py.typed")
    return {str(path.relative_to(ROOT)) for path in found} - {f"mosq/{name}.py" for name in UNITS}


def test_a_wheel_claims_one_name_and_has_the_units_and_the_package(wheel: list[str]) -> None:
    assert {name.split("/")[0].split("-")[0] for name in wheel} == {"mosq"}
    assert [name.partition("/")[2] for name in wheel if ".data/" in name] == ["scripts/mosq"]
    compiled = {name for name in wheel if name.endswith(".so")}
    assert {name.split(".")[0] for name in compiled} == {f"mosq/{name}" for name in COMPILED}
    assert set(wheel) - compiled - {name for name in wheel if ".dist-info/" in name or ".data/" in name} == package_files()


def test_a_wheel_has_no_sources_and_no_tests(wheel: list[str]) -> None:
    assert not [name for name in wheel if name.endswith((".pyx", ".pxd", ".c", ".key", ".so.new"))]
    assert not [name for name in wheel if "cext" in name or "testing" in name or name.startswith("tests")]


def test_one_wheel_serves_this_python_and_all_newer_ones(wheel_file: Path, wheel: list[str]) -> None:
    assert "-cp311-abi3-" in wheel_file.name
    assert {name.partition(".")[2] for name in wheel if name.endswith(".so")} == {"abi3.so"}


def test_units_of_a_wheel_search_libraries_where_the_system_does(wheel_file: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel_file) as archive:
        archive.extractall(tmp_path)
    for path in tmp_path.glob("mosq/*.so"):
        dynamic = subprocess.run(["readelf", "-d", path], check=True, capture_output=True, text=True, timeout=60).stdout
        assert "(NEEDED)" in dynamic and "RUNPATH" not in dynamic and "RPATH" not in dynamic


def test_flags_of_code_objects_are_those_of_python() -> None:
    flags = dict(one.removeprefix("-D").split("=") for one in compiling.STABLE if one.startswith("-DCO_"))
    assert flags and {name: getattr(inspect, name) for name in flags} == {name: int(value) for name, value in flags.items()}


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sdist")
    setup("egg_info", "--egg-base", str(folder), "sdist", "--dist-dir", str(folder))
    with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
        archive.extractall(folder, filter="data")
    return next(path for path in folder.glob("mosq-*") if path.is_dir())


def test_a_source_distribution_has_all_files_of_a_build(unpacked: Path) -> None:
    inside = {str(path.relative_to(unpacked)) for path in unpacked.rglob("*") if path.is_file()}
    sources = {str(path.relative_to(ROOT)) for path in (ROOT / "cext").rglob("*.p[xy][xd]") if "testing" not in path.parts}
    sources |= {str(path.relative_to(ROOT)) for path in (ROOT / "cext/shim").glob("*.[ch]")}
    assert sources <= inside
    assert {"setup.py", "pyproject.toml", "dev/backend.py", "dev/unit.py", "dev/compiling.py", "dev/progress.py"} <= inside
    assert {f"generated/mosq.{name}.{end}" for name in UNITS for end in ("c", "key")} == {one for one in inside if "generated/" in one}
    assert not [name for name in inside if "cext/testing" in name or name.endswith(".so")]


def test_a_source_distribution_has_the_pages_the_examples_and_the_files_of_packages(unpacked: Path) -> None:
    for folder in ("docs", "conf", "packaging"):
        files = [path.relative_to(ROOT) for path in (ROOT / folder).rglob("*") if path.is_file() and path.suffix != ".pyc"]
        assert files and [path for path in files if not (unpacked / path).exists()] == []
    assert all((unpacked / name).exists() for name in ("SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE", "conf/mosq.service"))


# Stands for a compiler: it writes what it was called with.
COMPILER = """#!/bin/sh
case $1 in -print-file-name=*) echo "/lib/${1#*=}"; exit ;; esac
out=
for word; do [ "$last" = -o ] && out=$word; last=$word; done
echo "$@" > "$out"
"""


def build_unpacked(folder: Path, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """Build with a Python in which Cython cannot be imported."""
    (tmp_path / "Cython.py").write_text("raise ImportError('no Cython here')\n")
    compiler = tmp_path / "cc"
    compiler.write_text(COMPILER)
    compiler.chmod(0o755)
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(tmp_path), "CC": str(compiler), "LDSHARED": str(compiler)}
    return subprocess.run([sys.executable, "setup.py", "-q", "build_ext", "--inplace"], cwd=folder, env=environment, capture_output=True,
                          text=True, timeout=120)


def test_a_source_distribution_is_built_without_cython(unpacked: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(unpacked, tmp_path / "copy")
    done = build_unpacked(folder, tmp_path)
    assert done.returncode == 0, done.stderr
    assert {path.name for path in (folder / "mosq").glob("*.so")} == {f"{name}.abi3.so" for name in COMPILED}


def test_a_changed_source_of_a_distribution_asks_for_cython(unpacked: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(unpacked, tmp_path / "copy")
    with (folder / "cext/base/clock.pyx").open("a") as file:
        file.write("# changed\n")
    done = build_unpacked(folder, tmp_path)
    assert done.returncode == 1
    assert "generated/mosq._" in done.stderr and "Cython is not installed; install it" in done.stderr
