"""Test that docs/control.md names every command and every option, and only existing tests."""

from __future__ import annotations

import re
from pathlib import Path

import click

from mosq.server.admin import inspect
from mosq.tools.ctl.command import MODULES, ctl
from tests.harness.broker import ROOT

PAGE = (ROOT / "docs" / "control.md").read_text()


def test_every_command_has_a_row() -> None:
    rows = set(re.findall(r"^\| (\w+) \| `(\w+)", PAGE, re.MULTILINE))
    assert rows == {(module.name, spec.name) for module in MODULES for spec in module.specs.values()} | {("dynsec", "init")}


def test_every_command_of_the_own_topic_has_a_row() -> None:
    table = PAGE.partition("## mosq's own commands")[2].partition("\n## ")[0]
    known = inspect.commands(lambda: None, None, lambda kind, text: None)._functions  # type: ignore[arg-type, return-value]
    assert set(re.findall(r"^\| `(\w+)`", table, re.MULTILINE)) == {name for name, _ in known.values()}


def test_every_option_has_a_row_with_its_test() -> None:
    known = {tuple(one.opts) for one in ctl.params if isinstance(one, click.Option) and not one.hidden} - {("--version",), ("--help",)}
    lines = [line for line in PAGE.partition("| option |")[2].splitlines() if line.startswith("| `-")]
    assert {tuple(re.findall(r"`(-[^`]+)`", line.split(" | ")[0])) for line in lines} == known
    for line in lines:
        named_tests_are_there(line, mention=re.findall(r"`(-[^`]+)`", line))


def test_the_option_of_the_broker_has_a_row_with_its_test() -> None:
    [line] = [line for line in PAGE.splitlines() if line.startswith("| `enable_control_api")]
    named_tests_are_there(line, mention=["enable_control_api"])


def named_tests_are_there(row: str, mention: list[str]) -> None:
    """Check that the named tests exist in their file."""
    path: Path | None = None
    for file, test in re.findall(r"(test_[a-z_]+\.py)|`(test_\w+)`", row):
        path = ROOT / "tests/ctl" / file if file else path
        assert path is not None
        text = path.read_text()
        assert not test or f"def {test}(" in text, (path, test)
        assert any(re.search(rf"[\s\"(]{re.escape(name)}[\s\"=]", text) for name in mention), (path, mention)
    assert path is not None, row


def test_tests_that_the_page_names_exist() -> None:
    named = set(re.findall(r"`(tests/[^`]+\.py)`", PAGE))
    assert len(named) >= 5
    assert all((ROOT / path).is_file() for path in named)
