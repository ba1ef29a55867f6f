"""docs/control.md names every command and every option, and tests that are there."""

from __future__ import annotations

import re

import click

from mosq.admin import inspect
from mosq.ctl.command import MODULES, ctl
from tests.harness.broker import ROOT

PAGE = (ROOT / "docs" / "control.md").read_text()


def test_every_command_has_a_row() -> None:
    rows = set(re.findall(r"^\| (\w+) \| `(\w+)", PAGE, re.MULTILINE))
    assert rows == {(module.name, spec.name) for module in MODULES for spec in module.specs.values()} | {("dynsec", "init")}


def test_every_command_of_the_own_topic_has_a_row() -> None:
    table = PAGE.partition("## mosq's own commands")[2].partition("\n## ")[0]
    known = inspect.commands(lambda: None, None, lambda kind, text: None)._functions  # type: ignore[arg-type, return-value]
    assert set(re.findall(r"^\| `(\w+)`", table, re.MULTILINE)) == {name for name, _ in known.values()}


def test_every_option_has_a_row() -> None:
    known = {tuple(one.opts) for one in ctl.params if isinstance(one, click.Option) and not one.hidden} - {("--version",), ("--help",)}
    rows = {tuple(re.findall(r"`(-[^`]+)`", line.split(" | ")[0])) for line in PAGE.partition("| option |")[2].splitlines() if line.startswith("| `-")}
    assert rows == known


def test_its_tests_are_there() -> None:
    named = set(re.findall(r"`(tests/[^`]+\.py)`", PAGE))
    assert len(named) >= 5
    assert all((ROOT / path).is_file() for path in named)
