"""Test a lack of memory for records: the broker acknowledges nothing, does no unrepeatable action, and continues with QoS 0.

Sanitizers have their own allocator, without such faults.
"""

from __future__ import annotations

import signal

import pytest

from tests.durable.test_restart import Kept, nothing_more, offline_subscriber, publish, qos_0_continues, read_publishes, subscribe
from tests.harness.faults import Faults, until
from tests.harness.packets import (
    Connack, Connect, Disconnect, Puback, Pubcomp, Publish, Pubrec, Pubrel, Suback, Subscribe, Unsuback, Unsubscribe, Will,
)
from tests.harness.wire import Wire

pytestmark = pytest.mark.timing
BATCH = 64 * 1024               # first size of a batch
LARGE = bytes(BATCH + 5000)
QUOTA = 0x97
RETAINED = "r" * 70           # more than the room in a full batch


def short(faults: Faults) -> None:
    faults.set(realloc_from=BATCH + 1)


def ended(wire: Wire) -> None:
    """Check that the connection ended, with the reason if the version has one."""
    if wire.level == 5:
        assert wire.read_packet() == Disconnect(QUOTA)
    wire.expect_closed()


def test_one_message_waits_for_memory_and_later_ones_are_refused(faulty: Kept, faults: Faults) -> None:
    offline_subscriber(faulty, ("a", 1))
    pub, other = faulty.client("pub", clean=True), faulty.client("pub 2", clean=True)
    short(faults)
    pub.send(Publish("a", LARGE, 1, 1))
    until(lambda: "no memory for the store" in faulty.log())
    other.send(Publish("a", b"x", 1, 2))
    assert other.read_packet() == Puback(2, QUOTA)
    qos_0_continues(faulty)
    nothing_more(pub)            # the message is not on record
    faults.heal()
    assert pub.read_packet() == Puback(1)
    until(lambda: "There is memory for the store again" in faulty.log())
    publish(other, "a", b"y")
    faulty.kill()
    assert [p.payload for p in read_publishes(faulty.client("sub", session=True), 2)] == [LARGE, b"y"]


@pytest.mark.parametrize("level", [4, 5])
def test_an_inbound_message_without_memory_is_not_accepted(faulty: Kept, faults: Faults, level: int) -> None:
    offline_subscriber(faulty, ("a", 2))
    pub = faulty.client("pub", level=level)
    short(faults)
    pub.send(Publish("a", LARGE, 2, 9))
    ended(pub)
    qos_0_continues(faulty)
    faults.heal()
    pub = faulty.client("pub", level=level, session=True)
    pub.send(Publish("a", LARGE, 2, 9, dup=True))
    assert pub.read_packet() == Pubrec(9)
    faulty.kill()                # accepted with PUBREC
    pub = faulty.client("pub", level=level, session=True)
    pub.send(Pubrel(9))
    assert pub.read_packet() == Pubcomp(9)
    assert read_publishes(faulty.client("sub", session=True), 1)[0].payload == LARGE


@pytest.mark.parametrize("level", [4, 5])
def test_a_session_that_cannot_be_recorded_is_refused(faulty: Kept, faults: Faults, level: int) -> None:
    short(faults)
    wire = faulty.wire(level)
    wire.send(Connect("c" * 4000, clean=False, will=Will("w", bytes(65000)), props=((0x11, 3600),) if level == 5 else ()))
    connack = wire.read_packet()
    assert isinstance(connack, Connack) and connack.rc == (QUOTA if level == 5 else 3)
    qos_0_continues(faulty)
    faults.heal()
    faulty.client("c" * 4000, level=level, session=False, will=Will("w", bytes(65000)))


