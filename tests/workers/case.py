"""Run a broker with several workers, and find out which of them has a connection."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from tests.harness.broker import Broker
from tests.harness.packets import Connack, Connect, Pingreq, Pingresp
from tests.harness.wire import Wire

WAIT_S = 20.0
ESTABLISHED = "01"              # state in /proc/net/tcp
CONFIG = "cluster_local {n}\nuser {user}\n"


T = TypeVar("T")


def until(what: Callable[[], T], why: Callable[[], str] = str) -> T:
    """Return the first result that is true."""
    deadline = time.monotonic() + WAIT_S
    while not (result := what()):
        assert time.monotonic() < deadline, why()
        time.sleep(0.005)
    return result


class Workers(Broker):
    """A broker with workers; `n` of them."""

    def __init__(self, n: int, config: str = "", files: dict[str, str] | None = None, user: str = "root", env: dict[str, str] | None = None) -> None:
        super().__init__(CONFIG.format(n=n, user=user) + config, files, env=env)
        self.opened: list[Wire] = []
        self.named = 0

    def pids(self) -> dict[int, int]:
        """Return the process of each worker, by its number."""
        assert self.process is not None
        found = {}
        for entry in Path("/proc").iterdir():
            try:
                name, rest = (entry / "stat").read_text().split("(", 1)[1].rsplit(")", 1)
            except (OSError, IndexError):
                continue
            match = re.fullmatch(r"mosq: worker (\d+)", name)
            if match and int(rest.split()[1]) == self.process.pid and rest.split()[0] != "Z":
                found[int(match[1])] = int(entry.name)
        return found

    def children(self) -> list[int]:
        """Return all processes of the parent, also those that have no name yet."""
        assert self.process is not None
        return [int(pid) for pid in Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()]

    def holder(self, client: Wire) -> int:
        """Return the number of the worker that has the client's connection."""
        sock = client.sock
        port = getattr(sock, "sock", sock).getsockname()[1]

        def holders() -> list[int]:
            own = {name for local, remote, name in connections() if (local, remote) == (self.port, port)}
            return [number for number, pid in self.pids().items() if own & sockets(pid)]

        return until(holders)[0]

    def kill(self, number: int, by: int = signal.SIGKILL) -> int:
        """Send a signal to a worker; return its process."""
        pid = self.pids()[number]
        os.kill(pid, by)
        if by == signal.SIGSTOP:
            until(lambda: Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T")
        return pid

    def wait_log(self, text: str, times: int = 1) -> None:
        until(lambda: self.log().count(text) >= times, self.log)

    def connect(self, client_id: str, level: int = 5, **how: object) -> Wire:
        """Connect a client, which must be accepted."""
        client = Wire(self.port, level)
        self.opened.append(client)
        client.send(Connect(client_id, **how))      # type: ignore[arg-type]
        accepted(client)
        return client

    def id_on(self, number: int, prefix: str = "id") -> str:
        """Return a client id that belongs to this worker."""
        for _ in range(1000):
            self.named += 1
            client = self.connect(f"{prefix}{self.named}")
            at = self.holder(client)
            client.close()
            if at == number:
                return f"{prefix}{self.named}"
        raise AssertionError("no client id belongs to this worker")

    def close(self) -> None:
        for client in self.opened:
            client.close()
        super().close()


def accepted(client: Wire) -> Connack:
    answer = client.read_packet()
    assert isinstance(answer, Connack) and answer.rc == 0, answer
    return answer


def pinged(client: Wire) -> None:
    """Return when the broker has read all that the client sent before; not if it still waits for an acknowledgement."""
    client.send(Pingreq())
    client.expect_packet(Pingresp())


def connections() -> set[tuple[int, int, str]]:
    """Return the local port, the remote port and the socket, as `sockets` names it, of each established connection."""
    found = set()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == ESTABLISHED:            # an earlier connection of the same ports may be there, in another state
            found.add((int(fields[1][-4:], 16), int(fields[2][-4:], 16), f"socket:[{fields[9]}]"))
    return found


def sockets(pid: int) -> set[str]:
    found = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found.add(os.readlink(entry))
        except OSError:
            continue
    return found
