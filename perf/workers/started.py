"""Run a broker with several workers for a measurement, and name clients by the worker that serves them."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from mosq.engine import worker_place
from mosq.tools.bench.started import CONFIG, free_port
from mosq.tools.bench.usage import children, used
from mosq.tools.tied import tied
from perf.watched import wait_for_slow

if TYPE_CHECKING:
    from collections.abc import Iterator

SETTLE_S = 0.5                  # after the start: modules that are loaded after the broker listens


class Running:
    """A broker that runs; `key` names the worker of a client id, and is empty with one process."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, workers: int, key: bytes) -> None:
        self.process, self.port, self.workers, self.key = process, port, workers, key

    @property
    def pid(self) -> int:
        return self.process.pid

    def pids(self) -> list[int]:
        """Return the processes that serve clients: the workers, or the only one."""
        return sorted(children(self.pid)) if self.workers > 1 else [self.pid]

    def cpu_s(self) -> list[float]:
        """Return the CPU of each process of `pids`, and last that of the parent."""
        return [used(pid).cpu_s for pid in self.pids()] + ([used(self.pid).cpu_s] if self.workers > 1 else [])

    def names(self, places: list[int], prefix: str = "c") -> list[str]:
        """Return different client ids; the one at i belongs to the worker places[i] (0 = the first)."""
        fresh: list[Iterator[str]] = [self._of(place, prefix) for place in range(self.workers)]
        return [next(fresh[place % self.workers]) for place in places]

    def _of(self, place: int, prefix: str) -> Iterator[str]:
        for n in itertools.count():
            name = f"{prefix}-{n}"
            if self.workers == 1 or worker_place(self.key, name.encode(), self.workers) == place:
                yield name


@contextlib.contextmanager
def broker(workers: int, more: str = "", sys_s: int = 0) -> Iterator[Running]:
    """Run mosq of this checkout with a store; all workers are linked when the block begins. `more`: options of the
    listener; sys_s: seconds between updates of $SYS, 0 = none."""
    with tempfile.TemporaryDirectory(prefix="mosq-workers-") as folder:
        root = Path(folder)
        port, user = free_port(), "user root\n" if os.geteuid() == 0 else ""
        config = root / "mosq.conf"
        config.write_text(f"{user}cluster_local {workers}\nsys_interval {sys_s}\npersistence true\n"
                          f"persistence_location {root}/\n{CONFIG.format(port=port)}{more}")
        process = subprocess.Popen(tied([sys.executable, "-m", "mosq", "-c", str(config)]), stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL)
        try:
            wait_for_slow(port)         # a worker accepts when it knows the routes of all others
            time.sleep(SETTLE_S)
            yield Running(process, port, workers, _key(root) if workers > 1 else b"")
        finally:
            process.terminate()
            process.wait()


def _key(root: Path) -> bytes:
    file = next(root.glob("*.store/workers"))
    return bytes.fromhex(json.loads(file.read_text())["key"])
