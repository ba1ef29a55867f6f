"""Provide `guest` and `member`, which connect clients for a test and disconnect them when the test ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

import mosq
from tests.broker.group import Member
from tests.harness.broker import Broker
from tests.harness.packets import Connack, Connect
from tests.harness.wire import Wire

Guest = Callable[..., Wire]
Join = Callable[..., Member]


@pytest.fixture
def guest() -> Iterator[Guest]:
    wires: list[Wire] = []

    def connect(broker: Broker, connect: Connect | str, level: int = 4, timeout_s: float = 20) -> Wire:
        """Connect a client and return it once the broker has accepted it."""
        wire = Wire(broker.port, level, timeout_s)
        wires.append(wire)
        wire.send(Connect(connect) if isinstance(connect, str) else connect)
        got = wire.read_packet()
        assert isinstance(got, Connack)
        assert got.rc == 0
        return wire

    yield connect
    for wire in wires:
        wire.close()


@pytest.fixture
def member() -> Iterator[Join]:
    with ExitStack() as stack:
        def make(broker: mosq.Broker, client_id: str, pattern: str = "", qos: int = 1, sub_id: int = 0, **more: object) -> Member:
            """Connect a member, and let it subscribe if there is a pattern."""
            one = Member(broker, client_id, **more)  # type: ignore[arg-type]
            stack.callback(one.close)
            return one.joins(pattern, qos, sub_id) if pattern else one

        yield make
