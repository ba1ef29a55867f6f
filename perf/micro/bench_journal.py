"""Measure a journal stream: the loop's append, the writer's share, and reading as columns.

The times are CPU time, on which other programs have little effect.

    python -m perf.micro.bench_journal [directory]
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

from cext.testing.journal_bench import run
from mosq._core import PyReader

N = 1_000_000
BATCH = 500  # 5 ms at 100 k/s
APPEND_GOAL_NS = 50


def columns(path: Path) -> float:
    """Return rows per second of CPU time."""
    reader = PyReader(path)
    total, start = 0, time.process_time()
    while rows := reader.columns(rows=1 << 16)[0]:
        total += rows
    return total / (time.process_time() - start)


def main() -> None:
    print("| payload | append ns | goal | write ns | B/record | columns, M rows/s |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as folder:
        for payload in (0, 64, 1000):
            path = Path(folder, str(payload))
            n = N if payload < 1000 else N // 4
            append_s, write_s, n_bytes = run(os.fsencode(path), n, payload, BATCH)
            print(
                f"| {payload} | {append_s / n * 1e9:.0f} | {APPEND_GOAL_NS} | {write_s / n * 1e9:.0f} "
                f"| {n_bytes / n:.0f} | {columns(path) / 1e6:.1f} |"
            )


if __name__ == "__main__":
    main()
