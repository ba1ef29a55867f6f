"""Start Redis servers, replicas and a Sentinel for tests, each on a free port and in a folder of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from mosq._redis import LogFiles, RedisConnection, RedisError
from tests.harness.broker import free_port
from tests.harness.effort import TIMEOUT_S

if TYPE_CHECKING:
    from mosq._redis import Reply

PLACE_OF_TESTS = "/d"           # the folder of stores in Redis: only a part of names


class Server:
    """A redis-server that writes each command to its append-only file, so that a kill loses nothing. `options`: lines of its
    configuration. `sentinel`: it is a Sentinel."""

    def __init__(self, *options: str, sentinel: bool = False, password: str | None = None, user: str | None = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="mosq-redis-"))
        self.port = free_port()
        self.sentinel, self.password, self.user = sentinel, password, user
        lines = [f"port {self.port}", "bind 127.0.0.1", f"dir {self.folder}", 'save ""', *options]
        if not sentinel:
            lines += ["appendonly yes", "repl-diskless-sync yes", "repl-diskless-sync-delay 0", "repl-timeout 60"]
        self.conf = self.folder / "redis.conf"
        self.conf.write_text("\n".join(lines) + "\n")
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        command = ["redis-server", str(self.conf), *(["--sentinel"] if self.sentinel else [])]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        self.admin = RedisConnection([("127.0.0.1", self.port)], user=self.user, password=self.password)
        wait_until(self.answers)

    def answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.folder / "log").read_text()
        with contextlib.suppress(RedisError):
            return self.admin.call("PING") == b"PONG"
        return False

    def call(self, *words: str | bytes | int) -> Reply:
        return self.admin.call(*words)

    def role(self) -> bytes:
        with contextlib.suppress(RedisError):       # a failover closes all connections
            self.call("PING")
        reply = self.call("ROLE")
        assert isinstance(reply, list)
        assert isinstance(reply[0], bytes)
        return reply[0]

    def replicas_online(self) -> int:
        reply = self.call("INFO", "replication")
        assert isinstance(reply, bytes)
        return reply.count(b"state=online")

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        if self.process is not None:
            self.signal(signal.SIGKILL)
            self.process.wait()
        self.process = None

    def clients(self) -> int:
        """Return the number of connections."""
        reply = self.call("CLIENT", "LIST")
        assert isinstance(reply, bytes)
        return reply.count(b" addr=")

    def cut(self) -> None:
        """Close the connections of all other clients."""
        self.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    def connection(self, timeout_ms: int = 2000) -> RedisConnection:
        return RedisConnection([("127.0.0.1", self.port)], user=self.user, password=self.password, timeout_ms=timeout_ms)

    def files(self, name: str = "log", token: int = 0, replicas: int = 0, timeout_ms: int = 2000) -> LogFiles:
        return LogFiles(self.connection(timeout_ms), name, token, replicas)

    def head(self, name: str = "log") -> dict[bytes, bytes]:
        reply = self.call("HGETALL", f"mosq:{{{name}}}:head")
        assert isinstance(reply, list)
        return dict(zip(reply[::2], reply[1::2], strict=True))     # type: ignore[arg-type]

    def contents(self, name: str = "log") -> int:
        reply = self.call("KEYS", f"mosq:{{{name}}}:f:*")
        assert isinstance(reply, list)
        return len(reply)

    def close(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def wait_until(is_so: object, timeout_s: float = TIMEOUT_S) -> None:
    """Ask again and again, because Redis sends no event for what the tests wait for."""
    assert callable(is_so)
    end = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < end, "it did not happen"
        os.sched_yield()
        time.sleep(0.005)
