"""Start Redis servers and Sentinels for tests. Each has a free port, and its files in a folder of its own."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Self

from mosq.tools.tied import tied
from tests.harness.broker import free_port
from tests.harness.faults import until


class RedisServer:
    """A redis-server, which ends with the test's process. Each command is in its append-only file before the reply, so that a
    kill loses nothing. `options`: lines of its configuration."""

    defaults: tuple[str, ...] = ("appendonly yes", "appendfsync no", "repl-diskless-sync yes", "repl-diskless-sync-delay 0")
    arguments: tuple[str, ...] = ()
    host = "127.0.0.1"                  # where the test reaches it
    before: tuple[str, ...] = ()        # words before the command
    process: subprocess.Popen[bytes]

    def __init__(self, *options: str, password: str | None = None) -> None:
        self.password = password
        self.port = 0                   # the first start chooses it
        self.folder = Path(tempfile.mkdtemp(prefix="mosq-redis-"))
        self.conf = self.folder / "redis.conf"
        lines = ["bind 127.0.0.1", f"dir {self.folder}", 'save ""', *self.defaults, *options]
        self.conf.write_text("\n".join([*lines, f"requirepass {password}" if password else "", ""]))

    def start(self) -> None:
        """Start it with the files of its folder, and return when it answers. If another process has its port, try again: the
        first start takes another port, and a later one the same."""
        port = self.port
        until(lambda: self._has_started(port or free_port()))

    def _has_started(self, port: int) -> bool:
        self.port, log = port, self.folder / "log"
        with log.open("wb") as out:
            self.process = subprocess.Popen(tied([*self.before, "redis-server", str(self.conf), "--port", str(port), *self.arguments]),
                                            stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        until(lambda: self.process.poll() is not None or self.answers())
        assert self.process.poll() is None or "Address already in use" in log.read_text(), log.read_text()
        return self.process.poll() is None

    def answers(self) -> bool:
        """Return whether this process answers, and no other one on its port."""
        reply = self.ask("INFO server", "PING")
        return f"process_id:{self.process.pid}\r\n".encode() in reply and reply.endswith(b"+PONG\r\n")

    def ask(self, *lines: str) -> bytes:
        """Send commands over a connection of their own, and return all replies as they are; none if it does not answer."""
        login = [f"AUTH {self.password}"] if self.password else []
        with suppress(OSError), socket.create_connection((self.host, self.port), timeout=1) as sock, sock.makefile("rb") as replies:
            sock.sendall("".join(f"{line}\r\n" for line in [*login, *lines]).encode())
            sock.shutdown(socket.SHUT_WR)
            return replies.read()
        return b""

    def kill(self) -> None:
        """End it as a power cut does, but for the page cache; also if it is paused or has ended."""
        self.process.kill()
        self.process.wait()

    def pause(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


class Sentinel(RedisServer):
    """A Sentinel that knows a primary by a name. `quorum`: Sentinels that must agree about its death; `options`: those for this primary,
    such as `failover_timeout=5000`."""

    defaults = ()
    arguments = ("--sentinel",)

    def __init__(self, primary: RedisServer, name: str, quorum: int = 1, **options: int) -> None:
        super().__init__(f"sentinel monitor {name} 127.0.0.1 {primary.port} {quorum}",
                         *(f"sentinel {option.replace('_', '-')} {name} {value}" for option, value in options.items()))
        self.name = name

    def knows_a_replica(self) -> bool:
        return self.knows(1)

    def knows(self, replicas: int, others: int = 0) -> bool:
        """Return whether it knows so many replicas, and so many other Sentinels."""
        return (self.ask(f"SENTINEL REPLICAS {self.name}").startswith(b"*%d\r\n" % replicas)
                and self.ask(f"SENTINEL SENTINELS {self.name}").startswith(b"*%d\r\n" % others))
