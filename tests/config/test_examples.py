"""Each file in conf/examples is a valid configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from mosq.config.parser import load_config
from tests.harness.broker import ROOT

EXAMPLES = sorted((ROOT / "conf/examples").glob("*.conf"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_each_example_is_valid(path: Path) -> None:
    config = load_config(str(path))
    assert config.listeners
    assert not config.warnings


def test_the_page_on_operation_names_each_example() -> None:
    page = (ROOT / "docs/operations.md").read_text()
    assert EXAMPLES
    assert not [path.name for path in EXAMPLES if f"examples/{path.name}" not in page]
