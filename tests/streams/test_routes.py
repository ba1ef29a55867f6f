"""Test that every route of a message leads into the streams that want it, once."""

from __future__ import annotations

import json
import time
from pathlib import Path

from tests.durable.test_restart import Kept, publish, subscribe
from mosq.journal.stream import Stream
from mosq.records import Content, MessageAnswer
from tests.harness.packets import Connect, Puback, Publish, Pubcomp, Pubrec, Pubrel, Subscribe, Will
from tests.harness.plane import Plane
from tests.harness.properties import P
from tests.harness.faults import until
from tests.streams.journalled import all_records, MESSAGE, folder, keeping, payloads, records, stopped

SUBSCRIBE, GAP = 4, 10


def test_fields_of_a_record() -> None:
    with Kept(keeping("stream all #")) as broker:
        before = time.time_ns() // 1000
        pub = broker.client("pub", clean=True, username="ann")
        publish(pub, "a/b", b"one", 1)
        pub.send(Publish("a/b", b"two", 1, 8, dup=True), Publish("c", b"three", 0, retain=True, props=((P.USER, ("k", "v")),)))
        assert pub.read_packet() == Puback(8, 0x10)         # a stream is not a subscriber
        publish(pub, "c", b"four", 2)
        one, two, three, four = records(broker, 4)
        assert (one.kind, one.qos, one.retain, one.dup, one.topic, one.payload) == (MESSAGE, 1, False, False, "a/b", b"one")
        assert (one.client_id, one.username, one.properties) == ("pub", "ann", b"")
        assert before <= one.time_us <= one.commit_us <= time.time_ns() // 1000
        assert (two.qos, two.dup) == (1, True)
        assert (three.qos, three.retain, three.topic, three.properties) == (0, True, "c", b"\x26\0\1k\0\1v")
        assert (four.qos, four.dup, four.payload) == (2, False, b"four")


def test_each_stream_gets_matching_messages_once() -> None:
    with Kept(keeping("stream all #", "stream some a/+ a/# \"a/b c\" d", "stream none x/y")) as broker:
        pub = broker.client("pub", clean=True, level=4)
        for topic in ("a/b", "a/b c", "d", "e", "a"):
            publish(pub, topic, topic.encode())
        assert payloads(records(broker, 5)) == [b"a/b", b"a/b c", b"d", b"e", b"a"]
        assert payloads(records(broker, 4, "some")) == [b"a/b", b"a/b c", b"d", b"a"]
        assert records(broker, 0, "none") == []


def test_all_ways_of_a_message_write_one_record() -> None:
    """Test fan-outs in slices, merged copies, shared groups, wills, inbound QoS 2 that is sent twice, a session's end."""
    lines = ("stream all #", "stream slash a/#", "turn_budget 1000", "allow_duplicate_messages false", "sys_interval 0")
    with Kept(keeping(*lines)) as broker:
        subs = [broker.client(f"s{n}", clean=True, level=4) for n in range(30)]
        for sub in subs:
            subscribe(sub, ("a/#", 1), ("a/b", 1), ("#", 0))
        workers = [broker.client(f"w{n}", clean=True) for n in range(3)]
        for worker in workers:
            subscribe(worker, ("$share/g/a/b", 1))
        pub = broker.client("pub", clean=True)
        publish(pub, "a/b", b"1")                               # in slices, merged, shared
        publish(pub, "a/b", b"2", 2)
        pub.send(Publish("a/b", b"3", 2, 9), Publish("a/b", b"3", 2, 9, dup=True), Pubrel(9), Pubrel(9))
        assert [pub.read_packet() for _ in range(4)] == [Pubrec(9), Pubrec(9), Pubcomp(9), Pubcomp(9)]
        dying = broker.wire(4)
        dying.send(Connect("dying", will=Will("a/will", b"4", 1, True)))
        dying.read_packet()
        dying.reset()
        assert payloads(records(broker, 4)) == [b"1", b"2", b"3", b"4"]
        will = records(broker, 4, "slash")[3]
        assert (will.topic, will.client_id, will.qos, will.retain) == ("a/will", "dying", 1, True)
        assert payloads(stopped(broker)) == [b"1", b"2", b"3", b"4"]


