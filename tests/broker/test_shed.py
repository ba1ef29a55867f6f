"""Test which client ends when memory_limit is exceeded: the one that holds most, so that the others go on."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

import mosq
from tests.broker.group import Member
from tests.harness.broker import Broker as Process
from tests.harness.effort import SANITIZED
from tests.harness.faults import until
from tests.harness.packets import Connack, Connect, Disconnect, Pingreq, Pingresp, Puback, Publish, Suback, Subscribe
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

PUBREC = 0x50           # the first byte of a packet


def resident_bytes(broker: Process, field: str) -> int:
    """Return VmRSS (resident memory) or VmHWM (its peak) of a broker."""
    status = Path(f"/proc/{broker.process.pid}/status").read_text()
    return 1024 * next(int(line.split()[1]) for line in status.splitlines() if line.startswith(f"{field}:"))


@pytest.mark.skipif(SANITIZED, reason="the sanitizer's own memory exceeds the limit")
def test_frames_that_began_below_the_limit_do_not_grow_above_it() -> None:
    """Test that a buffer of an unfinished frame is granted a second time when the frame exceeds its first part."""
    limit = 40_000_000
    part = Publish("half", b"x" * 100_000).encode(4)[:90_000]
    with Process(f"listener {{port}} 127.0.0.1\nallow_anonymous true\nmemory_limit {limit}\n") as broker, ExitStack() as stack:
        wires = [stack.enter_context(closing(Wire(broker.port, 4))) for _ in range(1001)]
        for n, wire in enumerate(wires):
            wire.send(Connect(f"c{n}"))
        for wire in wires:
            assert isinstance(wire.read_packet(), Connack)
        honest = wires.pop()
        empty = resident_bytes(broker, "VmRSS")
        broker.send_signal(signal.SIGSTOP)      # all parts arrive in few turns
        for wire in wires:
            wire.sock.setblocking(False)
            wire.sock.send(part)                # as much as the kernel takes
        broker.send_signal(signal.SIGCONT)
        assert_served(honest)
        assert resident_bytes(broker, "VmHWM") - empty <= 1.2 * limit


@pytest.mark.skipif(SANITIZED, reason="the sanitizer's own memory exceeds the limit")
def test_a_client_that_ends_gets_no_acknowledgement_before() -> None:
    """Test that a client which memory_limit has selected cannot complete its packet in the turn in which it ends."""
    whole = Publish("q", b"x" * 300_000, 2, 1).encode(4)
    part = Publish("half", b"x" * 100_000).encode(4)[:90_000]
    with Process("listener {port} 127.0.0.1\nallow_anonymous true\nmemory_limit 40000000\n") as broker, ExitStack() as stack:
        wires = [stack.enter_context(closing(Wire(broker.port, 4))) for _ in range(1100)]
        for n, wire in enumerate(wires):
            wire.send(Connect(f"c{n}"))
        for wire in wires:
            assert isinstance(wire.read_packet(), Connack)
        victims, others = wires[:100], wires[100:]
        for wire in victims:
            wire.sock.sendall(whole[:-100])
        broker.send_signal(signal.SIGSTOP)      # the others exceed the limit in one turn, and the victims end their packets in the next
        for wire, content in [(one, part) for one in others] + [(one, whole[-100:]) for one in victims]:
            wire.sock.setblocking(False)
            wire.sock.send(content)
            wire.sock.setblocking(True)
        broker.send_signal(signal.SIGCONT)
        acknowledged = 0
        for wire in victims:
            if (first := wire.read_frame()) is None:
                continue                                # ended without an acknowledgement
            assert first[0] == PUBREC
            wire.send(Pingreq())
            assert isinstance(wire.read_packet(), Pingresp)
            acknowledged += 1
        assert 0 < acknowledged < len(victims)


@pytest.mark.skipif(SANITIZED, reason="the sanitizer's own memory exceeds the limit")
@pytest.mark.one_process("several workers share memory_limit, so its value here is too small for each of them")
def test_small_retained_messages_leave_the_reserve_of_the_others() -> None:
    """Test that memory which is not counted, a tenth of that of small retained messages, is noticed before it fills the reserve."""
    limit = 100_000_000
    messages = b"".join(Publish(f"a/{n}/b/{n}/c/{n}/d", b"1", retain=True).encode(4) for n in range(250_000))
    with Process(f"listener {{port}} 127.0.0.1\nallow_anonymous true\nmemory_limit {limit}\n") as broker, \
            closing(Wire(broker.port, 4)) as flood, closing(Wire(broker.port, 4)) as honest:
        for name, wire in (("flood", flood), ("honest", honest)):
            wire.send(Connect(name))
            assert isinstance(wire.read_packet(), Connack)
        flood.sock.sendall(messages)            # at once: the broker reads 2 MB faster than it reads its memory by the clock
        flood.send(Pingreq())
        assert flood.read_packet() == Pingresp()
        assert 0.9 * limit < resident_bytes(broker, "VmHWM") < limit + (2 << 20)
        assert_served(honest)
