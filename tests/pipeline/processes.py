"""What is killed in tests: a driver that appends streams to a table, and a receiver. Each is a process of its own and goes on
where it was when it is started again.

    python -m tests.pipeline.processes driver JOURNAL TABLE CHECKPOINT
    python -m tests.pipeline.processes receiver OPTIONS     a JSON file; spools and never acknowledges
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

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
    """A process that is started, and killed with all that it has started."""

    def __init__(self, role: str, *args: Path) -> None:
        self.argv = [sys.executable, "-m", "tests.pipeline.processes", role, *map(str, args)]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.process = subprocess.Popen(self.argv, cwd=ROOT, start_new_session=True, stderr=subprocess.DEVNULL)

    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def kill(self) -> None:
        assert self.process is not None
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


def driver(journal: Path, table: Path, checkpoint: Path) -> None:
    from mosq.pipeline.session import spark_session
    from mosq.pipeline.tables import append

    spark = spark_session("killed", master="local[2]", conf={
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC", "spark.local.dir": str(table.parent / "local")})
    stream = spark.readStream.format("mosq").option("maxRecordsPerPartition", "2000").load(str(journal))
    append(stream, table, checkpoint, trigger="0 seconds").awaitTermination()


def receiver(options: Path) -> None:
    from mosq.pipeline.mqtt.options import ReadOptions
    from mosq.pipeline.mqtt.receiver import Receiver

    class Silent(Receiver):
        def acknowledge(self, items: list[object]) -> None:
            """As if it was killed just before."""

    Silent(ReadOptions(json.loads(options.read_text()))).start()
    signal.pause()


if __name__ == "__main__":
    {"driver": driver, "receiver": receiver}[sys.argv[1]](*map(Path, sys.argv[2:]))     # type: ignore[operator]
