"""A tree that is half built: `mosq` reports it in one line that says what to do."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mosq import built

ROOT = Path(__file__).resolve().parents[2]
SUFFIX = built.ENDS[0]
OTHER = ".cpython-399-x86_64-linux-gnu.so"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A tree with sources that are older than its units, which are empty files."""
    (tmp_path / "cext/net").mkdir(parents=True)
    (tmp_path / "cext/testing").mkdir()
    (tmp_path / "mosq").mkdir()
    (tmp_path / "cext/shim").mkdir()
    for name in ("cext/engine.pyx", "cext/net/reactor.pxd", "cext/shim/host.c", "cext/testing/net_api.pyx"):
        (tmp_path / name).write_text("")
        os.utime(tmp_path / name, (1000, 1000))
    for name in (*built.UNITS, built.SHIM):
        (tmp_path / f"mosq/{name}{SUFFIX}").write_text("")
    return tmp_path


def wrong(checkout: Path) -> str:
    return built.problem(str(checkout / "mosq"))


def test_a_complete_build_has_no_fault(checkout: Path) -> None:
    assert wrong(checkout) == ""


def test_an_installed_package_is_not_checked(checkout: Path) -> None:
    shutil.rmtree(checkout / "cext")
    (checkout / f"mosq/_core{SUFFIX}").unlink()
    assert wrong(checkout) == ""


@pytest.mark.parametrize("name", [*built.UNITS, built.SHIM])
def test_a_unit_is_missing(checkout: Path, name: str) -> None:
    (checkout / f"mosq/{name}{SUFFIX}").unlink()
    assert wrong(checkout) == f"mosq: the compiled unit mosq.{name} is not built; run `make build`"


def test_a_unit_is_of_another_python(checkout: Path) -> None:
    (checkout / f"mosq/_core{SUFFIX}").rename(checkout / f"mosq/_core{OTHER}")
    assert wrong(checkout) == f"mosq: the compiled unit mosq._core is built for another Python (_core{OTHER}); run `make build`"


@pytest.mark.parametrize("name", ["cext/engine.pyx", "cext/net/reactor.pxd", "cext/shim/host.c"])
def test_a_source_is_newer(checkout: Path, name: str) -> None:
    later = time.time() + 10
    os.utime(checkout / name, (later, later))
    assert wrong(checkout) == f"mosq: {name} is newer than the compiled units; run `make build`"


def test_sources_of_tests_and_other_files_may_be_newer(checkout: Path) -> None:
    later = time.time() + 10
    (checkout / "cext/notes.txt").write_text("")
    for name in ("cext/testing/net_api.pyx", "cext/notes.txt"):
        os.utime(checkout / name, (later, later))
    assert wrong(checkout) == ""


def test_names_of_separate_modules_count_as_a_build(checkout: Path) -> None:
    for name in built.UNITS:
        (checkout / f"mosq/{name}{SUFFIX}").unlink()
        (checkout / f"mosq/{name}.py").write_text("")
    assert wrong(checkout) == ""


# ---------------------------------------------------------------- the command

@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """This tree's Python code and its units, beside one source."""
    shutil.copytree(ROOT / "mosq", tmp_path / "mosq", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "cext").mkdir()
    (tmp_path / "cext/engine.pyx").write_text("")
    os.utime(tmp_path / "cext/engine.pyx", (1000, 1000))
    return tmp_path


def mosq(copy: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(copy)}
    return subprocess.run([sys.executable, "-m", "mosq", *arguments], cwd=copy, env=environment, capture_output=True, text=True, timeout=60)


def unit_of(copy: Path, name: str) -> Path:
    return next(iter(copy.glob(f"mosq/{name}.*.so")), copy / f"mosq/{name}.py")


def test_the_broker_reports_a_missing_unit(copy: Path) -> None:
    unit_of(copy, "_tls").unlink()
    done = mosq(copy, "-p", "1")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "mosq: the compiled unit mosq._tls is not built; run `make build`\n"


def test_the_broker_reports_a_newer_source_with_any_options(copy: Path) -> None:
    later = time.time() + 100
    os.utime(copy / "cext/engine.pyx", (later, later))
    for arguments in (("-p", "1"), ("-vp", "1")):
        done = mosq(copy, *arguments)
        assert (done.returncode, done.stderr) == (1, "mosq: cext/engine.pyx is newer than the compiled units; run `make build`\n")


