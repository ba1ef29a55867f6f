"""The rules of links that a build for tests can switch off: their names and numbers, read from cext/link/rules.pxd."""

from __future__ import annotations

import re
from pathlib import Path

_SOURCE = Path(__file__).resolve().parents[2] / "cext/link/rules.pxd"
RULES = {name.lower(): int(number) for name, number in re.findall(r"^    RULE_(\w+) = (\d+)", _SOURCE.read_text(), re.MULTILINE)}

# Rules without which no schedule of a million was seen to fail: their scenario is too rare for random steps.
UNSEEN: set[str] = set()
