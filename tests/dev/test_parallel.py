"""Test `pytest --jobs`: processes forked after one collection run each test once; if a process dies, its test fails."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CONFTEST = "from tests.conftest import *\n"
MARKS = ["part(*names)", "again(*names)", "together(name)", "spark", "timing"]


@pytest.fixture
def suite(tmp_path: Path):
    """Provide suite(name=text of tests, ...), which runs the tests and returns exit status and output."""

    def run(*arguments: str, env: dict[str, str] | None = None, **files: str) -> tuple[int, str]:
        (tmp_path / "checks").mkdir()
        (tmp_path / "conftest.py").write_text(CONFTEST)
        (tmp_path / "pytest.ini").write_text("[pytest]\ntestpaths = checks\nmarkers =\n" + "".join(f"    {mark}: x\n" for mark in MARKS))
        for name, text in files.items():
            (tmp_path / f"checks/test_{name}.py").write_text("import os, pathlib, time, pytest\nRAN = pathlib.Path(__file__).parents[1] / 'ran'\n"
                                                            "def ran(name):\n    with RAN.open('a') as out: out.write(f'{name} {os.getpid()}\\n')\n" + text)
        done = subprocess.run([sys.executable, "-m", "pytest", "--import-mode=importlib", "-p", "no:locust", "-p", "no:mosq", *arguments], cwd=tmp_path,
                              env={**os.environ, "PYTHONPATH": str(ROOT), **(env or {})}, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    return run


def pids(tmp_path: Path) -> dict[str, str]:
    lines = [line.split() for line in (tmp_path / "ran").read_text().splitlines()]
    assert len(lines) == len({name for name, _ in lines}), "a test ran twice"
    return dict(lines)


MANY = """
@pytest.fixture(scope="module")
def once():
    ran(f"setup {os.getpid()}".replace(" ", "-"))
    yield
    ran(f"teardown {os.getpid()}".replace(" ", "-"))

@pytest.mark.parametrize("n", range(40))
def test_it(n, once, tmp_path):
    ran(f"x{n}")
    time.sleep(0.02)
"""


def test_each_test_runs_once_in_several_processes(suite, tmp_path: Path) -> None:
    status, out = suite("--jobs", "3", many=MANY)
    assert status == 0 and "40 passed" in out and "collected 40 tests in" in out, out
    ran = pids(tmp_path)
    mine = {name: pid for name, pid in ran.items() if name.startswith("x")}
    assert len(mine) == 40
    used = set(mine.values())
    assert len(used) == 3, "the two processes that had no file of their own did not take a half"
    for pid in used:            # fixtures of the module: one setup and teardown in each process
        assert ran[f"setup-{pid}"] == ran[f"teardown-{pid}"] == pid


def test_tests_that_need_one_process_get_one(suite, tmp_path: Path) -> None:
    marked = "@pytest.mark.{}\n@pytest.mark.parametrize('n', range(6))\ndef test_it(n):\n    ran(f'{}{{n}}')\n    time.sleep(0.02)\n"
    status, out = suite("--jobs", "3", a=marked.format("spark", "spark-a"), b=marked.format("spark", "spark-b"),
                        c=marked.format("together('here')", "here"), d=marked.format("timing", "timing"))
    assert status == 0, out
    ran = pids(tmp_path)
    assert len({pid for name, pid in ran.items() if name.startswith("spark")}) == 1
    assert len({pid for name, pid in ran.items() if name.startswith("here")}) == 1


DYING = """
def test_first(): ran("first")
def test_dies(): os.kill(os.getpid(), 9)
def test_fails():
    print("words of the test")
    assert 1 == 2
def test_last(): ran("last")
"""


def test_a_process_that_dies_fails_its_test_and_the_others_run(suite, tmp_path: Path) -> None:
    status, out = suite("--jobs", "1", dying=DYING)
    assert status == 1 and "2 failed, 2 passed" in out, out
    assert re.search(r"FAILED checks/test_dying.py::test_dies", out) and "the process that ran this test ended with SIGKILL" in out
    assert "words of the test" in out and "assert 1 == 2" in out
    ran = pids(tmp_path)
    assert set(ran) == {"first", "last"} and ran["first"] != ran["last"]


def test_the_first_failure_ends_the_run(suite, tmp_path: Path) -> None:
    status, out = suite("--jobs", "1", "-x", dying=DYING)
    assert status == 1 and "1 failed, 1 passed" in out, out
    assert set(pids(tmp_path)) == {"first"}


PARTS = """
from tests.harness.effort import tries
def test_plain(): ran("plain")
@pytest.mark.part("long")
def test_long(): ran("long")
@pytest.mark.again("long", "other")
def test_both(): ran(f"both-{tries(50, 5)}")
"""


@pytest.mark.parametrize(("arguments", "ran"), [
    ((), {"plain", "both-5"}), (("--part", "long"), {"long", "both-50"}), (("--part", "other"), {"both-50"}),
    (("--all",), {"plain", "long", "both-50"}), (("checks/test_parts.py",), {"plain", "long", "both-5"})])
def test_parts(suite, tmp_path: Path, arguments: tuple[str, ...], ran: set[str]) -> None:
    status, out = suite(*arguments, parts=PARTS)
    assert status == 0, out
    assert set(pids(tmp_path)) == ran


def test_a_part_without_tests_is_an_error(suite) -> None:
    status, out = suite("--part", "nope", parts=PARTS)
    assert status == 4 and "no test is in the part nope; expected one of long, other" in out


LAST = "import atexit, signal\ndef test_it(): {}\n"


@pytest.mark.parametrize(("text", "why"), [
    ("atexit.register(os._exit, 5)", "the process ended with status 5 after its last test"),
    ("atexit.register(os.kill, os.getpid(), signal.SIGSEGV)", "the process ended with SIGSEGV after its last test")])
def test_a_process_that_dies_after_its_last_test_fails_the_run(suite, text: str, why: str) -> None:
    status, out = suite("--jobs", "1", one=LAST.format(text))
    assert status == 1 and why in out and "1 failed, 1 passed" in out, out


def test_a_process_that_ends_in_a_teardown_fails_the_run(suite) -> None:
    status, out = suite("--jobs", "1", one="@pytest.fixture(scope='session')\ndef ends():\n    yield\n    os._exit(0)\ndef test_it(ends): pass\n")
    assert status == 1 and "1 failed" in out, out


CHILD = """
def test_it():
    if os.fork() == 0:
        for fd in os.listdir("/proc/self/fd"):          # of the output, which the caller of pytest reads to its end
            if pathlib.Path("/proc/self/fd", fd).is_fifo():
                os.close(int(fd))
        deadline = time.monotonic() + 60
        while not RAN.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        os._exit(0)
    os.kill(os.getpid(), 9)
def test_next(): ran("next")
"""


def test_a_child_that_holds_the_pipe_does_not_delay_the_run(suite, tmp_path: Path) -> None:
    status, out = suite("--jobs", "1", one=CHILD)
    assert status == 1 and "ended with SIGKILL" in out and "1 failed, 1 passed" in out, out
    assert "next" in pids(tmp_path)


def test_a_negative_number_of_processes_is_refused(suite) -> None:
    status, out = suite("--jobs", "-1", one="def test_it(): pass\n")
    assert status == 4 and "--jobs needs a number of processes" in out, out
