"""Test that the types of log lines of the control plane are those of the data plane."""

from __future__ import annotations

import re
from pathlib import Path

from mosq import log_types

HEADER = Path(__file__).resolve().parents[2] / "cext/broker/core/log.pxd"


def test_both_planes_have_the_same_bits() -> None:
    types = re.findall(r"^ +LOG_([A-Z]+) = (\d+)\b", HEADER.read_text(), re.MULTILINE)
    assert {name.lower(): int(bit) for name, bit in types} == log_types.LOG_TYPES
    assert all(getattr(log_types, name.upper()) == bit for name, bit in log_types.LOG_TYPES.items())
