"""Test which client ends when memory_limit is exceeded: the one that holds most, so that the others go on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

import mosq
from tests.broker.group import Member
from tests.harness.faults import until
from tests.harness.packets import Connack, Connect, Disconnect, Puback, Publish, Suback, Subscribe
from tests.harness.properties import P
from tests.harness.wire import Wire

LIMIT = 8 << 20


@pytest.fixture
def broker() -> Iterator[mosq.Broker]:
    with mosq.Broker(sys_interval=0, memory_limit=LIMIT, max_queued_messages=0, max_output_bytes=64 << 20) as made:
        yield made


def connected(broker: mosq.Broker, name: str, level: int = 5, expiry_s: int = 0) -> Wire:
    wire = Wire(broker.port, level, 20)
    wire.send(Connect(name, not expiry_s, props=((P.SESSION_EXPIRY, expiry_s),) if expiry_s else ()))
    assert isinstance(wire.read_packet(), Connack)
    return wire


def assert_served(wire: Wire) -> None:
    for n in range(20):
        wire.send(Publish("honest", b"x" * 1000, 1, n + 1))
        got = wire.read_packet()
        assert isinstance(got, Puback) and got.rc < 0x80, got


def test_clients_with_half_packets_end_before_others_are_refused(broker: mosq.Broker) -> None:
    honest = connected(broker, "honest", 4)
    half = Publish("half", b"x" * 200_000).encode(5)[:-1000]
    with ExitStack() as stack:
        wires = []
        for n in range(80):
            wires.append(connected(broker, f"half{n}"))
            stack.callback(wires[-1].close)
            wires[-1].send(half)
        assert_served(honest)
        until(lambda: broker.stats()["clients_connected"] < 60)
        assert_served(honest)
        assert broker.stats()["buffers_used_bytes"] < LIMIT * 1.2
    honest.close()


@pytest.mark.parametrize("as_properties", [False, True])
def test_the_client_that_reads_least_ends_first(broker: mosq.Broker, as_properties: bool) -> None:
    honest, reader = connected(broker, "honest", 4), connected(broker, "reader")
    deaf = connected(broker, "deaf")
    for wire in (reader, deaf):
        wire.send(Subscribe(1, (("loud", 1),)))
        wire.expect_packet(Suback(1, (1,)))
    deaf.sock.settimeout(20)
    loud = Publish("loud", b"x" * 50_000, 1, 1)
    if as_properties:
        loud = Publish("loud", b"", 1, 1, props=((P.USER, ("k", "v" * 50_000)),))
    sender = connected(broker, "sender")
    for _ in range(400):
        sender.send(loud)
        assert isinstance(sender.read_packet(), Puback)
        got = reader.read_packet()
        assert isinstance(got, Publish)
        reader.send(Puback(got.mid))
    last = None
    while (raw := deaf.read_frame()) is not None:
        last = raw
    assert last == Disconnect(0x97).encode(5)
    assert_served(honest)
    for wire in (honest, reader, deaf, sender):
        wire.close()


def test_the_queue_of_a_session_that_goes_on_is_not_lost(broker: mosq.Broker) -> None:
    offline = connected(broker, "kept", expiry_s=1000)
    offline.send(Subscribe(1, (("q", 1),)))
    offline.expect_packet(Suback(1, (1,)))
    offline.close()
    publisher = connected(broker, "p")
    stored = 0
    for n in range(200):
        publisher.send(Publish("q", b"x" * 100_000, 1, 1 + n))
        got = publisher.read_packet()
        assert isinstance(got, Puback)
        stored += got.rc == 0
    assert 50 < stored < 200
    publisher.close()
    again = Member(broker, "kept", clean=False, expiry_s=1000)
    assert again.session
    assert len(again.gets()) == stored
    again.close()
