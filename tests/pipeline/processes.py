"""What is killed in tests: `mosq pipeline run`, somebody who compacts all the time, and a receiver. Each is a process of its own
and goes on where it was when it is started again.

    python -m tests.pipeline.processes compacting SETTINGS
    python -m tests.pipeline.processes receiver OPTIONS     a JSON file; spools and never acknowledges
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]


def descendants(pid: int) -> Iterator[int]:
    """Of a process that lives: workers of Spark are in process groups of their own."""
    for task in Path("/proc", str(pid), "task").glob("*/children"):
        for child in task.read_text().split():
            yield int(child)
            yield from descendants(int(child))


class Killed:
    """A process that is started, and killed with all that it has started. `module`: what `python -m` runs."""

    def __init__(self, module: str, *args: Path | str) -> None:
        self.argv = [sys.executable, "-m", module, *map(str, args)]
        self.process: subprocess.Popen[bytes] | None = None
        self.stderr: IO[bytes] = tempfile.TemporaryFile()     # noqa: SIM115 - closed by `close`, or goes with this

    def start(self) -> None:
        self.process = subprocess.Popen(self.argv, cwd=ROOT, start_new_session=True, stdout=subprocess.DEVNULL, stderr=self.stderr)

    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def said(self) -> str:
        """On stderr, in all its lives."""
        self.stderr.seek(0)
        return self.stderr.read().decode(errors="replace")

    def kill(self) -> None:
        assert self.process is not None
        assert self.alive(), f"ended by itself: {self.said()}"
        pids = [self.process.pid]
        try:
            pids += descendants(self.process.pid)
        except FileNotFoundError:       # one has ended meanwhile
            pass
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait()

    def __enter__(self) -> Killed:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        if self.alive():
            self.kill()
        self.stderr.close()


def compacting(file: Path) -> None:
    """Whenever there are two batches: at a random moment it is in the middle of it, or about to begin."""
    from mosq.pipeline.runs import compaction
    from mosq.pipeline import settings

    found = settings.load(file)
    while True:
        if not any("merged" in line for line in list(compaction.compact_all(found, 2))):
            time.sleep(0.1)     # whoever looks all the time has a core for himself


def receiver(options: Path) -> None:
    from mosq.pipeline.mqtt.options import ReadOptions
    from mosq.pipeline.mqtt.receiver import Receiver

    class Silent(Receiver):
        def acknowledge(self, items: list[object]) -> None:
            """As if it was killed just before."""

    Silent(ReadOptions(json.loads(options.read_text()))).start()
    signal.pause()


if __name__ == "__main__":
    {"compacting": compacting, "receiver": receiver}[sys.argv[1]](Path(sys.argv[2]))
