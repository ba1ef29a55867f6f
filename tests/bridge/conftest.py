"""Provide brokers with bridges, remote brokers that tests play, and a real Mosquitto at the other end. All end with the test."""

from __future__ import annotations

import collections
import contextlib
import re
import select
import shutil
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.harness.effort import TIMEOUT_S
from tests.harness.broker import Broker, free_port
from tests.harness.packets import Connack, Connect, Pingreq, Pingresp, Puback, Pubcomp, Publish, Pubrec, Pubrel, Received, Suback, Subscribe
from tests.harness.proxy import Proxy
from tests.harness.remote import Remote
from tests.harness.wire import Wire

MOSQUITTO = shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin:/usr/bin") or "mosquitto"


class Site(Broker):
    """Run a broker, mosq by default; `bridge` is the text of its connection block."""

    def logged(self, text: str, times: int = 1) -> str:
        """Wait until that many lines match; return the last of them."""
        return self.found(lambda log: found[times - 1].group() if len(found := list(re.finditer(f"^.*{text}.*$", log, re.MULTILINE))) >= times else None, text)

    def found(self, look: Callable[[str], str | None], what: object = "") -> str:
        deadline = time.monotonic() + TIMEOUT_S
        while (found := look(self.log())) is None:
            assert time.monotonic() < deadline, f"not in the log: {what}\n{self.log()}"
            assert self.alive(), self.log()
            select.select([], [], [], 0.01)
        return found

    def rewrite(self, text: str) -> None:
        """Write the configuration for the next SIGHUP."""
        self.config.write_text(text.replace("{port}", str(self.port)).replace("{dir}", str(self.dir)))


class Mosquitto(Site):
    argv: list[str] | None = [MOSQUITTO]    # noqa: RUF012


class Client(Wire):
    """Connect a client that acknowledges received messages."""

    def __init__(self, port: int, client_id: str, level: int = 4, clean: bool = True, keepalive: int = 0, **more: Any) -> None:
        super().__init__(port, level, timeout_s=TIMEOUT_S)
        self.send(Connect(client_id, clean=clean, keepalive=keepalive, **more))
        got = self.read_packet()
        assert isinstance(got, Connack)
        assert got.rc == 0, got
        self.mids = 0
        self.messages: collections.deque[Publish] = collections.deque()

    def subscribe(self, *filters: str, qos: int = 0) -> None:
        self.send(Subscribe(1, tuple((one, qos) for one in filters)))
        while not isinstance(got := self.read_packet(), Suback):
            self._taken(got)

    def publish(self, topic: str, payload: bytes = b"x", qos: int = 0, retain: bool = False, **more: Any) -> None:
        """Publish; return when the message is acknowledged, for QoS 2 with PUBREC and PUBCOMP."""
        self.mids = self.mids % 65535 + 1
        self.send(Publish(topic, payload, qos, self.mids if qos else 0, retain=retain, **more))
        if qos == 1:
            self._acknowledged(Puback(self.mids))
        elif qos == 2:
            self._acknowledged(Pubrec(self.mids))
            self.send(Pubrel(self.mids))
            self._acknowledged(Pubcomp(self.mids))

    def _acknowledged(self, want: Puback | Pubrec | Pubcomp) -> None:
        while (got := self.read_packet()) != want:
            self._taken(got)

    def _taken(self, got: Received) -> None:
        if isinstance(got, Pubrel):
            self.send(Pubcomp(got.mid))
            return
        assert isinstance(got, Publish), got
        if got.qos:
            self.send(Puback(got.mid) if got.qos == 1 else Pubrec(got.mid))
        self.messages.append(got)

    def take(self, timeout_s: float = TIMEOUT_S) -> Publish:
        """Return the next message, acknowledged."""
        while not self.messages:
            self._taken(self.read_packet(timeout_s))
        return self.messages.popleft()

    def expect_nothing(self) -> None:
        self.send(Pingreq())
        while (got := self.read_packet()) != Pingresp():
            self._taken(got)
        assert not self.messages, self.messages

    def got(self) -> tuple[str, bytes]:
        message = self.take()
        return message.topic, message.payload


class World:
    """Make the brokers and clients of a test, and end them."""

    def __init__(self) -> None:
        self.stack = contextlib.ExitStack()

    def mosq(self, bridge: str = "", extra: str = "", files: dict[str, str] | None = None) -> Site:
        return self.stack.enter_context(Site("user root\nlog_type all\nlistener {port} 127.0.0.1\nallow_anonymous true\n" + extra + bridge, files))

    def mosquitto(self, extra: str = "", files: dict[str, str] | None = None, listener: str = "") -> Mosquitto:
        return self.stack.enter_context(Mosquitto((listener or "user root\nlog_type all\nlistener {port} 127.0.0.1\nallow_anonymous true\n") + extra, files))

    def remote(self, **how: Any) -> Remote:
        return self.stack.enter_context(Remote(**how))

    def proxy(self, to_port: int) -> Proxy:
        return self.stack.enter_context(Proxy(to_port))

    def client(self, broker: Broker | int, client_id: str = "c", level: int = 4, **more: Any) -> Client:
        made = Client(broker if isinstance(broker, int) else broker.port, client_id, level, **more)
        self.stack.callback(made.close)
        return made


def block(port: int | str, *lines: str, name: str = "b", topics: tuple[str, ...] = ("# both 2",), fast: bool = True) -> str:
    """Return a connection block; without notifications unless a line sets them, reconnecting after a second."""
    found = [f"connection {name}", f"address {port if isinstance(port, str) else f'127.0.0.1:{port}'}", *(f"topic {topic}" for topic in topics)]
    if not any(line.startswith("notifications ") for line in lines):
        found.append("notifications false")
    if fast and not any(line.startswith("restart_timeout") for line in lines):
        found.append("restart_timeout 1")
    return "\n".join([*found, *lines]) + "\n"


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    with made.stack:
        yield made


def wait_for(near: Broker, far: Broker, world: World, topic: str = "joined", **how: Any) -> None:
    """Wait until a message that is published at `near` reaches `far`, by a line `topic joined out`."""
    name = topic.replace("/", "-")
    there, here = world.client(far, f"far-{name}", **how), world.client(near, f"near-{name}", **how)
    there.subscribe(topic)
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        here.publish(topic, b"?")
        try:
            there.take(0.02)
        except TimeoutError:
            assert time.monotonic() < deadline, f"{near.log()}\n----\n{far.log()}"
        else:
            break
    there.close()
    here.close()


def unused_port() -> int:
    return free_port()


