"""Test that docs/dynamic-security.md names every command, and only existing tests."""

from __future__ import annotations

import re
from pathlib import Path

from mosq.auth.dynsec import first
from mosq.auth.dynsec.commands import COMMANDS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/dynamic-security.md").read_text()
OPTIONS, _, COMMANDS_OF_PAGE = PAGE.partition("\n## Commands\n")


def test_every_command_has_a_row_with_its_test() -> None:
    rows = [row.split("|") for row in COMMANDS_OF_PAGE.splitlines() if row.startswith("| `") and "`test_" in row]
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row[1])]
    assert sorted(name.lower() for name in named) == sorted(COMMANDS)


def test_every_option_has_a_row_with_its_test() -> None:
    rows = {row.split("`")[1]: row for row in OPTIONS.splitlines() if row.startswith("| `") and "`test_" in row}
    assert rows.keys() == {"plugin", "plugin_opt_config_file", "plugin_opt_password_init_file", "dynamic_security", first.ENVIRONMENT}
    for row in rows.values():
        where = ""
        for path, test in re.findall(r"(test_[a-z]+\.py)|`(test_\w+)`", row):
            where = path or where
            assert not test or f"def {test}(" in (ROOT / "tests/dynsec" / where).read_text(), (where, test)


def test_the_named_tests_exist() -> None:
    there = "".join(path.read_text() for path in (ROOT / "tests/dynsec").glob("test_*.py"))
    for name in set(re.findall(r"`(test_\w+)`", PAGE)):
        assert f"def {name}(" in there, name