def test_dollar_topics_need_an_explicit_filter() -> None:
    with Kept(keeping("stream all #", "stream sys $SYS/broker/uptime", "stream one +/b", "sys_interval 1")) as broker:
        sys = Stream(folder(broker, "sys"))
        until(lambda: any(mark.seq for mark in sys.marks()))
        first = all_records(sys)[0]                 # $SYS adds a record each second
        assert first.topic == "$SYS/broker/uptime" and first.client_id == "" and first.username is None
        pub = broker.client("pub", clean=True)
        publish(pub, "$x/b", b"1")
        publish(pub, "c/b", b"2")
        assert payloads(records(broker, 1)) == [b"2"]
        assert payloads(records(broker, 1, "one")) == [b"2"]


def test_refused_messages_are_in_no_stream() -> None:
    broker = Kept(keeping("stream all #", "acl_file {dir}/acl", "message_size_limit 10"))
    (broker.dir / "acl").write_text("topic write a\n")
    with broker:
        pub = broker.client("pub", clean=True)
        for mid, topic, payload, rc in ((1, "b", b"no", 0x87), (2, "a", b"x" * 11, 0x95), (3, "a", b"yes", 0x10)):
            pub.send(Publish(topic, payload, 1, mid))
            assert pub.read_packet() == Puback(mid, rc)
        assert payloads(records(broker, 1)) == [b"yes"]


def test_messages_of_a_bridge_are_in_the_stream() -> None:
    with Kept("") as far:
        publish(far.client("pub", clean=True), "there/a", b"x", retain=True)
        with Kept(keeping("stream all #", "connection far", f"address 127.0.0.1:{far.port}", "topic # in 1 here/ there/", "notifications false")) as broker:
            (found,) = records(broker, 1)
            assert (found.topic, found.payload, found.qos, found.retain) == ("here/a", b"x", 1, True)


def test_streams_are_no_subscribers() -> None:
    with Kept(keeping("stream all # +/a a/#", "sys_interval 1")) as broker:
        watch = broker.client("watch", clean=True)
        subscribe(watch, ("$SYS/broker/shared_subscriptions/count", 0), ("$SYS/broker/subscriptions/count", 0))
        got = {p.topic: p.payload for p in (watch.read_packet(), watch.read_packet()) if isinstance(p, Publish)}
        assert got == {"$SYS/broker/shared_subscriptions/count": b"0", "$SYS/broker/subscriptions/count": b"0"}


def test_messages_changed_by_a_plugin_are_in_the_stream(tmp_path: Path) -> None:
    with Plane({"transform_in": ("in/#",)}, allow_anonymous=True, store=str(tmp_path / "s"), streams=[{"name": "all", "filters": ["#"]}]) as plane:
        wire = plane.user("c", level=5)
        wire.send(Publish("in/a", b"raw", 1, 1), Publish("in/b", b"taken", 1, 2))
        plane.answer(MessageAnswer("message_in", plane.ask().handle, Content("out/a", b"cooked", 0, True)))
        wire.read_packet()
        plane.answer(MessageAnswer("message_in", plane.ask().handle, None))
        wire.read_packet()
    (found,) = Stream(tmp_path / "s" / "streams" / "all").read(0, 10)
    assert (found.topic, found.payload, found.qos, found.retain, found.client_id) == ("out/a", b"cooked", 0, True, "c")


def test_lost_events_are_counted(tmp_path: Path) -> None:
    streams = [{"name": "events", "events": True, "waiting_max_bytes": 192 << 10}]
    with Plane(allow_anonymous=True, store=str(tmp_path / "s"), streams=streams) as plane:
        wire = plane.user("c", level=5)
        wire.send(Subscribe(1, tuple((f"{n}/{'x' * 1000}", 0) for n in range(100))))      # all in one turn
        wire.read_packet()
    events = list(Stream(tmp_path / "s" / "streams" / "events").read(0, 1000))
    lost = sum(json.loads(e.payload)["lost"] for e in events if e.kind == GAP)
    missing = 100 - sum(e.kind == SUBSCRIBE for e in events)
    assert 0 < missing <= lost <= missing + 3               # events of the client's end may be lost as well
