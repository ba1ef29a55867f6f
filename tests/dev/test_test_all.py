"""Test `dev/test-all`: its parts, their order and the report on each; the table of parts agrees with the marks of the tests."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TABLE = """\
# name | seconds | command | what it covers
one | 20 | echo did one | the first
two | 0 | sleep 1.1 | the second, over its budget
bad | 20 | false | the third
big | 1000 | echo did big | too long for a short run
"""


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "parts"
    path.write_text(TABLE)
    return path


def run(table: Path, *arguments: str) -> tuple[int, list[str]]:
    done = subprocess.run([ROOT / "dev/test-all", *arguments], env={**os.environ, "MOSQ_PARTS": str(table)}, capture_output=True, text=True, check=False)
    return done.returncode, (done.stdout + done.stderr).splitlines()


def results(lines: list[str]) -> list[str]:
    """Return the lines of the closing table, without the seconds of each part."""
    return [re.sub(r" in \d+ s$", "", line) for line in lines[lines.index("=== parts") + 1:]]


def test_named_parts_run_and_a_part_over_its_budget_passes(table: Path) -> None:
    status, lines = run(table, "two", "one")
    assert status == 0 and "did one" in lines
    assert results(lines) == ["two: passed, OVER ITS BUDGET of 0 s", "one: passed"]


def test_a_failed_part_is_reported_and_the_next_parts_run(table: Path) -> None:
    status, lines = run(table, "bad", "one")
    assert status == 1
    assert results(lines) == ["bad: FAILED (status 1)", "one: passed"]


def test_the_failures_of_a_part_are_repeated_at_the_end(tmp_path: Path) -> None:
    (tmp_path / "script").write_text("#!/bin/sh\necho 'FAILED tests/x.py::test_x'\nseq 100\nexit 1\n")
    (tmp_path / "script").chmod(0o755)
    path = tmp_path / "parts"
    path.write_text(f"bad | 5 | {tmp_path}/script | fails\ngood | 5 | seq 3 | passes\n")
    status, lines = run(path, "bad", "good")
    repeated = lines[lines.index("=== bad failed:") + 1:lines.index("=== parts")]
    assert status == 1 and repeated == ["FAILED tests/x.py::test_x", *map(str, range(81, 101))]
    assert results(lines) == ["bad: FAILED (status 1)", "    FAILED tests/x.py::test_x", "good: passed"]


@pytest.mark.parametrize(("first", "order"), [(1, ["one", "two", "bad", "big"]), (3, ["bad", "big", "one", "two"]), (7, ["bad", "big", "one", "two"])])
def test_parts_run_in_turn_and_parts_that_do_not_fit_are_omitted(table: Path, first: int, order: list[str]) -> None:
    status, lines = run(table, "--seconds", "100", "--first", str(first))
    assert status == 1
    found = results(lines)
    assert [line.split(":")[0] for line in found] == order
    assert re.fullmatch(r"big: left out, \d+ s were left of the 1000 s that it may take", found[order.index("big")])
    assert "did big" not in lines


def test_a_part_that_is_stopped_by_the_time_limit_is_no_failure(tmp_path: Path) -> None:
    path = tmp_path / "parts"
    path.write_text("slow | 1 | sleep 30 | too slow\n")
    status, lines = run(path, "--seconds", "5")
    assert status == 0 and results(lines)[0].startswith("slow: stopped because the time was over; the rest of it was left out, OVER ITS BUDGET")


def test_a_part_that_is_killed_before_its_time_is_over_fails(tmp_path: Path) -> None:
    (tmp_path / "die").write_text("#!/bin/sh\nkill -9 $$\n")
    (tmp_path / "die").chmod(0o755)
    path = tmp_path / "parts"
    path.write_text(f"dies | 5 | {tmp_path}/die | killed\n")
    status, lines = run(path, "--seconds", "100")
    assert status == 1 and results(lines)[0] == "dies: FAILED (status 137)"


def test_a_table_without_parts_is_an_error(tmp_path: Path) -> None:
    status, lines = run(tmp_path / "none", "--seconds", "5")
    assert status == 2 and lines[-1].endswith("has no parts, or cannot be read")


@pytest.mark.parametrize(("arguments", "text"), [
    (("nope",), "unknown part nope; the parts are: one two bad big"), (("--nope",), "unknown option --nope"),
    (("--seconds",), "--seconds needs a number; got ''"), (("--first", "x"), "--first needs a number; got 'x'"),
    (("--seconds", "9", "--first", "0"), "--first counts from 1")])
def test_mistakes(table: Path, arguments: tuple[str, ...], text: str) -> None:
    status, lines = run(table, *arguments)
    assert status == 2 and lines[0].startswith(text)


def test_the_table_names_each_part_that_a_test_belongs_to() -> None:
    rows = [[cell.strip() for cell in line.split("|")] for line in (ROOT / "dev/parts").read_text().splitlines() if not line.startswith("#")]
    assert all(len(row) == 4 and int(row[1]) > 0 and row[3] for row in rows)
    by_mark = {row[0] for row in rows if row[2] == f"dev/test --part {row[0]}"}
    marked = set()
    for path in (ROOT / "tests").rglob("*.py"):
        if path.parent == Path(__file__).parent:
            continue
        marked |= set(re.findall(r"""mark\.(?:part|again)\("(\w+)"\)""", path.read_text()))
        marked |= set(re.findall(r"""@plays\(.*, "(\w+)", \d+\)""", path.read_text()))
    assert marked == by_mark
    for row in rows:
        assert (ROOT / row[2].split()[0]).stat().st_mode & 0o100
    listed = subprocess.run(["make", "-s", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert all(re.search(rf"^  {row[0]} +{row[1]} s   {re.escape(row[3])}$", listed, re.MULTILINE) for row in rows)
