"""Test the stream of events: each kind with its fields, in its place, once."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from mosq.journal.kinds import NAMES
from mosq.journal.stream import Record, Stream
from tests.durable.test_restart import Kept, publish, subscribe
from tests.harness.faults import Faults, until
from tests.harness.packets import Connack, Connect, Disconnect, Publish, Subscribe, Unsuback, Unsubscribe, Will
from tests.harness.properties import P
from tests.streams.journalled import folder, keeping, stopped

EVENTS = "stream_events true"
NEVER = 0xFFFFFFFF


def events(broker: Kept, *kinds: str) -> list[Record]:
    """Stop the broker; return all events, or those of some kinds."""
    found = stopped(broker, "events")
    return [r for r in found if not kinds or NAMES[r.kind] in kinds]


def fields_of(record: Record) -> dict[str, object]:
    return dict(json.loads(record.payload))


def brief(found: list[Record]) -> list[tuple[str, str, int]]:
    return [(NAMES[r.kind], r.client_id, r.reason) for r in found]


def after_starts(found: list[Record]) -> list[Record]:
    """Return the events without those of starts: each worker writes one."""
    return [r for r in found if NAMES[r.kind] != "start"]


def leave(wire: object, rc: int = 0) -> None:
    wire.send(Disconnect(rc))           # type: ignore[attr-defined]
    wire.expect_closed()                # type: ignore[attr-defined]


def test_events_of_connects_and_disconnects() -> None:
    with Kept(keeping(EVENTS)) as broker:
        leave(broker.client("one", clean=True, level=4, username="ann"))
        leave(broker.client("two"), 4)
        two = broker.client("two", session=True)
        two.close()
        until(lambda: "disconnected: connection closed by client" in broker.log())
        bridge = broker.wire(4)
        bridge.send(Connect("bridge", level_byte=0x84, keepalive=30))
        assert bridge.read_packet() == Connack()
        bridge.send(Connect("again"))
        bridge.expect_closed()
        found = after_starts(events(broker))
        found.sort(key=lambda r: ("one", "two", "bridge").index(r.client_id))       # the order of events at several workers is not exact
        assert brief(found) == [
            ("connect", "one", 0), ("disconnect", "one", 0),
            ("connect", "two", 0), ("disconnect", "two", 4), ("account", "two", 0),
            ("connect", "two", 0), ("disconnect", "two", 0x40), ("account", "two", 0),
            ("connect", "bridge", 0), ("disconnect", "bridge", 0x82),
        ]
        one, first, second, bridged = (fields_of(r) for r in found if NAMES[r.kind] == "connect")
        here = {"address": "127.0.0.1", "listener": broker.port}
        assert one == {"version": 4, "clean": True, "keepalive_s": 60, "expiry_s": 0, "present": False, "role": "client", **here}
        assert first == {"version": 5, "clean": False, "keepalive_s": 60, "expiry_s": 3600, "present": False, "role": "client", **here}
        assert second == first | {"present": True}
        assert bridged == one | {"keepalive_s": 30, "role": "bridge"}
        assert [r.username for r in found[:2]] == ["ann", "ann"] and found[2].username is None
        assert all(r.topic == "" and r.qos == 0 and r.time_us <= r.commit_us for r in found)
        assert all(r.payload == b"" for r in found if NAMES[r.kind] == "disconnect")


def test_events_of_refused_connects() -> None:
    with Kept(keeping(EVENTS, "max_keepalive 100")) as broker:
        for level, packet, answer in (
                (4, Connect("", clean=False), Connack(rc=2)),
                (5, Connect("will", will=Will("a/#")), Connack(rc=0x90)),
                (4, Connect("idle", keepalive=101), Connack(rc=2)),
                (5, Connect("method", props=((P.AUTH_METHOD, "none"),)), Connack(rc=0x8C))):
            wire = broker.wire(level)
            wire.send(packet)
            got = wire.read_packet()
            assert isinstance(got, Connack) and got.rc == answer.rc
            wire.expect_closed()
        wire = broker.wire(4)
        wire.send(Connect("silent", will=Will("a/#")))
        wire.expect_closed()
        found = after_starts(events(broker))
        assert brief(found) == [("connect", "", 0x80), ("connect", "", 0x90), ("connect", "idle", 0x80), ("connect", "method", 0x8C),
                                ("connect", "", 0x90)]
        assert fields_of(found[1]) == {"version": 5, "address": "127.0.0.1", "listener": broker.port}


def test_a_take_over_and_the_end_of_a_session() -> None:
    with Kept(keeping(EVENTS)) as broker:
        old = broker.client("same", username="ann")
        new = broker.client("same", session=True, username="ann")
        assert old.read_packet() == Disconnect(0x8E)
        old.expect_closed()
        new.send(Disconnect(0, ((P.SESSION_EXPIRY, 1),)))
        new.expect_closed()
        stays = broker.client("stays", clean=True)
        until(lambda: "Expiring client same" in broker.log())
        found = after_starts(events(broker))
        assert brief(found) == [
            ("connect", "same", 0), ("take_over", "same", 0x8E), ("disconnect", "same", 0x8E), ("account", "same", 0), ("connect", "same", 0),
            ("disconnect", "same", 0), ("account", "same", 0), ("connect", "stays", 0), ("expiry", "same", 0), ("account", "same", 0),
            ("disconnect", "stays", 0x8B), ("account", "stays", 0),
        ]
        assert [r.username for r in found[1:3]] == ["ann", "ann"]
        assert [fields_of(r)["ended"] for r in found if NAMES[r.kind] == "account"] == [False, False, True, False]
        stays.close()


def test_subscriptions() -> None:
    with Kept(keeping(EVENTS)) as broker:
        one = broker.client("one", username="ann")
        subscribe(one, ("a/+", 2), ("$share/g/b", 1 | 8), props=((P.SUBSCRIPTION_ID, 7),))
        subscribe(one, ("a/+", 0 | 4))
        one.send(Unsubscribe(2, ("$share/g/b", "never")))
        assert one.read_packet() == Unsuback(2, (0, 0x11))
        found = events(broker, "subscribe", "unsubscribe")
        assert [(NAMES[r.kind], r.topic, r.client_id, r.username, r.reason) for r in found] == [
            (kind, topic, "one", "ann", 0) for kind, topic in
            (("subscribe", "a/+"), ("subscribe", "$share/g/b"), ("subscribe", "a/+"), ("unsubscribe", "$share/g/b"))]
        assert [fields_of(r) for r in found[:3]] == [{"qos": 2, "options": 2, "id": 7}, {"qos": 1, "options": 9, "id": 7}, {"qos": 0, "options": 4}]


def test_a_mount_point_is_part_of_a_filter() -> None:
    with Kept(keeping(EVENTS, "mount_point m/")) as broker:
        one = broker.client("one", clean=True)
        subscribe(one, ("a", 0), ("$share/g/b", 0))
        one.send(Unsubscribe(2, ("a", "$share/g/b")))
        assert one.read_packet() == Unsuback(2, (0, 0))
        assert [r.topic for r in events(broker, "subscribe", "unsubscribe")] == ["m/a", "$share/g/m/b"] * 2


@pytest.mark.one_process("an event of a start concerns one worker, and the sums of several are not in it")
def test_a_start_writes_events_of_the_current_state() -> None:
    """Test the events after a start: they contain the current state, so a reader need not know what happened before a kill."""
    with Kept(keeping(EVENTS)) as broker:
        sub = broker.client("sub", username="ann")
        subscribe(sub, ("a/+", 1), ("$share/g/b", 2), props=((P.SUBSCRIPTION_ID, 7),))
        broker.client("short", clean=True, level=4)
        leave(sub)
        pub = broker.client("pub", clean=True, level=4)
        publish(pub, "a/1", b"waits")
        broker.kill()
        publish(broker.client("pub", clean=True, level=4), "a/2", b"too")
        found = events(broker)
        starts = [i for i, r in enumerate(found) if NAMES[r.kind] == "start"]
        assert [fields_of(found[i]) for i in starts] == [{"sessions": 0, "subscriptions": 0}, {"sessions": 1, "subscriptions": 2}]
        records = [r for r in found[starts[1]:] if r.client_id == "sub"]
        assert [NAMES[r.kind] for r in records] == ["account", "subscribe", "subscribe", "account"]
        assert {(r.topic, r.username, r.payload) for r in records[1:3]} == {
            ("a/+", "ann", b'{"qos":1,"options":1,"id":7,"restored":true}'), ("$share/g/b", "ann", b'{"qos":2,"options":2,"id":7,"restored":true}')}
        assert [(fields_of(r)["restored"], fields_of(r)["published"], fields_of(r)["queued"]) for r in records if NAMES[r.kind] == "account"] == [(1, 0, 1), (1, 1, 2)]


def test_drops() -> None:
    """Test that each counted drop has an event: with the message, the session and the reason, in the numbers of $SYS."""
    with Kept(keeping(EVENTS, "max_queued_messages 2", "message_size_limit 100")) as broker:
        sub = broker.client("sub")
        subscribe(sub, ("q/#", 1))
        leave(sub)
        small = broker.wire(5)
        small.send(Connect("small", props=((P.MAXIMUM_PACKET_SIZE, 30),)))
        assert isinstance(small.read_packet(), Connack)
        subscribe(small, ("long", 0), ("long", 1))
        pub = broker.client("pub", clean=True, level=4)
        for i in range(5):
            publish(pub, f"q/{i}", b"")
        publish(pub, "long", bytes(50))
        publish(pub, "$SYS/mine", b"", 1)
        publish(pub, "large", bytes(101))
        broker.client("sub", clean=True, session=False)
        found = events(broker, "drop")
        assert [(r.reason, r.client_id, r.topic) for r in found] == [
            (0, "sub", "q/2"), (0, "sub", "q/3"), (0, "sub", "q/4"), (4, "small", "long"), (7, "pub", "$SYS/mine"), (9, "pub", "large"),
            (11, "sub", "q/0"), (11, "sub", "q/1")]


def test_the_oldest_is_dropped_and_a_last_value_replaced() -> None:
    for overflow, reason, topics in (("drop_oldest", 0, ["a", "b"]), ("last_value", 15, ["b"])):
        with Kept(keeping(EVENTS, "max_queued_messages 2", f"queue_overflow {overflow}")) as broker:
            sub = broker.client("sub")
            subscribe(sub, ("#", 1))
            leave(sub)
            pub = broker.client("pub", clean=True, level=4)
            for topic in ("a", "b", "c" if reason == 0 else "b", *("d" if reason == 0 else "")):
                publish(pub, topic, b"")
            found = events(broker)
            assert [(r.reason, r.client_id, r.topic) for r in found if NAMES[r.kind] == "drop"] == [(reason, "sub", topic) for topic in topics]
            last = fields_of([r for r in found if NAMES[r.kind] == "account"][-1])
            assert (last["published"], last["dropped"], last["queued"]) == (2 + len(topics), len(topics), 2)


@pytest.mark.one_process("an event of a start concerns one worker, and the sums of several are not in it")
def test_subscriptions_beyond_the_limit_of_a_start_are_counted() -> None:
    with Kept(keeping(EVENTS)) as broker:
        sub = broker.client("sub")
        for i in range(0, 4200, 600):
            subscribe(sub, *((f"{n}", 0) for n in range(i, i + 600)))
        leave(sub)
        broker.kill()
        leave(broker.client("sub", session=True))
        found = events(broker)
        second = [r for r in found if NAMES[r.kind] == "start"][1].seq
        assert Counter(NAMES[r.kind] for r in found[second:] if r.client_id == "sub") == Counter(subscribe=4096, connect=1, disconnect=1, account=2)
        assert sum(fields_of(r)["lost"] for r in found if NAMES[r.kind] == "gap") == 4200 - 4096    # type: ignore[misc]


def test_events_without_room_are_counted() -> None:
    """Test a blocked disk: clients do not wait for events, and a record counts the lost ones as soon as there is room."""
    faults = Faults()
    with Kept(keeping(EVENTS), faults.env) as broker:
        one = broker.client("one", clean=True, level=4)
        faults.set(stalled=1)
        rounds = 0
        for _ in range(20):
            one.send(*(Subscribe(1, (("x" * 60_000, 0),)) for _ in range(30)))
            for _ in range(30):
                one.read_packet()
            rounds += 30
        faults.heal()
        stream = folder(broker, "events")
        until(lambda: b'{"lost":' in b"".join(p.read_bytes()[-200_000:] for p in stream.rglob("*.seg")))
        leave(one)
        found = events(broker)
        lost = sum(fields_of(r)["lost"] for r in found if NAMES[r.kind] == "gap")    # type: ignore[misc]
        assert lost > 0 and lost + sum(NAMES[r.kind] == "subscribe" for r in found) == rounds
        assert brief(found)[-1] == ("disconnect", "one", 0)
    faults.close()


def test_without_the_option_there_is_no_stream() -> None:
    with Kept(keeping("stream all #")) as broker:
        leave(broker.client("one"))
        assert stopped(broker) == [] and not folder(broker, "events").exists()


def test_events_of_a_bridge_have_the_role_link() -> None:
    with Kept("") as far, Kept(keeping(EVENTS, "connection out", f"address 127.0.0.1:{far.port}", "topic a out 1", "local_clientid local",
                                       "notifications false", "bridge_protocol_version mqttv50", "restart_timeout 1")) as broker:
        sub = far.client("sub", clean=True)
        subscribe(sub, ("a", 1))
        pub = broker.client("pub", clean=True, level=4)
        publish(pub, "a", b"over")
        got = sub.read_packet()
        assert isinstance(got, Publish) and got.payload == b"over"
        found = [r for r in events(broker) if r.client_id == "local"]
        assert brief(found) == [("subscribe", "local", 0), ("connect", "local", 0), ("disconnect", "local", 0x8B), ("account", "local", 0)]
        assert found[0].topic == "a"
        assert fields_of(found[1]) == {"version": 5, "clean": False, "keepalive_s": 60, "expiry_s": NEVER, "present": False, "role": "link",
                                  "address": "127.0.0.1", "listener": 0}
        account = fields_of(found[3])
        assert (account["published"], account["delivered"]) == (1, 1)


def test_retention_of_events_follows_their_option() -> None:
    with Kept(keeping(f"{EVENTS} retain_bytes 64K")) as broker:
        wire = broker.client("wire", clean=True)
        stream = Stream(folder(broker, "events"))
        for n in range(3):
            subscribe(wire, *((f"{n}/{i}/{'x' * 1000}", 0) for i in range(50)))
            until(lambda behind=n * 50: any(mark.seq > behind for mark in stream.marks()))
        until(lambda: any(mark.first_seq > 40 for mark in stream.marks()))
        assert all(r.seq > 40 for r in events(broker) if r.client_id == "wire")
