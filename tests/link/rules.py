"""The rules of links that a build for tests can switch off: their names and numbers, read from cext/link/rules.pxd."""

from __future__ import annotations

import re
from pathlib import Path

_SOURCE = Path(__file__).resolve().parents[2] / "cext/link/rules.pxd"
RULES = {name.lower(): int(number) for name, number in re.findall(r"^    RULE_(\w+) = (\d+)", _SOURCE.read_text(), re.MULTILINE)}

# Random schedules reach the scenarios of these rules too seldom (less than once in 100,000): tests/link/test_receiver.py plays them.
TOO_RARE = {"identity_batch", "stale_run", "walk_committed"}
