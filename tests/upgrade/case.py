"""Start a broker that is upgraded while it runs: its process changes, and the pid file has the present one."""

from __future__ import annotations

import contextlib
import os
import signal
import ssl
import time

from mosq.server.signals import UPGRADE
from tests.harness.broker import Broker
from tests.harness.effort import TIMEOUT_S
from tests.harness.wire import Wire

MEMORY = "user root\npid_file {dir}/pid\n"
STORE = MEMORY + "persistence true\npersistence_location {dir}/\n"


class Upgraded(Broker):
    """Follow the broker from process to process."""

    websocket = False

    def wire(self, level: int = 5, port: int = 0, websocket: bool = False, tls: ssl.SSLContext | None = None) -> Wire:
        """Connect a socket; the end of the test closes it."""
        if not hasattr(self, "wires"):
            self.wires: list[Wire] = []
        self.wires.append(Wire(port or self.port, level, websocket=websocket or self.websocket, tls=tls))
        return self.wires[-1]

    def pid(self) -> int:
        return int((self.dir / "pid").read_text())

    def wait_log(self, text: str, times: int = 1, unless: str = "", unless_times: int = 0) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while self.log().count(text) < times:
            failed = unless and self.log().count(unless) > unless_times
            assert time.monotonic() < deadline and not failed, f"no {text!r} in the log:\n{self.log()[-3000:]}"
            time.sleep(0.002)

    def begin(self) -> int:
        """Ask the broker to upgrade; return the process that it is now."""
        before = self.pid()
        os.kill(before, UPGRADE)
        return before

    def upgrade(self) -> int:
        """Upgrade, and wait until the new process has taken over. Return its id."""
        done = self.log().count("has taken over")
        failures = self.log().count("This process goes on.")
        running = self.log().count(" running\n")
        before = self.begin()
        self.wait_log("has taken over", done + 1, "This process goes on.", failures)
        self.wait_log(" running\n", running + 1)
        self.wait_end(before)
        assert self.pid() != before
        return self.pid()

    def fail(self) -> None:
        """Ask for an upgrade that must fail, and wait until the old process goes on."""
        done = self.log().count("This process goes on.")
        before = self.begin()
        self.wait_log("This process goes on.", done + 1)
        assert self.pid() == before

    def wait_end(self, pid: int) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while is_running(pid):
            assert time.monotonic() < deadline, f"process {pid} did not end"
            time.sleep(0.002)

    def close(self) -> None:
        for wire in getattr(self, "wires", ()):
            wire.close()
        with contextlib.suppress(FileNotFoundError, ValueError, ProcessLookupError):
            pid = self.pid()
            os.kill(pid, signal.SIGTERM)
            self.wait_end(pid)
        if self.process is not None:
            self.process.wait(TIMEOUT_S)
        super().close()


def is_running(pid: int) -> bool:
    """Return whether the process runs; one that has ended and was not waited for does not."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False
