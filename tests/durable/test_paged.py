"""Test queues that are longer than memory: with `queue_memory 1` only the next 64 messages of a session stay in memory."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest

import mosq
from tests.broker.test_bounds import until
from tests.durable.test_restart import KEEP, Kept, offline_subscriber, publish, read_publishes, subscribe
from tests.harness.packets import Connack, Connect, Disconnect, Puback, Pubcomp, Publish, Pubrec, Pubrel, Will
from tests.harness.properties import P
from tests.harness.wire import Wire

PAGED = KEEP + "queue_memory 1\nmax_queued_messages 0\n"
N = 1000
WINDOW = 64                      # defined in cext/broker/routing/paged.pyx


@pytest.fixture
def broker() -> Iterator[Kept]:
    with Kept(PAGED) as running:
        yield running


def payload(i: int) -> bytes:
    return b"%06d" % i + b"x" * (i % 97)


def fill(broker: Kept | Wire, n: int = N, qos: int = 1, topic: str = "t") -> None:
    """Publish n messages, and wait for all acknowledgements."""
    wire = broker if isinstance(broker, Wire) else broker.client("filler", clean=True)
    for first in range(0, n, 20):
        mids = range(first, min(first + 20, n))
        wire.send(b"".join(Publish(topic, payload(i), qos, i + 1).encode(5) for i in mids))
        for i in mids:
            if qos == 1:
                assert wire.read_packet() == Puback(i + 1)
            else:
                assert isinstance(wire.read_packet(), Pubrec)
        if qos == 2:
            wire.send(b"".join(Pubrel(i + 1).encode(5) for i in mids))
            for i in mids:
                assert isinstance(wire.read_packet(), Pubcomp)


def take(wire: Wire, n: int) -> list[Publish]:
    """Return the next n messages, each acknowledged."""
    got = []
    while len(got) < n:
        packet = wire.read_packet()
        if isinstance(packet, Publish):
            got.append(packet)
            wire.send(Puback(packet.mid) if packet.qos == 1 else Pubrec(packet.mid))
        elif isinstance(packet, Pubrel):
            wire.send(Pubcomp(packet.mid))
    return got


@pytest.mark.parametrize("killed", [False, True], ids=["", "killed"])
@pytest.mark.parametrize("qos", [1, 2])
def test_all_paged_messages_arrive_in_order(broker: Kept, qos: int, killed: bool) -> None:
    offline_subscriber(broker, ("t", qos))
    fill(broker, qos=qos)
    if killed:
        broker.kill()
    got = take(broker.client("sub", session=True), N)
    assert [packet.payload for packet in got] == [payload(i) for i in range(N)]
    assert not any(packet.dup for packet in got)


def test_unacknowledged_messages_are_sent_again_first(broker: Kept) -> None:
    offline_subscriber(broker, ("t", 1))
    fill(broker, 300)
    for _ in range(3):
        sub = broker.client("sub", session=True)
        first = [packet.payload for packet in read_publishes(sub, 20)]
        assert first == [payload(i) for i in range(20)]
        sub.send(Disconnect())
        sub.expect_closed()
        publish(broker.client("pub", clean=True), "other", b"")      # acknowledged: earlier messages are on record
        broker.kill()
    got = take(broker.client("sub", session=True), 300)
    assert [packet.payload for packet in got] == [payload(i) for i in range(300)]
    assert [packet.dup for packet in got] == [True] * 20 + [False] * 280


def test_messages_arrive_while_the_queue_is_read(broker: Kept) -> None:
    offline_subscriber(broker, ("t", 1))
    fill(broker, 500)
    sub = broker.client("sub", session=True)
    filler = threading.Thread(target=fill, args=(broker,))
    filler.start()
    got = take(sub, 500 + N)
    filler.join()
    assert [packet.payload for packet in got] == [payload(i) for i in [*range(500), *range(N)]]


def test_many_sessions_at_once(broker: Kept) -> None:
    """Test more reads than the store has in progress at a time (STORE_READS_MAX)."""
    names = [f"sub{i}" for i in range(100)]
    for name in names:
        offline_subscriber(broker, ("t", 1), name=name)
    fill(broker, 100)
    broker.kill()
    wires = [broker.client(name, session=True) for name in names]
    for wire in wires:
        assert [packet.payload for packet in take(wire, 100)] == [payload(i) for i in range(100)]


def test_a_subscriber_that_does_not_read(broker: Kept) -> None:
    sub = broker.client("sub")
    subscribe(sub, ("t", 1))
    fill(broker)
    assert [packet.payload for packet in take(sub, N)] == [payload(i) for i in range(N)]


@pytest.mark.parametrize("killed", [False, True], ids=["", "killed"])
def test_paged_messages_that_expire_are_not_sent(broker: Kept, killed: bool) -> None:
    offline_subscriber(broker, ("t", 1))
    pub = broker.client("pub", clean=True)
    for i in range(200):
        pub.send(Publish("t", b"%d" % i, 1, 1, props=((P.EXPIRY, 1),) if i % 2 else ()))
        assert isinstance(pub.read_packet(), Puback)
    watcher = broker.client("watcher", clean=True)
    subscribe(watcher, ("over", 0))
    broker.client("clock", clean=True, will=Will("over", props=((P.WILL_DELAY, 1),))).close()
    assert isinstance(watcher.read_packet(), Publish)    # a second has passed
    if killed:
        broker.kill()
    got = take(broker.client("sub", session=True), 100)
    assert [packet.payload for packet in got] == [b"%d" % i for i in range(0, 200, 2)]


# ---------------------------------------------------------------- in this process, where it can be looked into

class Inside:
    def __init__(self, directory: Path, **settings: Any) -> None:
        self.plane = mosq.Broker(persistence=True, persistence_location=f"{directory}/", queue_memory=1, **settings)
        self.wires: list[Wire] = []

    def __enter__(self) -> Self:
        self.plane.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        for wire in self.wires:
            wire.close()
        self.plane.__exit__(None, None, None)

    def wire(self, name: str, clean: bool = False) -> Wire:
        self.wires.append(wire := Wire(self.plane.port, 5))
        wire.send(Connect(name, clean=clean, props=((P.SESSION_EXPIRY, 3600),)))
        assert isinstance(wire.read_packet(), Connack)
        return wire

    def offline_subscriber(self) -> None:
        sub = self.wire("sub")
        subscribe(sub, ("t", 1))
        sub.close()

    def stat(self, name: str) -> int:
        return self.plane.stats()[name]


@pytest.fixture
def inside(tmp_path: Path) -> Iterator[Inside]:
    with Inside(tmp_path, max_queued_messages=0) as running:
        yield running


def test_memory_holds_a_window_only(inside: Inside) -> None:
    inside.offline_subscriber()
    before = inside.stat("store_messages")
    fill(inside.wire("pub", clean=True))
    # the commit of the last ones is noticed with the next ones
    assert inside.stat("store_messages") - before < WINDOW + 100
    assert [packet.payload for packet in take(inside.wire("sub"), N)] == [payload(i) for i in range(N)]
    until(lambda: inside.stat("store_messages") == before)


def test_large_messages_do_not_stay_in_memory(inside: Inside) -> None:
    inside.offline_subscriber()
    pub = inside.wire("pub", clean=True)
    before = inside.stat("store_bytes")
    for i in range(40):
        publish(pub, "t", bytes([i]) * 50_000)
    assert inside.stat("store_bytes") - before < 10 * 50_000
    assert [packet.payload for packet in take(inside.wire("sub"), 40)] == [bytes([i]) * 50_000 for i in range(40)]


def test_the_end_of_a_session_frees_its_queue(inside: Inside) -> None:
    before = inside.stat("store_messages")
    inside.offline_subscriber()
    fill(inside.wire("pub", clean=True), 500)
    inside.wire("sub", clean=True).close()
    until(lambda: inside.stat("store_messages") == before)
    inside.wire("sub").expect_nothing()


def test_drop_oldest_drops_paged_messages(tmp_path: Path) -> None:
    with Inside(tmp_path, max_queued_messages=300, queue_overflow="drop_oldest") as inside:
        inside.offline_subscriber()
        fill(inside.wire("pub", clean=True))
        assert [packet.payload for packet in take(inside.wire("sub"), 300)] == [payload(i) for i in range(700, N)]
        assert inside.stat("drops_queue_messages") == 700


def test_an_unreadable_paged_message_is_logged_and_skipped(broker: Kept) -> None:
    offline_subscriber(broker, ("t", 1))
    fill(broker, 300)
    store = next(broker.dir.glob("*.store"))
    at = 0
    for segment in store.glob("segment.*"):
        at = (data := segment.read_bytes()).find(payload(200))
        if at > 0:
            segment.write_bytes(data[:at] + b"?" + data[at + 1:])
            break
    assert at > 0
    sub = broker.client("sub", session=True)
    assert [packet.payload for packet in take(sub, 299)] == [payload(i) for i in range(300) if i != 200]
    until(lambda: "cannot be read" in broker.log())      # the control plane writes it with some delay


def test_cleaning_copies_paged_messages(broker: Kept) -> None:
    """Test with six times as much as a segment holds: the messages of interest are in the first segment."""
    offline_subscriber(broker, ("t", 1))
    fill(broker, 200)
    for round_ in range(6):
        offline_subscriber(broker, ("junk", 1), name="junk")
        pub = broker.client(f"pub{round_}", clean=True)
        for i in range(150):
            publish(pub, "junk", bytes([i]) * 100_000)
        broker.client("junk", clean=True).close()
    store = next(broker.dir.glob("*.store"))
    assert sum(segment.stat().st_size for segment in store.glob("segment.*")) < 80_000_000      # of 90 MB
    broker.kill()
    fill(broker, 10)
    got = take(broker.client("sub", session=True), 210)
    assert [packet.payload for packet in got] == [payload(i) for i in [*range(200), *range(10)]]
