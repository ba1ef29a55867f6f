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
    """Return the descendants of a process, as far as they are still there: workers of Spark are in process groups of their own."""
    children: list[str] = []
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):        # a process has ended in between
        for task in Path("/proc", str(pid), "task").glob("*/children"):
            children += task.read_text().split()
    for child in children:
        yield int(child)
        yield from descendants(int(child))


def command_line(pid: int) -> str:
    """Return program and arguments of a process; nothing if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def signalled(pid: int, number: signal.Signals) -> bool:
    """Send a signal; return False if the process has ended."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


class Killed:
    """Control a process that is killed with all its descendants. `module`: the argument of `python -m`."""

    def __init__(self, module: str, *args: Path | str) -> None:
        self.argv = [sys.executable, "-m", module, *map(str, args)]
        self.process: subprocess.Popen[bytes] | None = None
        self.stderr: IO[bytes] | None = None

    def start(self) -> None:
        self._forget_stderr()
        self.stderr = tempfile.TemporaryFile()      # noqa: SIM115 - closed by `close`, or goes with this
        self.process = subprocess.Popen(self.argv, cwd=ROOT, start_new_session=True, stdout=subprocess.DEVNULL, stderr=self.stderr)

    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def stderr_text(self) -> str:
        """Return what this run has written to stderr: the JVM of an earlier one may still print that its driver is gone."""
        assert self.stderr is not None
        self.stderr.seek(0)
        return self.stderr.read().decode(errors="replace")

    def running(self) -> subprocess.Popen[bytes]:
        assert self.process is not None
        assert self.alive(), f"ended by itself: {self.stderr_text()}"
        return self.process

    def kill(self) -> None:
        process = self.running()
        for pid in [process.pid, *descendants(process.pid)]:
            signalled(pid, signal.SIGKILL)
        process.wait()

    def kill_alone(self) -> None:
        """Kill the process; its descendants go on until they see that it is gone."""
        process = self.running()
        process.kill()
        process.wait()

    def kill_part(self, program: str, dice: random.Random | None = None) -> bool:
        """Kill a descendant that runs this program (the first one, or one at random); return False if there is none now."""
        found = [pid for pid in descendants(self.running().pid) if Path(command_line(pid).partition(" ")[0]).name.startswith(program)]
        return bool(found) and signalled(found[0] if dice is None else dice.choice(found), signal.SIGKILL)

    def orphan(self) -> list[int]:
        """Stop all descendants, kill the process itself, and return the descendants, which live on."""
        pids = list(descendants(self.running().pid))
        for pid in pids:
            signalled(pid, signal.SIGSTOP)
        self.kill_alone()
        return pids

    def __enter__(self) -> Killed:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        if self.alive():
            self.kill()
        self._forget_stderr()

    def _forget_stderr(self) -> None:
        if self.stderr is not None:
            self.stderr.close()
            self.stderr = None


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
