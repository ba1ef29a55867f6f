"""Keep the figures of a measurement in a file, with the machine and the commit."""

from __future__ import annotations

import datetime
import json
import subprocess
from pathlib import Path
from typing import Any

from mosq.tools.bench.run import machine
from perf.results import compact


def keep(file: Path, rows: list[dict[str, Any]]) -> None:
    """Write the rows of a measurement."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="minutes")
    about = {"machine": machine(), "commit": commit(), "measured": now, "rows": rows}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(compact(about), indent=1) + "\n")


def commit() -> str:
    done = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=Path(__file__).parent, capture_output=True,
                          text=True)
    return done.stdout.strip()
