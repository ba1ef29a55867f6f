"""Run the processes that tests kill: `mosq pipeline run`, one that compacts all the time, and a receiver.

Each continues where it was when it is started again.

    python -m tests.pipeline.processes compacting SETTINGS
    python -m tests.pipeline.processes receiver OPTIONS        a JSON file; spools and never acknowledges
"""

from __future__ import annotations

import contextlib
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
    import random
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]


def descendants(pid: int) -> Iterator[int]:
    """Return the descendants of a living process: workers of Spark are in process groups of their own."""
    for task in Path("/proc", str(pid), "task").glob("*/children"):
        for child in task.read_text().split():
            yield int(child)
            yield from descendants(int(child))


class Killed:
    """Control a process that is killed with all its descendants. `module`: the argument of `python -m`."""

    def __init__(self, module: str, *args: Path | str) -> None:
        self.argv = [sys.executable, "-m", module, *map(str, args)]
        self.process: subprocess.Popen[bytes] | None = None
        self.stderr: IO[bytes] = tempfile.TemporaryFile()     # noqa: SIM115 - closed by `close`, or goes with this

    def start(self) -> None:
        self.process = subprocess.Popen(self.argv, cwd=ROOT, start_new_session=True, stdout=subprocess.DEVNULL, stderr=self.stderr)

    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def stderr_text(self) -> str:
        """Return its output on stderr, over all its runs."""
        self.stderr.seek(0)
        return self.stderr.read().decode(errors="replace")

    def kill(self) -> None:
        assert self.process is not None
        assert self.alive(), f"ended by itself: {self.stderr_text()}"
        pids = [self.process.pid]
        try:
            pids += descendants(self.process.pid)
        except FileNotFoundError:       # a process has ended in between
            pass
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait()

    def kill_alone(self) -> None:
        """Kill the process; its descendants go on until they see that it is gone."""
        assert self.process is not None
        assert self.alive(), f"ended by itself: {self.stderr_text()}"
        self.process.kill()
        self.process.wait()

    def kill_part(self, program: str, dice: random.Random | None = None) -> bool:
        """Kill a descendant that runs this program (the first one, or one at random); return False if there is none now."""
        assert self.process is not None
        assert self.alive(), f"ended by itself: {self.stderr_text()}"
        found = []
        with contextlib.suppress(OSError):      # a process has ended in between
            found = [pid for pid in descendants(self.process.pid) if Path(f"/proc/{pid}/comm").read_text().startswith(program)]
        if not found:
            return False
        os.kill(found[0] if dice is None else dice.choice(found), signal.SIGKILL)
        return True

    def orphan(self) -> list[int]:
        """Stop all descendants, kill the process itself, and return the descendants, which live on."""
        assert self.process is not None
        assert self.alive(), f"ended by itself: {self.stderr_text()}"
        pids = list(descendants(self.process.pid))
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        self.process.kill()
        self.process.wait()
        return pids

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
    """Compact whenever there are two files: a kill at a random moment hits a compaction, or the time just before one."""
    from mosq.pipeline import MosqPipelineError, settings
    from mosq.pipeline.runs import tending

    found = settings.load(file)
    while True:
        try:
            merged = any("merged" in line for line in list(tending.compact_all(found, 2)))
        except MosqPipelineError as error:      # the driver has not created the tables yet, or commits all the time
            print(error, file=sys.stderr)
            merged = False
        if not merged:
            time.sleep(0.1)     # a loop without a pause would use a whole core


def receiver(options: Path) -> None:
    from mosq.pipeline.mqtt.options import ReadOptions
    from mosq.pipeline.mqtt.receiver import Receiver

    class Silent(Receiver):
        def acknowledge(self, items: list[object]) -> None:
            """Acknowledge nothing, as if the process was killed just before."""

    Silent(ReadOptions(json.loads(options.read_text()))).start()
    signal.pause()


if __name__ == "__main__":
    {"compacting": compacting, "receiver": receiver}[sys.argv[1]](Path(sys.argv[2]))
