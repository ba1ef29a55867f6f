"""Measure the store by itself: append and commit, the writer's time, a restart; beside plain writes of the same bytes.

    python -m perf.micro.bench_store [directory]

The directory (default: a temporary one) is on the measured disk. `table` has the figures of the design's prototype
(docs/adr/0007), on a quiet machine.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

from cext.testing.store_bench import restart, run

BODY = 100
N = 1_000_000
BATCH = 500                     # 5 ms at 100 k/s
TABLE = {"no sync": 8.4e6, "fdatasync": 4.9e6, "writer us": 0.11, "paced writer us": 0.22,
         "B/msg": 142, "restart s": 0.165}


def plain(path: Path, n_bytes: int, sync: bool) -> float:
    """Return seconds for so many bytes in batches, written twice to the same place; only the second time counts."""
    piece, size = bytes(BATCH * (BODY + 20)), 16 << 20
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    for at in range(0, size, len(piece)):
        os.pwrite(fd, piece, at)
    os.fdatasync(fd)
    start = time.perf_counter()
    for at in range(0, n_bytes, len(piece)):
        os.pwrite(fd, piece, at % (size - len(piece)))
        if sync:
            os.fdatasync(fd)
    took = time.perf_counter() - start
    os.close(fd)
    return took


def row(name: str, figure: float, table: float, more: str = "") -> None:
    print(f"| {name} | {figure:,.3g} | {table:,.3g} | {figure / table:.2f} | {more} |")


def main() -> None:
    print("| what | here | table | ratio | |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as folder:
        for sync, name in ((False, "no sync"), (True, "fdatasync")):
            path = Path(folder, name.replace(" ", "-"))
            path.mkdir()
            n = N if not sync else N // 4
            wall, loop, writer, n_bytes = run(os.fsencode(path), n, BODY, BATCH, sync, True)
            floor = plain(Path(folder, "plain"), n_bytes, sync)
            row(f"{name}, msg/s", n / wall, TABLE[name],
                f"loop {loop / n * 1e9:.0f} ns/msg; plain writes of the same bytes take {floor / wall:.2f} of the time")
            row(f"{name}, writer us/msg", writer / n * 1e6, TABLE["writer us"],
                f"{n_bytes / n:.0f} B/msg, {n_bytes / n - BODY:.0f} beyond the payload")
        path = Path(folder, "paced")
        path.mkdir()
        n = 400_000
        _, _, writer, n_bytes = run(os.fsencode(path), n, BODY, 1000, False, True, 0.005)
        row("200 k/s, 5 ms, writer us/msg", writer / n * 1e6, TABLE["paced writer us"])
        row("200 k/s, 5 ms, B/msg", n_bytes / n, TABLE["B/msg"])
        path = Path(folder, "queued")
        path.mkdir()
        run(os.fsencode(path), N, BODY, BATCH, False, False)
        took, records = min(restart(os.fsencode(path)) for _ in range(3))
        assert records == N
        row("restart of 1 M records, s", took, TABLE["restart s"])


if __name__ == "__main__":
    main()
