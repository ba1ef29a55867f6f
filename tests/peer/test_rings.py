"""Test bridges between two and three of our brokers: no message circulates for ever, and cuts lose or duplicate none."""

from __future__ import annotations

import socket
import threading
from typing import Any

import pytest

from tests.harness.links import line, linked, spec
from tests.harness.packets import Connack, Connect, Puback, Pubcomp, Publish, Pubrec, Pubrel, Subscribe
from tests.harness.plane import Plane
from tests.harness.wire import Wire


def connect(plane: Plane, to: Plane, name: str = "b", private: bool = True) -> None:
    plane.engine.bridge(name, "connect", (socket.AF_INET, "127.0.0.1", to.port), "127.0.0.1", try_private=private)
    assert linked(plane, name).event == "up"


def subscriber(plane: Plane, client_id: str, topic: str, qos: int = 0, level: int = 4) -> Wire:
    wire = plane.connect(Connect(client_id), level)
    assert isinstance(wire.read_packet(), Connack)
    wire.send(Subscribe(1, ((topic, qos),)))
    wire.read_packet()
    return wire


def publisher(plane: Plane, level: int = 4) -> Wire:
    wire = plane.connect(Connect("pub"), level)
    assert isinstance(wire.read_packet(), Connack)
    return wire


def published(wire: Wire) -> Publish:
    got = wire.read_packet()
    assert isinstance(got, Publish), got
    return got


@pytest.mark.parametrize("level", [3, 4, 5])
def test_two_brokers_in_both_directions(level: int) -> None:
    with Plane(bridges=[spec(line("#", "both", 1), version=level)], allow_anonymous=True) as a, Plane(allow_anonymous=True) as b:
        connect(a, b)
        at_a, at_b = subscriber(a, "sub", "#", 1), subscriber(b, "sub", "#", 1)
        pub_a, pub_b = publisher(a), publisher(b)
        for n in range(20):
            pub_a.send(Publish("from/a", b"%d" % n, 1, n + 1))
            pub_b.send(Publish("from/b", b"%d" % n, 1, n + 1))
        for wire in (at_a, at_b):
            got: dict[str, list[bytes]] = {"from/a": [], "from/b": []}
            for _ in range(40):
                message = published(wire)
                wire.send(Puback(message.mid))
                got[message.topic].append(message.payload)
            assert got == {"from/a": [b"%d" % n for n in range(20)], "from/b": [b"%d" % n for n in range(20)]}
            wire.expect_nothing()
        assert [a.stats()["drops_loop"], b.stats()["drops_loop"]] == [0, 0]


def ring(n: int, direction: str, **more: Any) -> list[Plane]:
    planes = [Plane(bridges=[spec(line("#", direction, 1), version=5, loop_guard=True, **{"remote_clientid": f"ring{i}", **more})], allow_anonymous=True)
              for i in range(n)]
    for i, plane in enumerate(planes):
        connect(plane, planes[(i + 1) % n])
    return planes


@pytest.mark.parametrize("direction", ["in", "out", "both"])
@pytest.mark.parametrize("n", [2, 3])
def test_messages_in_a_ring_of_bridges_of_5_end(n: int, direction: str) -> None:
    planes = ring(n, direction)
    try:
        wires = [subscriber(plane, "sub", "t/#", 0, 5) for plane in planes]
        pub = publisher(planes[0], 5)
        pub.send(Publish("t/1", b"x", 1, 1))
        for wire in wires:
            assert published(wire).payload == b"x"
        planes[0].until(lambda: sum(plane.stats()["drops_loop"] for plane in planes) >= 1)
        planes[0].until(lambda: all(each["pending"] == 0 for plane in planes for each in plane.engine.bridges()))
        pub.expect_packet(Puback(1))
        pub.expect_nothing()             # time for messages that still circulate
        before = [plane.stats()["publish_in"] for plane in planes]
        pub.expect_nothing()
        assert [plane.stats()["publish_in"] for plane in planes] == before
        assert max(before) <= 2 * n + 2
    finally:
        for plane in planes:
            plane.__exit__(None, None, None)


@pytest.mark.parametrize("level", [4, 5])
@pytest.mark.parametrize("direction", ["out", "in"])
def test_qos_2_arrives_once_and_in_order_over_lost_connections(level: int, direction: str) -> None:
    """Test a bridge that its own broker cuts again and again while messages of QoS 2 flow."""
    total, cuts = 600, 12
    link = spec(line("#", direction, 2), version=level, session_expiry_s=1000)
    with Plane(bridges=[link], allow_anonymous=True, settings={"max_queued_messages": 0}) as near, \
            Plane(allow_anonymous=True, settings={"max_queued_messages": 0}) as far:
        connect(near, far)
        source, sink = (near, far) if direction == "out" else (far, near)
        at_sink = subscriber(sink, "sub", "t", 2)
        pub = publisher(source)
        got: list[int] = []

        def read() -> None:
            while len(got) < total:
                packet = at_sink.read_packet()
                if isinstance(packet, Publish):
                    got.append(int(packet.payload))
                    at_sink.send(Pubrec(packet.mid))
                elif isinstance(packet, Pubrel):
                    at_sink.send(Pubcomp(packet.mid))

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        for cut in range(cuts):
            for n in range(cut * total // cuts, (cut + 1) * total // cuts):
                pub.send(Publish("t", b"%d" % n, 2, n + 1))
                pub.read_packet()
                pub.send(Pubrel(n + 1))
                pub.read_packet()
            far.engine.kick("remote.b")
            assert linked(near).event == "down"
            connect(near, far)
        reader.join(20)
        assert got == list(range(total))
