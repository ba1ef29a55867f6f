"""Test that the reason codes of the control plane are those of the data plane."""

from __future__ import annotations

import re
from pathlib import Path

from mosq import reason_codes

HEADER = Path(__file__).resolve().parents[2] / "cext/codec/reason.pxd"


def test_both_planes_have_the_same_codes() -> None:
    there = {name: int(code, 16) for name, code in re.findall(r"^ +RC_(\w+) = (0x\w+)$", HEADER.read_text(), re.MULTILINE)}
    here = {name: value for name, value in vars(reason_codes).items() if isinstance(value, int)}
    assert here == there
    assert len(here) > 30


def test_each_error_has_a_text() -> None:
    assert set(reason_codes.WORDS) == {value for value in vars(reason_codes).values() if isinstance(value, int) and value >= 0x80}
