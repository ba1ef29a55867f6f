"""Provide engines and connections for the tests of this folder; both end with the test."""

from __future__ import annotations

import signal
import socket
from tests.harness.effort import TIMEOUT_S
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mosq.engine import new_engine
from mosq.log_types import LOG_ALL
from tests.harness.websocket import WebSocket

LOCAL = "127.0.0.1"


class Running:
    """A data plane with one listener (`port`), in a thread."""

    def __init__(self, settings: dict[str, Any], listener: dict[str, Any]) -> None:
        self.settings = {"log_mask": LOG_ALL, **settings}
        self.listener = {"port": 0, "host": LOCAL, "allow_anonymous": True, **listener}
        self.engine: Any = new_engine(self.settings, [self.listener], [{}])
        self.engine.open()
        self.port: int = self.engine.ports()[0]
        self.lines: list[str] = []
        started = threading.Event()
        self.thread = threading.Thread(target=self._run, args=(started,), daemon=True)
        self.thread.start()
        started.wait()

    def _run(self, started: threading.Event) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - {signal.SIGSEGV, signal.SIGABRT})
        self.engine.run(started.set)

    def log(self, line: str) -> str:
        """Wait for a log line that contains this text; return the line."""
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            self.lines += [line.text for line in self.engine.drain()]
            for found in self.lines:
                if line in found:
                    return found
            time.sleep(0.005)
        raise AssertionError(f"no line with {line!r} in\n" + "\n".join(self.lines))

    def stats(self) -> dict[str, int]:
        found: dict[str, int] = self.engine.stats()
        return found

    def until(self, holds: Callable[[dict[str, int]], bool]) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not holds(self.stats()):
            assert time.monotonic() < deadline, self.stats()
            time.sleep(0.005)

    def stop(self) -> None:
        self.engine.stop()
        self.thread.join()


Run = Callable[..., Running]
Dial = Callable[..., socket.socket]
Open = Callable[..., WebSocket]


@pytest.fixture
def run() -> Iterator[Run]:
    """Return run(settings, options of the listener...) -> Running."""
    made: list[Running] = []

    def make(settings: dict[str, Any] | None = None, **listener: Any) -> Running:
        made.append(Running(settings or {}, listener))
        return made[-1]

    yield make
    for one in made:
        one.stop()


@pytest.fixture
def dial() -> Iterator[Dial]:
    made: list[socket.socket] = []

    def make(broker: Running, sent: bytes = b"") -> socket.socket:
        made.append(socket.create_connection((LOCAL, broker.port), timeout=TIMEOUT_S))
        made[-1].setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made[-1].sendall(sent)
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def web(dial: Dial) -> Open:
    """Return web(broker, bytes to send first, headers...) -> an open WebSocket."""

    def make(broker: Running, before: bytes = b"", **headers: str) -> WebSocket:
        return WebSocket(dial(broker), before, **headers)

    return make