def test_a_file_that_is_no_module_is_reported(copy: Path) -> None:
    unit_of(copy, "_core").unlink()
    (copy / f"mosq/_core{SUFFIX}").write_bytes(b"\x7fELF" + bytes(100))
    for arguments in (("-p", "1"), ("db", "check", ".")):
        done = mosq(copy, *arguments)
        assert done.returncode == 1
        assert done.stderr.count("\n") == 1 and "Traceback" not in done.stderr
        assert done.stderr.startswith("mosq: the compiled unit mosq._core cannot be loaded (") and done.stderr.endswith("; run `make build`\n")


def test_a_subcommand_that_needs_a_missing_unit_reports_it(copy: Path) -> None:
    unit_of(copy, "_core").unlink()
    (copy / "segment.000000").write_bytes(b"")
    done = mosq(copy, "db", "check", ".")
    assert (done.returncode, done.stderr) == (1, "mosq: the compiled unit mosq._core is not built; run `make build`\n")


def test_help_and_the_check_of_a_configuration_need_no_unit(copy: Path) -> None:
    for name in built.UNITS:
        unit_of(copy, name).unlink()
    (copy / "c.conf").write_text("listener 1883\n")
    assert mosq(copy, "--help").returncode == 0
    assert mosq(copy, "-c", "c.conf", "--test-config").returncode == 0


def test_a_damaged_unit_is_found_before_it_is_loaded(checkout: Path) -> None:
    (checkout / "build").mkdir()
    path = f"mosq/_tls{SUFFIX}"
    (checkout / "build/sizes").write_text(f"0 mosq/_core{SUFFIX}\n3 {path}\n")
    assert wrong(checkout) == f"mosq: the compiled file {path} is missing or damaged; run `make build`"
    (checkout / path).write_text("elf")
    assert wrong(checkout) == ""
    (checkout / "build/sizes").write_text("0 cext/gone.so\n")
    assert wrong(checkout) == "mosq: the compiled file cext/gone.so is missing or damaged; run `make build`"


# ---------------------------------------------------------------- an installed package, and a program in a checkout

PROGRAM = "import mosq\nmosq.Broker"


def program(folder: Path, *paths: Path) -> str:
    """Run a program in `folder` that needs a broker; return the last line of its errors."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=folder, env=environment, capture_output=True, text=True, timeout=60)
    return done.stderr.rstrip().rpartition("\n")[2]


def test_a_program_in_a_checkout_that_is_not_built_gets_the_remedy(copy: Path) -> None:
    unit_of(copy, "_core").unlink()
    assert program(copy) == "ImportError: mosq: the compiled unit mosq._core is not built; run `make build`"


def test_a_program_in_a_checkout_learns_of_the_installed_package(copy: Path, tmp_path: Path) -> None:
    unit_of(copy, "_core").unlink()
    (tmp_path / "site/mosq").mkdir(parents=True)
    (tmp_path / f"site/mosq/_core{SUFFIX}").write_text("")
    assert program(copy, tmp_path / "site") == (
        "ImportError: mosq: the compiled unit mosq._core is not built; run `make build`, or start Python in another folder (or with -P) to "
        f"use the mosq that is installed in {tmp_path / 'site'}")


@pytest.mark.parametrize(("error", "remedy"), [
    ("libssl.so.3: cannot open shared object file: No such file or directory", "install it (on Debian: apt install libssl3)"),
    ("/usr/lib/libcrypto.so.3: version `OPENSSL_3.0.3' not found", "install it (on Debian: apt install libssl3)"),
    ("/lib/libc.so.6: version `GLIBC_2.34' not found (required by _core.abi3.so)", "build mosq from its source distribution on this machine"),
    ("Error loading shared library ld-linux-x86-64.so.2: No such file", "build mosq from its source distribution on this machine"),
    ("file too short", "install mosq again")])
def test_an_installed_unit_that_cannot_be_loaded_is_explained(copy: Path, error: str, remedy: str) -> None:
    shutil.rmtree(copy / "cext")
    code = (f"from mosq import built; print(built.why_not_loaded(ImportError({error!r}, name='mosq._core')))")
    done = subprocess.run([sys.executable, "-c", code], cwd=copy, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.startswith(f"mosq: the compiled unit mosq._core cannot be loaded ({error}); ") and done.stdout.endswith(f"{remedy}\n")
