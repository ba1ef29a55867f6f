"""Check the threat model of SECURITY.md: each option with its default, each test and each attack that it names exists."""

from __future__ import annotations

import re

import pytest

from mosq.config.options import BY_KEYWORD
from perf.attacks.every import ATTACKS
from tests.harness.broker import ROOT

MODEL = (ROOT / "SECURITY.md").read_text().partition("## Threat model\n")[2].partition("\n## ")[0]
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in MODEL.splitlines() if line.startswith("| ")]
THREATS = [row for row in ROWS if row[0] not in ("can", "option") and not row[0].startswith("`")]
UNITS = {"bytes": "bytes", "seconds": "s"}
DEFAULTS = {row[1]: row[3] for row in re.findall(r"^\| (`(\w+)`)[^|]*\|([^|]*)\|([^|]*)\|", (ROOT / "docs" / "options.md").read_text(), re.MULTILINE)}


def test_each_kind_of_attacker_has_a_table() -> None:
    assert len(re.findall(r"^### ", MODEL, re.MULTILINE)) == 7 and len(THREATS) >= 25 and all(len(row) == 3 for row in ROWS)


@pytest.mark.parametrize(("option", "default"), sorted({one for row in THREATS for one in re.findall(r"`(\w+)`(?: \(([^)]*)\))?", row[1])}))
def test_each_option_exists_and_has_the_named_default(option: str, default: str) -> None:
    assert option in DEFAULTS and option in BY_KEYWORD, f"{option} is no option"
    if default:
        value, unit = DEFAULTS[option].strip(), UNITS.get(BY_KEYWORD[option].unit)
        assert default == (f"{value} {unit}" if unit else value)


def test_the_limits_that_are_off_have_a_recommended_value_and_an_example() -> None:
    is_off = {name for row in THREATS for name, default in re.findall(r"`(\w+)` \((-1|0 bytes)\)", row[1]) if not name.startswith("tls_")}
    assert {name for row in ROWS if row[0].startswith("`") for name in re.findall(r"`(\w+)`", row[0])} == is_off
    example = (ROOT / "conf/limits.conf").read_text()
    assert [name for name in is_off if f"\n{name} " not in example] == []


@pytest.mark.parametrize("test", sorted({one for row in THREATS for one in re.findall(r"`([\w/]+\.py(?:::\w+)?)`", row[2])}))
def test_each_test_exists(test: str) -> None:
    file, _, name = test.partition("::")
    text = (ROOT / file).read_text()
    assert "def test_" in text if not name else re.search(rf"def {name}\b", text)


@pytest.mark.parametrize("threat", THREATS, ids=[row[0] for row in THREATS])
def test_each_limit_names_a_test_or_an_attack(threat: list[str]) -> None:
    names = [name for name in re.findall(r"`([^`]+)`", threat[2]) if ".py" not in name]
    assert set(names) <= set(ATTACKS)
    assert threat[2] or threat[1].startswith("nothing")
