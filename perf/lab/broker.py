"""Start one broker for one run, on its own core and in its own folder, wait for it, and remove it afterwards."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

from mosq.tools.bench.started import free_port
from mosq.tools.tied import tied
from perf.lab.peers import made

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perf.lab.peers import Found

CONNECT = b"\x10\x11\0\x04MQTT\x04\x02\0\x0a\0\x05mlab0"
STOP_S = 10.0
OWN_FOLDERS = ("etc", "data", "log")        # real folders of a shadow; all others are links


class NotThereError(Exception):
    """State that the broker did not start, or does not answer."""


class Broker:
    """Run a broker for the block; `pid` is the process that listens. Raises NotThereError."""

    def __init__(self, found: Found, flags: tuple[str, ...] = (), *, core: int | None = None, transport: str = "tcp",
                 durable: bool = False, cert: str = "", key: str = "") -> None:
        self.found, self.core, self.transport = found, core, transport
        self.what = {"flags": flags, "transport": transport, "durable": durable, "cert": cert, "key": key}
        self.host, self.port, self.pid = "127.0.0.1", 0, 0

    def __enter__(self) -> Self:
        self.folder = tempfile.TemporaryDirectory(prefix="mosq-lab-", ignore_cleanup_errors=True)
        try:
            self._start(Path(self.folder.name))
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self, folder: Path) -> None:
        self.port = free_port()
        one = made(self.found, port=self.port, folder=folder, **self.what)  # type: ignore[arg-type]
        if self.found.peer.shadow:
            _shadow(self.found.program, folder)
        path = folder / self.found.peer.file
        path.parent.mkdir(exist_ok=True)
        path.write_text(one.text)
        self.log = folder / "output"
        with self.log.open("wb") as output, on_core(self.core):
            try:
                self.process = subprocess.Popen(
                    tied(one.command), cwd=folder,
                    env={**os.environ, **one.environment}, stdin=subprocess.DEVNULL, stdout=output,
                    stderr=subprocess.STDOUT, start_new_session=True)
            except OSError as error:
                raise NotThereError(f"{self.found.name} cannot be started: {error.strerror}") from None
        limit_s = self.found.peer.start_s
        end = time.monotonic() + limit_s
        while not answers(self.host, self.port, self.transport):
            if self.process.poll() is not None:
                raise NotThereError(f"{self.found.name} did not start: {self.ended()}")
            if time.monotonic() > end:
                raise NotThereError(f"{self.found.name} does not answer after {limit_s:g} s{self._last()}")
            time.sleep(0.01)
        self.pid = listener(self.port, self.process.pid) or self.process.pid

    def ended(self) -> str:
        """Return how the broker ended by itself; "" while it runs."""
        status = self.process.poll()
        if status is None:
            return ""
        how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        return how + self._last()

    def _last(self) -> str:
        with contextlib.suppress(OSError):
            lines = self.log.read_text(errors="replace").strip().splitlines()
            if lines:
                return f"; its last line: {lines[-1][:200]}"
        return ""

    def __exit__(self, *_: object) -> None:
        if hasattr(self, "process"):
            for how in (signal.SIGTERM, signal.SIGKILL):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self.process.pid, how)    # the broker's own children end with it
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(STOP_S)
        self.folder.cleanup()


class RunningBroker:
    """Represent a broker that runs already."""

    def __init__(self, name: str, host: str, port: int) -> None:
        self.name, self.host, self.port, self.pid = name, host, port, 0

    def __enter__(self) -> Self:
        if not answers(self.host, self.port, "ws", 5.0):
            raise NotThereError(f"{self.name}: no broker answers at {self.host}:{self.port}")
        return self

    def ended(self) -> str:
        return ""

    def __exit__(self, *_: object) -> None:
        pass


# ---------------------------------------------------------------- helpers

def answers(host: str, port: int, transport: str, limit_s: float = 1.0) -> bool:
    """Return whether the port accepts connections; over plain TCP also whether a CONNECT gets an answer, even a
    refusal.
    """
    try:
        with socket.create_connection((host, port), limit_s) as sock:
            if transport == "tcp":
                sock.sendall(CONNECT)
                return sock.recv(1) == b"\x20"
            return True
    except OSError:
        return False


@contextlib.contextmanager
def on_core(core: int | None) -> Iterator[None]:
    """Keep processes that the block starts on this core."""
    before = os.sched_getaffinity(0)
    try:
        if core is not None:
            os.sched_setaffinity(0, {core})
        yield
    finally:
        os.sched_setaffinity(0, before)


def listener(port: int, leader: int) -> int:
    """Return the process that listens at this port in the session of the leader; 0 if unknown.

    A start script must not be measured instead of the broker.
    """
    wanted = set()
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in Path("/proc/net", name).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                    wanted.add(f"socket:[{fields[9]}]")
    for folder in (Path(f"/proc/{leader}"), *Path("/proc").glob("[0-9]*")):
        with contextlib.suppress(OSError, ValueError):
            pid = int(folder.name)
            if os.getsid(pid) == leader and any(os.readlink(one) in wanted for one in (folder / "fd").iterdir()):
                return pid
    return 0


def _shadow(program: Path, folder: Path) -> None:
    """Link the folder of a program that reads its configuration beside itself; the folders it writes are real."""
    for one in program.resolve().parents[1].iterdir():
        if one.name == "bin":
            (folder / "bin").mkdir()
            for script in one.iterdir():
                (folder / "bin" / script.name).symlink_to(script)
        elif one.name not in OWN_FOLDERS:
            (folder / one.name).symlink_to(one)
    for name in OWN_FOLDERS:
        (folder / name).mkdir()
