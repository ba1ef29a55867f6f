"""Start redis-server and Sentinels for tests, on free ports, with their files in a folder of the test."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from mosq.tools.tied import tied
from tests.harness.broker import free_port
from tests.harness.effort import TIMEOUT_S


def wait_for(condition: Callable[[], object], what: str) -> None:
    """Ask again and again until something holds."""
    until_s = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < until_s, f"it did not happen in time: {what}"
        time.sleep(0.02)


class Redis:
    """A redis-server, or a Sentinel. It ends with the test's process."""

    def __init__(self, folder: Path, *options: str, name: str = "redis", password: str | None = None, port: int = 0) -> None:
        self.folder, self.options, self.password = folder / name, options, password
        self.port = port or free_port()
        self.folder.mkdir()
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.kill()

    def start(self) -> None:
        """Start it, with the data of its folder; return when it answers."""
        command = ["redis-server", *self.config(), "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder),
                   "--logfile", "log", *self.options]
        self.process = subprocess.Popen(tied(command), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        wait_for(self.answers, f"redis-server on port {self.port} answers")

    def config(self) -> list[str]:
        return []

    def answers(self) -> bool:
        try:
            return bool(self.client().ping())
        except redis.exceptions.ConnectionError:
            return False

    def client(self) -> redis.Redis:
        return redis.Redis(port=self.port, password=self.password, decode_responses=True, retry=Retry(NoBackoff(), 0), protocol=2,
                           single_connection_client=False, socket_timeout=TIMEOUT_S)

    def kill(self) -> None:
        """End it as a power cut does, but for the page cache."""
        if self.process is not None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait()
            self.process = None

    def pause(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)


class Sentinel(Redis):
    """A Sentinel for one primary with the name `main`."""

    def __init__(self, folder: Path, primary: Redis, name: str) -> None:
        super().__init__(folder, "--sentinel", name=name)
        self.file = self.folder / "sentinel.conf"
        self.file.write_text(f"sentinel monitor main 127.0.0.1 {primary.port} 1\nsentinel down-after-milliseconds main 500\n"
                             "sentinel failover-timeout main 5000\nsentinel resolve-hostnames no\n")

    def config(self) -> list[str]:
        return [str(self.file)]

    def knows(self, replicas: int) -> bool:
        return len(self.client().sentinel_slaves("main")) == replicas
