"""Test that the files that dev/statistics generates from dev/statistics.toml are current."""

from __future__ import annotations

from pathlib import Path

import pytest

from dev import stat_table
from mosq import stat_names

ROOT = Path(__file__).resolve().parents[2]
ROWS = "systree = []\nsystree_store = []\n{stats}[[drop]]\nname = 'd'\nhelp = ''\n[[refused]]\nname = 'r'\nhelp = ''\n[[stream]]\nname = 's'\ntopic = 's'\nhelp = ''\n"


@pytest.mark.parametrize("path", list(stat_table.written(ROOT)), ids=lambda path: path.name)
def test_each_file_is_current(path: Path) -> None:
    assert path.read_text() == stat_table.written(ROOT)[path], "run dev/statistics"


def test_names_of_version_0_1_0_still_exist() -> None:
    """Test that the public names of version 0.2.0 still exist."""
    assert {"shed", "asked", "asks_open", "asks_timed_out"} <= stat_names.ALIASES.keys()
    assert set(stat_names.ALIASES.values()) <= set(stat_names.STATS)


@pytest.mark.parametrize("stats", [
    "[[stat]]\nname = 'a'\nhelp = ''\n" * 2,
    "[[stat]]\nname = 'a'\nhelp = ''\ntopics = ['t']\n[[stat]]\nname = 'b'\nhelp = ''\ntopics = ['t']\n",
    "[[stat]]\nname = 'a'\nhelp = ''\n[[stat]]\nname = 'b'\nalias = 'a'\nhelp = ''\n",
])
def test_a_name_or_topic_that_is_declared_twice_is_refused(stats: str) -> None:
    with pytest.raises(ValueError, match="declares twice"):
        stat_table.Table(ROWS.format(stats=stats))


def test_a_topic_of_the_http_api_that_is_not_declared_is_refused() -> None:
    text = ROWS.format(stats="[[stat]]\nname = 'a'\nhelp = ''\n").replace("systree = []", "systree = ['x']")
    with pytest.raises(ValueError, match="declares no topic x"):
        stat_table.Table(text)
