"""docs/dynamic-security.md names every command, and tests that there are."""

from __future__ import annotations

import re
from pathlib import Path

from mosq.dynsec.commands import COMMANDS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/dynamic-security.md").read_text()


def test_every_command_has_a_row_with_its_test() -> None:
    rows = [row.split("|") for row in PAGE.splitlines() if row.startswith("| `") and "`test_" in row]
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row[1])]
    assert sorted(name.lower() for name in named) == sorted(COMMANDS)


def test_the_tests_are_there() -> None:
    there = "".join(path.read_text() for path in (ROOT / "tests/dynsec").glob("test_*.py"))
    for name in set(re.findall(r"`(test_\w+)`", PAGE)):
        assert f"def {name}(" in there, name
