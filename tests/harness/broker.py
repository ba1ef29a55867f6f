"""Start and stop a real broker process on a free loopback port.

The command is `$MOSQ_BROKER` (split as a shell does), by default this checkout's `python -m mosq`; `-c FILE` is added.
A start waits for the port, never for a fixed time. `Brokers` keeps one process for each configuration for a whole test session.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from mosq.tools.bench.started import free_port as free_port       # tests that start brokers import it from here
from tests.harness.effort import TIMEOUT_S

ROOT = Path(__file__).resolve().parents[2]


def command() -> list[str]:
    return shlex.split(os.environ.get("MOSQ_BROKER", "")) or [sys.executable, "-m", "mosq"]


def is_reference() -> bool:
    """Return True if the tables run against Mosquitto itself, which differs in a few known places."""
    return "mosquitto" in Path(command()[0]).name


def has_workers() -> bool:
    """Return True if the broker under test has several workers (`cluster_local`)."""
    return "--workers" in os.environ.get("MOSQ_BROKER", "")


def is_running(pid: int) -> bool:
    """Return whether a thread of the process runs. A zombie may have threads that still hold files."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state not in "ZX" or len(os.listdir(f"/proc/{pid}/task")) > 1
    except (FileNotFoundError, ProcessLookupError):
        return False


class Broker:
    """Run one broker process. `config` may hold {port} and {dir}; a `config` without `listener` gets one in front."""

    argv: list[str] | None = None       # command of another broker than the one under test

    def __init__(self, config: str, files: dict[str, str] | None = None, command: list[str] | None = None,
                 env: dict[str, str] | None = None) -> None:
        self.command, self.env = command, env or {}
        self.port = free_port()
        self.dir = Path(tempfile.mkdtemp(prefix="mosq-test-"))
        self.dir.chmod(0o777)  # a broker started as root may change to another user
        for name, content in (files or {}).items():
            path = self.dir / name
            path.write_text(content)
            path.chmod(0o644)
        if "listener" not in config:
            config = "listener {port} 127.0.0.1\nallow_anonymous true\n" + config
        self.config = self.dir / "mosq.conf"
        self.config.write_text(config.replace("{port}", str(self.port)).replace("{dir}", str(self.dir)))
        self.config.chmod(0o644)
        self.process: subprocess.Popen[bytes] | None = None

    def spawn(self) -> int:
        """Start the process without a wait. Return the length of its log before."""
        path = os.pathsep.join(p for p in (str(ROOT), os.environ.get("PYTHONPATH", "")) if p)
        with (self.dir / "log").open("ab") as log:
            said_before = log.tell()
            self.process = subprocess.Popen(
                [*(self.argv or self.command or command()), "-c", str(self.config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": path, **self.env},
            )
        return said_before

    def start(self) -> Broker:
        said_before = self.spawn()
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                break
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"the broker did not start (status {self.process.poll()}):\n{self.log()}") from None
                time.sleep(0.005)
        # wait for the lines of the start too, if the broker logs to this file and the configuration selects no lines
        while "log_" not in self.config.read_text() and " running\n" not in self.log()[said_before:] and self.alive():
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.002)
        return self

    def log(self) -> str:
        return (self.dir / "log").read_text(errors="replace")

    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def processes(self) -> list[int]:
        """Return the broker's process, and its workers."""
        assert self.process is not None
        pid = self.process.pid
        return [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]

    def send_signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def die(self) -> None:
        """Kill the broker with its workers, and wait until none of them holds a port or a file."""
        assert self.process is not None
        # the parent last, and it must not start others: at its end the system lets a stopped worker go on, which would act before it is killed
        os.kill(self.process.pid, signal.SIGSTOP)
        found = self.processes()
        for pid in (*found[1:], found[0]):
            os.kill(pid, signal.SIGKILL)
        self.process.wait()
        deadline = time.monotonic() + TIMEOUT_S
        while any(is_running(pid) for pid in found[1:]):
            assert time.monotonic() < deadline
            time.sleep(0.002)

    def stop(self) -> int:
        """Stop the broker; return its exit status. Kill a broker that does not stop, and raise."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise RuntimeError(f"the broker ignored SIGTERM for {TIMEOUT_S} s") from None

    def restart(self) -> Broker:
        self.stop()
        return self.start()

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.stop()
        shutil.rmtree(self.dir, ignore_errors=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class Brokers:
    """Keep one running broker for each configuration, from its first use on. Several threads may use it."""

    def __init__(self) -> None:
        self._running: dict[str, Broker | RuntimeError] = {}
        self._lock = threading.Lock()

    def get(self, config: str, files: dict[str, str] | None = None) -> Broker:
        key = config + repr(sorted((files or {}).items()))
        with self._lock:
            if key not in self._running:
                try:
                    self._running[key] = Broker(config, files).start()
                except RuntimeError as failed:  # stored, so that fifty cases do not all wait for the same failure
                    self._running[key] = failed
            broker = self._running[key]
        if isinstance(broker, RuntimeError):
            raise broker
        assert broker.alive(), f"the broker died (status {broker.process and broker.process.poll()}):\n{broker.log()}"
        return broker

    def close(self) -> None:
        for broker in self._running.values():
            if isinstance(broker, Broker):
                broker.close()
