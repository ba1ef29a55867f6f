"""Test replays of retained messages: all messages arrive at slow subscribers, and many replays do not slow down other
clients."""

from __future__ import annotations

import socket
from contextlib import ExitStack

import pytest

from tests.broker.conftest import Guest
from tests.harness.broker import Broker
from tests.harness.effort import TIMEOUT_S
from tests.harness.packets import Connect, Pingreq, Puback, Publish, Subscribe, split

FILTERS = 70_000  # more than a 16-bit counter holds


def retain(guest: Guest, broker: Broker, n: int, payload: bytes, qos: int = 1) -> None:
    with_ack = guest(broker, "publisher")
    for i in range(n):
        with_ack.send(Publish(f"r/{i}", payload, qos, i + 1 if qos else 0, retain=True))
        if qos:
            with_ack.read_packet()
    with_ack.expect_nothing()
    with_ack.close()


def subscribe_to_many(filters: int) -> bytes:
    items = b"\x00\x01#\x01" * filters
    body = b"\x00\x01" + items
    length = bytearray()
    n = len(body)
    while True:
        length.append(n % 128 | (128 if n > 127 else 0))
        n //= 128
        if not n:
            return b"\x82" + bytes(length) + body


@pytest.mark.parametrize("end", ["close", "take over"])
def test_more_replays_than_a_16_bit_counter_holds(guest: Guest, end: str) -> None:
    with Broker("") as broker:
        retain(guest, broker, 150, b"x")
        wire = guest(broker, "greedy")
        wire.send(subscribe_to_many(FILTERS))
        while (wire.read_frame() or b"\x00")[0] >> 4 != 9:
            pass
        if end == "close":
            wire.close()
        else:
            other = guest(broker, "greedy")
            other.expect_nothing()
            other.close()
        witness = guest(broker, "witness")
        for _ in range(50):  # gives the jobs turns to end
            witness.expect_nothing()
        assert broker.alive()


@pytest.mark.parametrize("end", ["close", "stay"])
def test_a_client_with_many_replays_does_not_slow_down_others(guest: Guest, end: str) -> None:
    """Test that the broker does not look at waiting replays in each turn or at each acknowledgement."""
    with Broker("") as broker:
        retain(guest, broker, 150, b"x")
        wires = []
        for n in range(10):
            wires.append(guest(broker, f"greedy-{n}"))
            for _ in range(4):
                wires[-1].send(subscribe_to_many(16_000))
        for wire in wires:
            while (wire.read_frame() or b"\x00")[0] >> 4 != 9:
                pass
            if end == "close":
                wire.close()
        witness = guest(broker, "witness")
        witness.sock.settimeout(TIMEOUT_S)
        for _ in range(1000):
            witness.expect_nothing()
        assert broker.alive()


def test_a_slow_subscriber_gets_every_retained_message(guest: Guest) -> None:
    """Test that at QoS 0 the socket is the only queue; a replay waits for room in it instead of dropping messages."""
    n = 20_000
    with Broker("max_queued_messages 100\n") as broker, ExitStack() as sockets:
        retain(guest, broker, n, b"x" * 50, qos=0)
        sock = sockets.enter_context(socket.socket())
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        sock.settimeout(20)
        sock.connect(("127.0.0.1", broker.port))
        sock.sendall(Connect("slow").encode(4) + Subscribe(1, (("r/#", 0),)).encode(4))
        witness = guest(broker, "witness")
        for _ in range(300):  # the replay fills the socket before the client reads
            witness.expect_nothing()
        sock.sendall(Pingreq().encode(4))
        seen, data = 0, b""
        while seen < n:
            data += sock.recv(65536)
            while (size := split(data)) and size <= len(data):
                seen += data[0] >> 4 == 3
                data = data[size:]


@pytest.mark.parametrize("limit", ["max_queued_messages 5", "max_queued_bytes 500"])
def test_a_short_queue_drops_no_retained_message(guest: Guest, limit: str) -> None:
    n = 60
    with Broker(f"max_inflight_messages 3\n{limit}\n") as broker:
        retain(guest, broker, n, b"x" * 100)
        wire = guest(broker, "reader")
        wire.send(Subscribe(1, (("r/#", 1),)))
        wire.read_packet()
        for _ in range(n):
            got = wire.read_packet()
            assert isinstance(got, Publish)
            wire.send(Puback(got.mid))
        wire.expect_nothing()
        wire.close()


def test_replays_of_one_packet_come_in_the_order_of_its_filters(guest: Guest) -> None:
    with Broker("") as broker:
        retain(guest, broker, 300, b"x")
        wire = guest(broker, "reader")
        wire.send(Subscribe(1, (("r/+", 1), ("r/7", 1), ("r/#", 1))))
        wire.read_packet()
        topics = []
        for _ in range(601):
            got = wire.read_packet()
            assert isinstance(got, Publish)
            topics.append(got.topic)
            wire.send(Puback(got.mid))
        wire.expect_nothing()
        assert topics[300] == "r/7"
        assert topics[:300] == topics[301:]
        wire.close()