class Filled:
    """Run a broker whose open batch has no room for one more record, while the batch before it is being written."""

    def __init__(self, broker: Kept, faults: Faults) -> None:
        pub, filler, watcher = broker.client("pub", clean=True), broker.client("filler"), broker.client("watcher", clean=True)
        subscribe(watcher, ("filled", 0))
        faults.set(stalled=1)
        short(faults)
        pub.send(Publish("a", b"x", 1, 1))
        until(lambda: faults.waiting)
        filler.send(Subscribe(1, tuple((f"{n}/" + "f" * 1000, 0) for n in range(70))),
                    Subscribe(2, tuple((f"g{n}", 0) for n in range(60))), Subscribe(3, tuple((chr(97 + n), 0) for n in range(26))),
                    Publish("filled"))
        read_publishes(watcher, 1)         # the filler's own output waits for the batch
        self.filler = filler

    def full(self) -> None:
        codes = [self.filler.read_packet() for _ in range(3)]
        for suback, n in zip(codes, (70, 60, 26), strict=True):
            assert isinstance(suback, Suback) and len(suback.codes) == n and suback.codes[-1] == QUOTA
        assert isinstance(codes[0], Suback) and codes[0].codes.count(0) > 50


def test_changes_without_memory_are_refused_and_not_made(faulty: Kept, faults: Faults) -> None:
    offline_subscriber(faulty, ("a", 1))
    keeper = faulty.client("keeper")
    subscribe(keeper, ("gone", 1))
    publish(faulty.client("pub", clean=True), RETAINED, b"there", retain=True)
    old = faulty.client("old", level=4)
    subscribe(old, ("gone", 1))
    clearer = faulty.client("clearer", clean=True)
    filled = Filled(faulty, faults)
    keeper.send(Unsubscribe(2, ("gone",)))
    old.send(Unsubscribe(2, ("gone",)))
    ended(old)                   # 3.1.1 has no reason code for it
    clearer.send(Publish(RETAINED, b"", 1, 3, retain=True))
    ended(clearer)
    faults.set(stalled=0)
    filled.full()
    assert keeper.read_packet() == Unsuback(2, (QUOTA,))
    faults.heal()
    faulty.kill()
    keeper = faulty.client("keeper", session=True)
    pub = faulty.client("pub", clean=True)
    publish(pub, "gone", b"yes")
    assert read_publishes(keeper, 1)[0].payload == b"yes"
    reader = faulty.client("reader", clean=True)
    reader.send(Subscribe(1, ((RETAINED, 0),)))
    assert [type(reader.read_packet()), reader.read_packet()] == [Suback, Publish(RETAINED, b"there", 0, 0, retain=True)]
    keeper.send(Puback(1), Unsubscribe(3, ("gone",)))
    assert keeper.read_packet() == Unsuback(3, (0,))


def test_qos_2_in_both_directions(faulty: Kept, faults: Faults) -> None:
    offline_subscriber(faulty, ("a", 1))
    sub, pub = faulty.client("sub 2"), faulty.client("pub 2")
    subscribe(sub, ("two", 2))
    for i in range(8):
        publish(pub, "two", b"%d" % i, 2, i + 1)
    got = read_publishes(sub, 8)
    for i in range(8):
        pub.send(Publish("two", b"%d" % i, 2, i + 1))
        assert pub.read_packet() == Pubrec(i + 1)
    filled = Filled(faulty, faults)
    sub.send(*(Pubrec(p.mid) for p in got))
    ended(sub)
    pub.send(*(Pubrel(i + 1) for i in range(8)))
    ended(pub)
    faults.set(stalled=0)
    filled.full()
    faults.heal()
    faulty.kill()
    pub = faulty.client("pub 2", session=True)
    for i in range(8):           # a message that was not forwarded yet is forwarded now, once
        pub.send(Pubrel(i + 1))
        assert pub.read_packet() == Pubcomp(i + 1)
    sub = faulty.client("sub 2", session=True)
    seen: list[bytes] = []
    first = {p.mid: p.payload for p in got}
    for _ in range(24):
        packet = sub.read_packet()
        if isinstance(packet, Publish):
            if packet.mid not in first or first[packet.mid] != packet.payload:
                seen.append(packet.payload)
            sub.send(Pubrec(packet.mid))
        else:
            assert isinstance(packet, Pubrel)
            sub.send(Pubcomp(packet.mid))
            if packet.mid == 16:
                break
    assert seen == [b"%d" % i for i in range(8)]


