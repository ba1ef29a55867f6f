"""Run the data plane alone, with the test as its control plane: `ask` returns its requests, `answer` answers them."""

from __future__ import annotations

import select
from tests.harness.effort import TIMEOUT_S
import threading
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from mosq._core import Engine
from tests.harness.broker import free_port
from tests.harness.packets import Connack, Connect, Packet, Received
from tests.harness.wire import Wire
from mosq.records import ClientNotice, LoginAnswer, Record

class Plane:
    """A data plane with one listener on a free local port for each security."""

    def __init__(self, *securities: dict[str, Any], settings: dict[str, Any] | None = None,
                 bridges: list[dict[str, Any]] | None = None, store: str | None = None, segment_bytes: int = 0, durability: str = "group",
                 interval_ms: int = 2, streams: list[dict[str, Any]] | None = None, files: object = None, **listener: Any) -> None:
        given = list(securities) or [{}]
        self.securities = given
        self.settings: dict[str, Any] = {"sys_interval": 0, **(settings or {})}
        self.listeners: list[dict[str, Any]] = [
            {"port": free_port(), "host": "127.0.0.1", "allow_anonymous": False, "security": n, **listener} for n in range(len(given))]
        self.engine = Engine(self.settings, self.listeners, given, bridges or [])
        if store is not None:
            self.engine.persist(store, durability, interval_ms, segment_bytes, streams or [], files)
        self.engine.open()
        self.ports: list[int] = self.engine.ports()
        self.port = self.ports[0]
        self.waiting: deque[Any] = deque()
        self.events: list[ClientNotice] = []
        self.lines: list[str] = []
        self.wires: list[Wire] = []
        self._poll = select.poll()
        self._poll.register(self.engine.event_fd(), select.POLLIN)
        self.before_run()
        started = threading.Event()
        self._loop = threading.Thread(target=self.engine.run, args=(started.set,), daemon=True)
        self._loop.start()
        started.wait()

    def before_run(self) -> None:
        """Do something between the opening of the listeners and the first turn of the loop."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for wire in self.wires:
            wire.close()
        self.engine.stop()
        self._loop.join()

    def wire(self, level: int = 4, security: int = 0) -> Wire:
        made = Wire(self.ports[security], level, TIMEOUT_S)
        self.wires.append(made)
        return made

    def connect(self, connect: Connect, level: int = 4, security: int = 0) -> Wire:
        made = self.wire(level, security)
        made.send(connect)
        return made

    def user(self, client_id: str, username: str = "ann", level: int = 4, security: int = 0, **more: Any) -> Wire:
        """Connect a client with a user name; accept its connect request if the listener sends one."""
        made = self.connect(Connect(client_id, username=username, password=b"secret", **more), level, security)
        if self.securities[security].get("authenticate"):
            self.answer(LoginAnswer(self.ask("connect").handle, 0))
        got = made.read_packet()
        assert isinstance(got, Connack)
        assert got.rc == 0
        return made

    def look(self, timeout_s: float) -> None:
        """Wait for output of the data plane; read its log lines, requests and events."""
        self._poll.poll(timeout_s * 1000)
        self.lines += [line.text for line in self.engine.drain()]
        for request in self.engine.requests():
            (self.events if request.kind == "event" else self.waiting).append(request)

    def ask(self, kind: str | None = None) -> Any:
        """Wait for the next request and return it."""
        end = time.monotonic() + TIMEOUT_S
        while not self.waiting:
            assert time.monotonic() < end, "nothing was asked"
            self.look(end - time.monotonic())
        request = self.waiting.popleft()
        assert kind in (None, request.kind), request
        return request

    def asks(self, n: int) -> list[Any]:
        return [self.ask() for _ in range(n)]

    def asks_nothing(self) -> None:
        """Check that the data plane has no request for the control plane. The answer to a stats request comes after all earlier requests."""
        self.engine.stats()
        self.look(0)
        assert not self.waiting, self.waiting

    def answer(self, *answers: Record) -> None:
        self.engine.answer(list(answers))

    def stats(self) -> dict[str, int]:
        return self.engine.stats()  # type: ignore[no-any-return]

    def until(self, what: Callable[[], bool]) -> None:
        """Wait for a condition that the loop brings about without a notification."""
        end = time.monotonic() + TIMEOUT_S
        while not what():
            assert time.monotonic() < end, "it did not come about"
            self.look(0.005)

    def event(self, kind: str) -> ClientNotice:
        self.until(lambda: any(event.event == kind for event in self.events))
        found = next(event for event in self.events if event.event == kind)
        self.events.remove(found)
        return found


def exchange(wire: Wire, packet: Packet) -> Received:
    wire.send(packet)
    return wire.read_packet()
