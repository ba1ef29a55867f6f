"""Test that docs/options.md is generated from the table."""

from pathlib import Path

from mosq.config.document import page
from mosq.config.options import OPTIONS


def test_the_committed_page_is_up_to_date():
    path = Path(__file__).parents[2] / "docs/options.md"
    assert path.read_text() == page(), "run: python -m mosq.config.document > docs/options.md"


def test_every_option_has_a_row():
    rows = page().split("\n| `")
    assert sum(row.startswith(option.name) for row in rows for option in OPTIONS) >= len(OPTIONS)