def test_an_end_without_memory_is_recorded_later(faulty: Kept, faults: Faults) -> None:
    offline_subscriber(faulty, ("a", 1))
    clients = [faulty.wire() for _ in range(8)]
    for i, wire in enumerate(clients):
        wire.send(Connect(f"brief {i}", clean=False, props=((0x11, 1),)))
        assert isinstance(wire.read_packet(), Connack)
        subscribe(wire, ("b", 1))
    filled = Filled(faulty, faults)
    for wire in clients:         # a session that ends with its connection
        wire.send(Disconnect(0, ((0x11, 0),)))
        wire.expect_closed()
    faults.set(stalled=0)
    filled.full()
    faults.heal()
    subscribe(faulty.client("last"), ("c", 1))
    faulty.kill()
    for i in range(8):
        faulty.client(f"brief {i}", session=False)


def test_a_segment_stays_until_memory_allows_a_copy(faulty: Kept, faults: Faults) -> None:
    def segments() -> int:
        return len(list(faulty.dir.glob("*.store/segment.*")))

    offline_subscriber(faulty, ("a", 1))
    publish(faulty.client("pub", clean=True), "a", LARGE)
    short(faults)
    faulty.kill()                # a new segment begins, and the old one must be cleaned
    for n in range(5):
        subscribe(faulty.client(f"other {n}"), ("b", 1))
    faulty.kill()
    faults.heal()
    (got,) = read_publishes(faulty.client("sub", session=True), 1)
    assert got.payload == LARGE
    subscribe(faulty.client("last"), ("b", 1))
    until(lambda: segments() <= 3)
    faulty.kill()
    assert read_publishes(faulty.client("sub", session=True), 1)[0].payload == LARGE


def test_a_store_that_cannot_be_taken_into_use_is_tried_again(faults: Faults) -> None:
    """Test a broker without its folder: without memory for all that it has, nothing is recorded and it goes on; the next attempt has all."""
    with Kept("persistence true\npersistence_location {dir}/none\n", faults.env) as broker:
        offline_subscriber(broker, ("a", 2), ("q", 1))
        pub, waiting = broker.client("pub"), broker.client("with a will", clean=True, level=4, will=Will("w", b"gone", 1, True))
        publish(pub, "r", LARGE, retain=True)
        publish(pub, "q", b"1")
        pub.send(Publish("a", b"held", 2, 9))
        assert isinstance(pub.read_packet(), Pubrec)
        folder = broker.dir / "none"
        folder.mkdir()
        folder.chmod(0o777)
        short(faults)
        for n in range(1, 3):
            broker.send_signal(signal.SIGUSR1)
            until(lambda n=n: broker.log().count("Nothing is kept") >= 1 + n)       # type: ignore[misc]
            until(lambda: not list(folder.glob("*/segment.*")))         # the broker also tries by itself, every 10 s
            qos_0_continues(broker)
            publish(pub, "q", b"while without a store")
        faults.heal()
        broker.send_signal(signal.SIGHUP)            # SIGUSR1 would begin a save, whose process has the store's lock for a moment
        until(lambda: "are kept in" in broker.log())
        publish(pub, "q", b"last")
        broker.kill()
        waiting.close()
        assert [p.payload for p in read_publishes(broker.client("sub", session=True), 4)] == [
            b"1", b"while without a store", b"while without a store", b"last"]
        again = broker.client("pub", session=True)
        again.send(Subscribe(1, (("r", 0), ("w", 0))))
        got = [again.read_packet() for _ in range(3)]
        assert {p.topic: p.payload for p in got if isinstance(p, Publish)} == {"r": LARGE, "w": b"gone"}
        again.send(Pubrel(9))
        assert again.read_packet() == Pubcomp(9)
