"""Test what `observe_messages` measures: which messages, turns, batches and handshakes count, and that waits count until the delivery is sent."""

from __future__ import annotations

import socket
import time
from pathlib import Path
from typing import Any

from tests.harness.certificates import client_context, server_paths
from tests.harness.packets import Connect, Puback, Publish, Subscribe
from tests.harness.plane import Plane
from tests.harness.wire import Wire

WAIT_S = 60


def subscriber(plane: Plane, qos: int, clean: bool = True) -> Wire:
    wire = plane.connect(Connect("reader", clean=clean))
    wire.read_packet()
    wire.send(Subscribe(1, (("t", qos),)))
    wire.read_packet()
    return wire


def publisher(plane: Plane) -> Wire:
    wire = plane.connect(Connect("writer"))
    wire.read_packet()
    return wire


def counted(plane: Plane, name: str, least: int) -> Any:
    """Wait until a histogram has counted so much; return all."""
    end = time.monotonic() + WAIT_S
    while True:
        found = plane.engine.observed()
        if found[name][0] >= least:
            return found
        assert time.monotonic() < end, found


def test_nothing_is_measured_without_the_option() -> None:
    with Plane(allow_anonymous=True) as plane:
        reader, writer = subscriber(plane, 0), publisher(plane)
        writer.send(Publish("t", b"x"))
        reader.read_packet()
        assert plane.engine.observed() is None


def test_each_message_is_counted_by_the_qos_of_its_delivery() -> None:
    with Plane(settings={"observe_messages": 1}, allow_anonymous=True) as plane:
        reader, writer = subscriber(plane, 1), publisher(plane)
        for mid in range(1, 6):
            writer.send(Publish("t", b"x", qos=1, mid=mid), Publish("t", b"x"))
        for _ in range(10):
            got = reader.read_packet()
            if got.qos:
                reader.send(Puback(got.mid))
        found = counted(plane, "flush_qos1", 5)
        assert (found["flush_qos0"][0], found["flush_qos1"][0], found["flush_qos2"][0], found["match"][0]) == (5, 5, 0, 10)
        assert found["turn"][0] > 0
        for name in ("flush_qos0", "flush_qos1", "match", "turn"):
            count, sum_ns, buckets = found[name]
            assert sum(buckets) == count
            assert sum_ns > 0
        assert (found["lost"], found["passed_over"]) == (0, 0)


def test_one_message_in_many_is_counted() -> None:
    with Plane(settings={"observe_messages": 10}, allow_anonymous=True) as plane:
        reader, writer = subscriber(plane, 0), publisher(plane)
        writer.send(*[Publish("t", b"x")] * 1000)
        for _ in range(1000):
            reader.read_packet()
        # the distances are 1 to 19
        assert 1000 // 19 <= counted(plane, "match", 1)["match"][0] <= 1000


def test_a_wait_in_the_queue_ends_when_the_delivery_is_sent() -> None:
    with Plane(settings={"observe_messages": 1, "max_inflight_messages": 1}, allow_anonymous=True) as plane:
        reader, writer = subscriber(plane, 1), publisher(plane)
        writer.send(Publish("t", b"a", qos=1, mid=1), Publish("t", b"b", qos=1, mid=2))
        first = reader.read_packet()
        assert counted(plane, "flush_qos1", 1)["flush_qos1"][0] == 1
        before = time.monotonic()
        reader.send(Puback(first.mid))
        assert reader.read_packet().payload == b"b"
        assert counted(plane, "flush_qos1", 2)["flush_qos1"][1] <= (time.monotonic() - before + WAIT_S) * 1e9


def test_a_subscriber_that_leaves_ends_its_measurement() -> None:
    with Plane(settings={"observe_messages": 1, "max_inflight_messages": 1}, allow_anonymous=True) as plane:
        reader, writer = subscriber(plane, 1), publisher(plane)
        writer.send(Publish("t", b"a", qos=1, mid=1), Publish("t", b"b", qos=1, mid=2))
        reader.read_packet()
        counted(plane, "flush_qos1", 1)
        reader.close()
        end = time.monotonic() + WAIT_S
        while plane.engine.observed()["lost"] == 0:
            assert time.monotonic() < end
        assert plane.engine.observed()["flush_qos1"][0] == 1


def test_batches_of_the_store_are_counted(tmp_path: Path) -> None:
    with Plane(settings={"observe_messages": 1}, store=str(tmp_path), allow_anonymous=True) as plane:
        subscriber(plane, 1, clean=False).close()
        writer = publisher(plane)
        writer.send(Publish("t", b"x", qos=1, mid=1))
        writer.read_packet()
        assert sum(counted(plane, "commit", 1)["commit"][2]) >= 1


def test_tls_handshakes_are_counted(tmp_path: Path) -> None:
    with Plane(settings={"observe_messages": 1}, allow_anonymous=True, **server_paths(tmp_path)) as plane:
        tcp = socket.create_connection(("127.0.0.1", plane.port), timeout=WAIT_S)
        with client_context().wrap_socket(tcp, server_hostname="localhost"):
            assert counted(plane, "handshake", 1)["handshake"][0] == 1
        with socket.create_connection(("127.0.0.1", plane.port), timeout=WAIT_S) as tcp:
            tcp.sendall(b"\x16\x03\x01\x00\x05nonsense, which is no handshake")
            while tcp.recv(1000):
                pass
        stats = plane.stats()
        assert (stats["tls_handshakes"], stats["tls_handshakes_failed"]) == (1, 1)
