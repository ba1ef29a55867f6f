"""Provide `guest`, which opens connections for a test and closes them when the test ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.harness.broker import Broker
from tests.harness.packets import Connack, Connect
from tests.harness.wire import Wire

Guest = Callable[..., Wire]


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
