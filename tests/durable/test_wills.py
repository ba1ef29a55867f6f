"""Test the wills of clients whose session is not stored: they survive kill -9, each is sent once, and discarded ones are not sent."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from mosq._core import record_encode
from mosq.tools.db import kinds
from mosq.tools.db.read import state_of
from mosq.tools.db.state import State
from mosq.tools.db.store import StoreSource, write_store
from tests.durable.test_clean import SEGMENT_BYTES, another_segment, as_killed, fill
from tests.durable.test_restart import KEEP, Early, Kept, nothing_more, offline_subscriber, qos_0_continues, read_publishes, subscribe
from tests.harness.faults import Faults, until
from tests.harness.packets import Connack, Connect, Disconnect, Puback, Publish, Subscribe, Will
from tests.harness.plane import Plane
from tests.harness.properties import P
from tests.harness.wire import Wire

LONG_DELAY = ((P.WILL_DELAY, 3600),)


@pytest.fixture
def broker() -> Iterator[Kept]:
    with Kept(KEEP + "max_inflight_messages 200\n") as running:
        offline_subscriber(running, ("w/#", 1))
        yield running


def dying(broker: Kept, name: str, will: Will | None, level: int = 4, **more: object) -> Wire:
    """Connect a client whose session ends with its connection."""
    wire = broker.wire(level)
    wire.send(Connect(name, clean=True, will=will, **more))      # type: ignore[arg-type]
    connack = wire.read_packet()
    assert isinstance(connack, Connack) and connack.rc == 0
    return wire


def leave(wire: Wire, reason: int = 0) -> None:
    wire.send(Disconnect(reason))
    wire.expect_closed()


def settle(broker: Kept) -> None:
    """Wait until all earlier changes are on record."""
    subscribe(broker.client("settle"), ("none", 0))


def words(broker: Kept) -> list[bytes]:
    """Return the messages that wait for the offline subscriber."""
    sub = broker.client("sub", session=True)
    settle(broker)
    settle(broker)               # the messages are read from the disk
    got = []
    sub.send(Subscribe(9, (("none", 0),)))       # its answer comes after all that waits
    while isinstance(packet := sub.read_packet(), Publish):
        got.append(packet.payload)
        sub.send(Puback(packet.mid))
    sub.send(Disconnect())
    sub.expect_closed()
    return got


def state(broker: Kept) -> State:
    found, loss, unreadable = state_of(StoreSource(str(broker.dir)))
    assert not loss["n"] and not unreadable.n
    return found


def test_wills_of_many_clients_survive(broker: Kept) -> None:
    """Test that a delay does not matter: the session has ended with the process [v5 3.1.3-9]."""
    for n in range(60):
        dying(broker, f"old {n}", Will("w/old", b"old %d" % n, n % 3))
        dying(broker, f"new {n}", Will("w/new", b"new %d" % n, n % 3, props=LONG_DELAY if n % 2 else ()), 5)
    dying(broker, "", Will("w/assigned", b"assigned", 1), 5)
    broker.kill()
    again = [dying(broker, f"old {n}", None) for n in range(60)]         # a return does not cancel a will
    wanted = [b"%s %d" % (kind, n) for kind in (b"old", b"new") for n in range(60) if n % 3]
    assert sorted(words(broker)) == sorted([*wanted, b"assigned"])
    settle(broker)               # acknowledgements that are not on record may be lost by the kill
    broker.kill()
    assert words(broker) == []
    assert len(again) == 60


def test_wills_that_are_over_are_not_sent(broker: Kept) -> None:
    leave(dying(broker, "left", Will("w", b"no", 1)))
    leave(dying(broker, "left 5", Will("w", b"no", 1), 5))
    leave(dying(broker, "speaks", Will("w", b"sent before", 1), 5), 4)
    dying(broker, "moved", Will("w", b"of the old connection", 1))
    leave(dying(broker, "moved", Will("w", b"of the new connection", 1)))
    leave(dying(broker, "again", Will("w", b"of the old connection", 1)))
    dying(broker, "again", Will("w", b"of the last connection", 1))
    leave(dying(broker, "later stored", Will("w", b"before its session", 1)))
    broker.client("later stored")
    settle(broker)
    before = [b"sent before", b"of the old connection"]
    broker.kill()
    assert words(broker) == [*before, b"of the last connection"]


def test_a_taken_over_client_whose_session_becomes_stored(broker: Kept) -> None:
    dying(broker, "c", Will("w", b"sent at the take-over", 1))
    broker.client("c", session=False, will=Will("w", b"of the stored session", 1))
    broker.kill()
    assert words(broker) == [b"sent at the take-over", b"of the stored session"]


def test_a_stored_session_whose_client_wants_none_any_more(broker: Kept) -> None:
    leave(broker.client("c", will=Will("w", b"of the stored session", 1)))
    dying(broker, "c", Will("w", b"of the client", 1))
    dying(broker, "d", None)
    resumed = broker.client("e")
    wire = broker.wire(5)
    wire.send(Connect("e", clean=False, will=Will("w", b"ends with its connection", 1, props=LONG_DELAY)))
    assert isinstance(wire.read_packet(), Connack)
    assert resumed.read_packet() == Disconnect(0x8E)
    broker.kill()
    assert sorted(words(broker)) == [b"ends with its connection", b"of the client"]


def test_a_retained_will(broker: Kept) -> None:
    dying(broker, "c", Will("w/state", b"offline", 0, retain=True))
    broker.kill()
    broker.kill()
    sub = broker.client("other", clean=True)
    sub.send(Subscribe(1, (("w/state", 0),)))
    sub.read_packet()
    (got,) = read_publishes(sub, 1)
    assert got.payload == b"offline" and got.retain


def test_the_message_expiry_of_a_will_begins_when_it_is_sent(broker: Kept) -> None:
    dying(broker, "c", Will("w", b"x", 1, props=((P.EXPIRY, 3600), (P.CONTENT_TYPE, "t"))), 5)
    broker.kill()
    (got,) = read_publishes(broker.client("sub", session=True), 1)
    left = dict(got.props)[P.EXPIRY]
    assert isinstance(left, int) and 3500 < left <= 3600 and dict(got.props)[P.CONTENT_TYPE] == "t"


def test_the_rules_after_the_restart_count() -> None:
    """Test that a will keeps its user name and its mount point."""
    broker = Kept(KEEP + "acl_file {dir}/acl\nlistener {port} 127.0.0.1\nallow_anonymous true\nmount_point m/\n")
    rules = broker.dir / "acl"
    rules.write_text("topic read m/#\nuser good\ntopic m/#\nuser bad\ntopic m/#\n")
    rules.chmod(0o644)
    with broker:
        offline_subscriber(broker, ("w/#", 1))
        for user in ("good", "bad", None):
            dying(broker, f"of {user}", Will("w", f"of {user}".encode(), 1), username=user)
        broker.die()
        rules.write_text("topic read m/#\nuser good\ntopic m/#\n")
        broker.start()
        assert words(broker) == [b"of good"]


def test_a_will_is_sent_before_clients_are_let_in(broker: Kept) -> None:
    dying(broker, "dying", Will("w", b"last words", 1), 5)
    broker.die()
    with Early(store=str(broker.dir / "mosquitto.db.store"), allow_anonymous=True) as plane:
        connack = plane.early.read_packet()
        assert isinstance(connack, Connack) and connack.rc == 0 and not connack.session
    broker.start()
    assert words(broker) == [b"last words"]


# ---------------------------------------------------------------- what it costs

def test_one_record_for_a_will_and_one_for_its_end(broker: Kept) -> None:
    """Count records: a client without a will causes none, and messages cause none."""
    settle(broker)
    before = dict(state(broker).by_kind)
    wires = [dying(broker, f"c{n}", Will("w", b"x", 1)) for n in range(20)]
    others = [dying(broker, f"other {n}", None) for n in range(20)]
    for wire in wires[:5]:
        wire.send(Publish("nobody", b"x", 1, 1))
        assert isinstance(wire.read_packet(), Puback)
    for wire in [*wires[:10], *others]:
        wire.send(Disconnect())
        wire.expect_closed()
    settle(broker)
    found = state(broker)
    more = {kind: n - before.get(kind, 0) for kind, n in found.by_kind.items() if n != before.get(kind, 0)}
    for kind in (kinds.SESSION, kinds.SUB):      # of the client that waits for the records
        more.pop(kind, None)
    assert more == {kinds.CLIENT_WILL: 20, kinds.CLIENT_WILL_GONE: 10}
    assert len(found.client_wills) == 10
    assert broker.stop() == 0                    # an orderly stop sends the wills
    assert not state(broker).client_wills


# ---------------------------------------------------------------- faults

@pytest.mark.parametrize("level", [4, 5])
def test_connack_waits_for_the_record(faulty: Kept, faults: Faults, level: int) -> None:
    offline_subscriber(faulty, ("w", 1))
    faults.set(stalled=1)
    wire = faulty.wire(level)
    wire.send(Connect("c", clean=True, will=Will("w", b"x", 1)))
    until(lambda: faults.waiting)
    qos_0_continues(faulty)
    with pytest.raises(TimeoutError):
        wire.read_packet(0.05)
    faults.heal()
    assert isinstance(wire.read_packet(), Connack)
    faulty.kill()
    assert words(faulty) == [b"x"]


def test_clients_with_wills_connect_while_the_disk_fails(faulty: Kept, faults: Faults) -> None:
    offline_subscriber(faulty, ("w", 1))
    pub = faulty.client("pub", clean=True)
    early = dying(faulty, "early", Will("w", b"recorded", 1))
    left = dying(faulty, "left", Will("w", b"left", 1))
    faults.set(write_errno=errno.EIO)
    pub.send(Publish("w", b"first", 1, 1))
    until(lambda: "Input/output error" in faulty.log())
    dying(faulty, "late", Will("w", b"not recorded", 1))
    dying(faulty, "left", None)                  # the take-over sends the will, and is answered
    left.expect_closed()
    qos_0_continues(faulty)
    faults.heal()
    assert pub.read_packet() == Puback(1)
    until(lambda: "The store is written again" in faulty.log())
    pub.send(Publish("w", b"last", 1, 2))
    assert pub.read_packet() == Puback(2)        # the store has the will that is before it
    faulty.kill()
    assert words(faulty) == [b"first", b"left", b"last", b"recorded"]
    early.close()


@pytest.mark.timing
def test_a_client_with_a_will_connects_without_memory_for_the_record(faulty: Kept, faults: Faults) -> None:
    offline_subscriber(faulty, ("w", 1))
    faults.set(realloc_from=64 * 1024 + 1)
    wire = dying(faulty, "c" * 4000, Will("w", bytes(65000), 1))
    qos_0_continues(faulty)
    faults.heal()
    wire.send(Disconnect())
    wire.expect_closed()
    dying(faulty, "c", Will("w", b"x", 1))
    faulty.kill()
    assert words(faulty) == [b"x"]


# ---------------------------------------------------------------- cleaning

def test_cleaning_keeps_wills(tmp_path: Path) -> None:
    """Test a will whose segment is cleaned, and one that has ended in between."""
    store = tmp_path / "s"
    copies = 3 * SEGMENT_BYTES // 4000

    def check(n: int) -> bool:
        if n == 0:
            return False                # nothing shows yet that the end of the will is on record
        with Plane(store=str(as_killed(store, tmp_path / f"copy{n}")), segment_bytes=SEGMENT_BYTES, allow_anonymous=True) as plane:
            sub = plane.connect(Connect("sub", clean=False))
            assert isinstance(sub.read_packet(), Connack)
            sub.send(Subscribe(9, (("none", 0),)))
            got = []
            while isinstance(packet := sub.read_packet(), Publish):
                got.append(packet.payload)
            assert got == [b"last words"]
        return n == copies

    with Plane(store=str(store), segment_bytes=SEGMENT_BYTES, allow_anonymous=True) as plane:
        sub = plane.connect(Connect("sub", clean=False))
        sub.read_packet()
        sub.send(Subscribe(1, (("w", 1),)))
        sub.read_packet()
        sub.close()
        plane.until(lambda: plane.stats()["clients_connected"] == 0)
        for name, payload in (("ends", b"no"), ("stays", b"last words")):
            wire = plane.connect(Connect(name, will=Will("w", payload, 1)))
            assert isinstance(wire.read_packet(), Connack)
        another_segment(plane)
        plane.wires[1].send(Disconnect())
        plane.wires[1].expect_closed()
        fill(plane, check)
        nothing_more(wire)


BUDGET = 4000


class Door(Plane):
    """Have clients at the door before the first turn of the loop."""

    def before_run(self) -> None:
        self.first = self.wire(4)
        self.first.send(Connect("first", clean=True))


def client_will(id: str, topic: str, payload: bytes) -> tuple[int, bytes]:
    return kinds.CLIENT_WILL, record_encode(kinds.CLIENT_WILL, {
        "security": 0, "expiry_s": None, "id": id.encode(), "user": None, "mount": b"", "qos": 1, "retain": False, "retained_set": False,
        "source_hash": 0, "topic": topic.encode(), "expires_wall_ms": 0, "props": b"", "payload": payload})


@pytest.mark.parametrize(("wills", "subscribers", "least"), [(1000, 1, BUDGET // 2), (30, 100, 500)])
def test_restored_wills_are_sent_in_turns_while_clients_wait(tmp_path: Path, wills: int, subscribers: int, least: int) -> None:
    """Test many wills, and wills with many subscribers, by the work that the broker counts. A client that waits is let in after all of them. A turn
    is full of small wills; a will with a fan-out has a turn of its own (its end and 100 deliveries: `least`)."""
    records = [client_will(f"c{n}", f"w/{n}", b"%d" % n) for n in range(wills)]
    for n in range(1, subscribers + 1):
        records += [(kinds.SESSION, record_encode(kinds.SESSION, {"sno": n, "connected": False, "expiry_s": 3600, "ends_wall_ms": 0, "next": 0,
                                                                   "id": b"s%d" % n, "user": None, "security": 0, "mount": b""})),
                    (kinds.SUB, record_encode(kinds.SUB, {"sno": n, "filter": b"w/#", "options": 1, "sub_id": 0}))]
    write_store(str(tmp_path / "store"), records, "test", False, str(tmp_path))
    settings = {"turn_budget": BUDGET, "max_queued_messages": 0, "max_inflight_messages": 0, "sys_interval": 0}
    with Door(store=str(tmp_path / "store"), allow_anonymous=True, settings=settings) as plane:
        assert isinstance(plane.first.read_packet(), Connack)
        longest = plane.stats()["turn_work_max"]
        assert least <= longest <= 3 * BUDGET + 1000, f"the longest turn took {longest} units of work"
        for n in (1, subscribers):
            sub = plane.connect(Connect(f"s{n}", clean=False))
            assert isinstance(sub.read_packet(), Connack)
            assert sorted(int(packet.payload) for packet in read_publishes(sub, wills)) == list(range(wills))
            sub.close()
