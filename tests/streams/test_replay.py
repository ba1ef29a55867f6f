"""Test streams for plain clients: `$stream/NAME/PLACE/FILTER` sends stored records, then new ones, without a gap."""

from __future__ import annotations

import errno
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from mosq.journal.stream import Stream
from tests.durable.test_restart import FOR_LONG, Kept, nothing_more, publish, subscribe
from tests.harness import packets
from tests.harness.broker import has_workers
from tests.harness.effort import SANITIZED
from tests.harness.faults import Faults, until
from tests.harness.packets import Connack, Connect, Disconnect, Pingreq, Pingresp, Puback, Publish, Suback, Subscribe, Unsuback, Unsubscribe
from tests.harness.properties import P
from tests.harness.wire import Wire
from tests.streams.journalled import folder, keeping, records, stopped


STREAM = "$stream/all"


@pytest.fixture
def faults() -> Iterator[Faults]:
    faults = Faults()
    yield faults
    faults.close()


def fill(broker: Kept, lo: int, hi: int, qos: int = 1, size: int = 0) -> None:
    """Publish; return when all messages are acknowledged."""
    pub = broker.client(f"pub{lo}", clean=True)
    for at in range(lo, hi, 20):
        part = range(at, min(at + 20, hi))
        pub.send(*(Publish(f"t/{i % 5}", b"%d" % i + b"." * size, qos, i % 60000 + 1) for i in part))
        for _ in part if qos else ():
            assert isinstance(pub.read_packet(), Puback)
    pub.send(Disconnect())
    pub.expect_closed()


def passing(broker: Kept, name: str) -> Wire:
    """Return a client whose session ends with its connection."""
    wire = broker.wire()
    wire.send(Connect(name))
    assert isinstance(wire.read_packet(), Connack)
    return wire


def got(wire: Wire, n: int, ack: bool = True) -> list[Publish]:
    found: list[Publish] = []
    while len(found) < n:
        packet = wire.read_packet()
        assert isinstance(packet, Publish), packet
        found.append(packet)
        if packet.qos and ack:
            wire.send(Puback(packet.mid))
    return found


def numbers(found: list[Publish]) -> list[int]:
    return [int(packet.payload.rstrip(b".")) for packet in found]


def place(packet: Publish) -> dict[str, str]:
    return dict(value for key, value in packet.props if key == P.USER)      # type: ignore[misc]


@pytest.mark.one_process("reads one part; the parts of several workers have no common order and no common numbers: tests/workers/test_stream_subscriptions.py")
@pytest.mark.parametrize(("qos", "level"), [(0, 5), (1, 5), (1, 4)])
def test_replay_continues_with_new_messages_without_a_gap(qos: int, level: int) -> None:
    with Kept(keeping("stream all t/#", "turn_budget 1000")) as broker:
        fill(broker, 0, 300)
        threads = [threading.Thread(target=fill, args=(broker, lo, lo + 300)) for lo in (1000, 2000)]
        for thread in threads:
            thread.start()
        reader = broker.client("reader", clean=True, level=level)
        subscribe(reader, (f"{STREAM}/first/t/+", qos))
        found = got(reader, 900)
        for thread in threads:
            thread.join()
        fill(broker, 3000, 3010)
        found += got(reader, 10)
        nothing_more(reader)
        assert numbers(found) == [int(r.payload) for r in records(broker, 910)]
        assert {packet.topic for packet in found} == {f"t/{i}" for i in range(5)} and not any(packet.retain for packet in found)
        if level == 5:
            assert [place(packet) for packet in found] == [{"mosq-stream": "all", "mosq-seq": str(seq)} for seq in range(910)]


@pytest.mark.one_process("reads one part; the parts of several workers have no common order and no common numbers: tests/workers/test_stream_subscriptions.py")
def test_replay_from_a_number_or_time_with_a_filter() -> None:
    with Kept(keeping("stream all t/#")) as broker:
        fill(broker, 0, 50)
        time.sleep(0.002)
        now_us = time.time_ns() // 1000
        fill(broker, 50, 100)
        reader = broker.client("reader", clean=True)
        subscribe(reader, (f"{STREAM}/95/#", 0))
        assert numbers(got(reader, 5)) == [95, 96, 97, 98, 99]
        seconds, part = divmod(now_us, 1_000_000)
        when = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{part:06}Z"
        subscribe(reader, (f"{STREAM}/{when}/t/3", 0), props=((P.SUBSCRIPTION_ID, 9),))
        later = got(reader, 10)
        assert numbers(later) == list(range(53, 100, 5))
        assert all((P.SUBSCRIPTION_ID, 9) in packet.props for packet in later)
        subscribe(reader, (f"{STREAM}/1000000/t/#", 0))         # behind the end: from there on
        fill(broker, 100, 101)
        assert numbers(got(reader, 1)) == [100]                  # through the first subscription
        subscribe(reader, (f"{STREAM}/95/#", 0))                 # once more: from the beginning
        assert numbers(got(reader, 6)) == list(range(95, 101))


def test_replayed_messages_are_unchanged() -> None:
    with Kept(keeping("stream all #", "retain_available true")) as broker:
        pub = broker.client("pub", clean=True)
        pub.send(Publish("a", b"x", 1, 3, retain=True, props=((P.CONTENT_TYPE, "text"), (P.USER, ("k", "v")))))
        assert isinstance(pub.read_packet(), Puback)
        subscribe(pub, (f"{STREAM}/first/#", 2 | 8))
        (packet,) = got(pub, 1)
        assert (packet.topic, packet.payload, packet.qos, packet.retain) == ("a", b"x", 1, True)
        assert packet.props[:4] == ((P.CONTENT_TYPE, "text"), (P.USER, ("k", "v")), (P.USER, ("mosq-stream", "all")), (P.USER, ("mosq-seq", "0")))
        assert [name for _, (name, _) in packet.props[4:]] == ["mosq-shard"] * has_workers()    # type: ignore[misc]
        no_local = broker.client("other", clean=True)
        subscribe(no_local, (f"{STREAM}/first/#", 1 | 4))
        assert got(no_local, 1)[0].payload == b"x"
        publish(no_local, "a", b"mine")
        broker.client("pub2", clean=True).send(Publish("a", b"theirs", 0))
        assert got(no_local, 1)[0].payload == b"theirs"


@pytest.mark.one_process("a position has one number for each shard, and the shards of each worker have their own numbers")
def test_shards_are_each_in_order() -> None:
    with Kept(keeping("stream all t/# shards 4")) as broker:
        fill(broker, 0, 200)
        reader = broker.client("reader", clean=True)
        subscribe(reader, (f"{STREAM}/first/#", 1))
        found = got(reader, 200)
        assert sorted(numbers(found)) == list(range(200))
        for topic in range(5):
            assert numbers([packet for packet in found if packet.topic == f"t/{topic}"]) == list(range(topic, 200, 5))
        ends = {int(place(packet)["mosq-shard"]): int(place(packet)["mosq-seq"]) for packet in found}
        at = ".".join(str(ends.get(shard, -1) + 1) for shard in range(4))
        again = broker.client("again", clean=True)
        subscribe(again, (f"{STREAM}/{at}/#", 0))
        fill(broker, 200, 203)
        assert sorted(numbers(got(again, 3))) == [200, 201, 202]


@pytest.mark.parametrize(("qos", "size"), [(0, 2000), (1, 300)])
def test_a_slow_reader_gets_every_record(qos: int, size: int) -> None:
    """Test a reader that reads nothing until there is much more than its socket and queue can hold."""
    lines = ("stream all t/#", "max_queued_messages 10", "max_inflight_messages 5")
    with Kept(keeping(*lines)) as broker:
        reader = broker.client("reader", clean=True)
        subscribe(reader, (f"{STREAM}/first/#", qos))
        fill(broker, 0, 1500, 1, size)
        assert numbers(got(reader, 1500)) == list(range(1500))
        nothing_more(reader)
        fill(broker, 1500, 1520)
        assert broker.stop() == 0        # while there is more to be sent


def test_unsubscribe_ends_a_replay_and_others_continue() -> None:
    with Kept(keeping("stream all t/#", "max_inflight_messages 2")) as broker:
        fill(broker, 0, 500)
        reader = broker.client("reader", clean=True)
        other = broker.client("other", clean=True)
        subscribe(other, (f"{STREAM}/first/#", 1))
        subscribe(reader, (f"{STREAM}/first/#", 1))
        first = [reader.read_packet() for _ in range(2)]
        reader.send(Unsubscribe(5, (f"{STREAM}/first/#", f"{STREAM}/7/#")))
        left = reader.read_packet()
        assert left == Unsuback(5, (0, 0x11))
        reader.send(*(Puback(packet.mid) for packet in first))     # type: ignore[union-attr]
        queued = 0
        while True:              # messages that were in its queue already
            reader.send(b"\xc0\x00")
            packet = reader.read_packet()
            if not isinstance(packet, Publish):
                break
            queued += 1
            reader.send(Puback(packet.mid))
            assert isinstance(reader.read_packet(), Publish | Pingresp)
        assert queued < 490
        assert numbers(got(other, 500)) == list(range(500))


@pytest.mark.one_process("a position has one number for each shard, and the shards of each worker have their own numbers")
def test_a_durable_session_continues_its_replay_and_others_do_not() -> None:
    with Kept(keeping("stream all t/#", "max_inflight_messages 10")) as broker:
        fill(broker, 0, 200)
        gone = passing(broker, "gone")
        subscribe(gone, (f"{STREAM}/first/#", 1))
        got(gone, 10, ack=False)
        gone.reset()
        lasts = broker.client("lasts")
        subscribe(lasts, (f"{STREAM}/first/#", 1))
        before = got(lasts, 55)
        lasts.send(Disconnect())
        while lasts.read_frame() is not None:       # messages in flight, which are sent again
            pass
        fill(broker, 200, 220)
        lasts = broker.client("lasts", session=True)
        after = numbers(got(lasts, 1))
        while after[-1] != 219:
            after += numbers(got(lasts, 1))
        assert numbers(before) == list(range(55)) and after == list(range(after[0], 220)) and after[0] <= 55
        for n in range(30):      # readers that connect and leave hold no memory
            wire = passing(broker, f"c{n}")
            subscribe(wire, *((f"{STREAM}/{i}/#", 0) for i in range(16)))
            if n % 2:
                wire.send(Unsubscribe(3, tuple(f"{STREAM}/{i}/#" for i in range(16))))
            wire.reset()
        last = passing(broker, "last")
        subscribe(last, (f"{STREAM}/219/#", 0))
        assert numbers(got(last, 1)) == [219]


@pytest.mark.one_process("kills one process; the workers of a killed parent end by themselves, and send DISCONNECT")
def test_a_record_that_was_sent_is_unchanged_after_a_kill() -> None:
    """Test that no reader receives a record that a start drops and whose number it uses again."""
    sent: dict[str, bytes] = {}
    with Kept(keeping("stream all t/#")) as broker:
        for round in range(3):
            reader = broker.client("reader", clean=True)
            subscribe(reader, (f"{STREAM}/first/#", 0))
            pub = broker.client("pub", clean=True)
            pub.send(*(Publish("t/0", b"%d" % (round * 1000 + i), 1, i + 1) for i in range(100)))
            seen = [reader.read_packet() for _ in range(60)]
            broker.die()
            while raw := reader.read_frame():
                seen.append(packets.decode(5, raw))
            for packet in seen:
                assert isinstance(packet, Publish)
                assert sent.setdefault(place(packet)["mosq-seq"], packet.payload) == packet.payload
            broker.start()
        found = {str(r.seq): r.payload for r in stopped(broker)}
        assert sent.items() <= found.items() and len(sent) > 60


@pytest.mark.one_process("reads one part; the parts of several workers have no common order and no common numbers: tests/workers/test_stream_subscriptions.py")
def test_retention_overtakes_a_reader() -> None:
    lines = ("stream all t/# retain_bytes 64K", "max_inflight_messages 1", "max_queued_messages 5", "log_dest file {dir}/log", "log_type all")
    with Kept(keeping(*lines)) as broker:
        fill(broker, 0, 20, size=2000)
        reader = broker.client("reader", clean=True)
        subscribe(reader, (f"{STREAM}/first/#", 1))
        first = got(reader, 1, ack=False)[0]
        fill(broker, 20, 200, size=2000)
        stream = Stream(folder(broker))
        until(lambda: stream.marks()[0].first_seq > 120)
        late = broker.client("late", clean=True)
        subscribe(late, (f"{STREAM}/0/#", 0))           # the records from its first place on are dropped
        seen = numbers(got(late, 1))
        reader.send(Puback(first.mid))
        found = numbers([first])
        while found[-1] != 199:
            found += numbers(got(reader, 1))
        while seen[-1] != 199:
            seen += numbers(got(late, 1))
        assert found[:20] == list(range(20)) and found == sorted(set(found)) and len(found) < 120
        assert seen == list(range(seen[0], 200)) and seen[0] >= 100
        log = broker.dir / "log"                        # log lines arrive asynchronously
        until(lambda: "are no longer kept. Client reader continues after them." in log.read_text())
        until(lambda: "Client late" in log.read_text())


WRONG = (
    "all/first", "all//#", "all/first/", "all/last/#", "all/-1/#", "all/1.2/#", "none/first/#", "all/2026-13-01/#", "all/2026-11-22T10/#",
    "all/2026-02-29/#", "all/2026-04-31/#", "all/4611686018427387904/#", "all/99999999999999999999/#", "events/first/#", "all/first/$share/g/a", "all/2026-11-22T10:00:00.1234567Z/a", "+/first/#",
)


@pytest.mark.one_process("a position has one number for each shard, and the shards of each worker have their own numbers")
def test_invalid_stream_filters_are_refused() -> None:
    with Kept(keeping("stream all t/#", "stream_events true")) as broker:
        for level, code in ((5, 0x8F), (4, 0x80)):
            wire = broker.client("c", clean=True, level=level)
            for filter in WRONG:
                wire.send(Subscribe(1, ((f"$stream/{filter}", 1), ("fine", 1))))
                assert wire.read_packet() == Suback(1, (code, 1)), filter
        subscribe(wire, *((f"{STREAM}/{fine}/#", 1) for fine in ("2026-11-22", "2026-11-22T10:00", "2026-11-22T10:00:00.5Z", "0")))


@pytest.mark.one_process("a position has one number for each shard, and the shards of each worker have their own numbers")
def test_stream_filters_are_limited_with_streams_and_plain_without() -> None:
    with Kept(keeping("stream all t/#")) as broker:
        wire = broker.client("c", clean=True)
        wire.send(Subscribe(1, ((f"$share/g/{STREAM}/first/#", 1),)))
        assert wire.read_packet() == Suback(1, (0x8F,))
        wire.send(Subscribe(2, tuple((f"{STREAM}/{i}/#", 0) for i in range(17))))
        assert wire.read_packet() == Suback(2, (0,) * 16 + (0x97,))
        subscribe(wire, *((f"{STREAM}/{i}/#", 1) for i in range(16)))         # the same subscriptions again
        wire.send(Subscribe(3, ((f"{STREAM}/16/#", 0), (f"{STREAM}/3/#", 0))))
        assert wire.read_packet() == Suback(3, (0x97, 0))
    with Kept(keeping()) as broker:
        wire = broker.client("c", clean=True)
        subscribe(wire, (f"{STREAM}/first/#", 1))
        publish(broker.client("pub", clean=True), f"{STREAM}/first/x", b"plain")
        assert got(wire, 1)[0].payload == b"plain"


@pytest.mark.one_process("expects SUBACK before the first record; a record of another worker may come before it [v5 3.8.4]")
def test_a_reload_that_takes_the_right_ends_the_replay() -> None:
    """Test that the right to the stream itself is checked again, although every topic in it may still be read."""
    config = keeping("stream all #", "acl_file {dir}/acl", "listener {port} 127.0.0.1", "allow_anonymous true")
    broker = Kept(config)
    acl = broker.dir / "acl"
    acl.write_text("user writer\ntopic write #\nuser reader\ntopic read #\ntopic read $stream/all/first\n")
    acl.chmod(0o644)
    with broker:
        writer, reader = broker.client("w", clean=True, username="writer"), broker.client("r", clean=True, username="reader")
        publish(writer, "a", b"1")
        subscribe(reader, (f"{STREAM}/first/#", 0), ("live", 0))
        assert numbers(got(reader, 1)) == [1]
        acl.write_text("user writer\ntopic write #\nuser reader\ntopic read #\n")
        broker.send_signal(signal.SIGHUP)
        while "Client r gets no more records of $stream/all/first/#" not in broker.log():
            publish(writer, "a", b"2")
        publish(writer, "a", b"3")
        publish(writer, "live", b"4")
        while (packet := got(reader, 1)[0]).topic == "a":
            assert packet.payload == b"2"       # published before the reload
        assert packet.payload == b"4"
        nothing_more(reader)
        reader.send(Unsubscribe(4, (f"{STREAM}/first/#",)))
        assert reader.read_packet() == Unsuback(4, (0x11,))


def test_the_acl_limits_streams_and_their_topics() -> None:
    """Test access to a stream, by its name as a topic; and to its content, only to topics that the client may read."""
    config = keeping("stream all #", "acl_file {dir}/acl", "listener {port} 127.0.0.1", "allow_anonymous true")
    broker = Kept(config)
    (broker.dir / "acl").write_text("user writer\ntopic write #\nuser reader\ntopic read $stream/all/#\ntopic read r/#\nuser other\ntopic read #\n")
    (broker.dir / "acl").chmod(0o644)
    with broker:
        def connected(user: str) -> Wire:
            wire = broker.wire()
            wire.send(Connect(f"id {user}", username=user, props=FOR_LONG))
            assert isinstance(wire.read_packet(), Connack)
            return wire

        writer, reader, other = (connected(user) for user in ("writer", "reader", "other"))
        for topic in ("r/1", "secret", "r/2"):
            publish(writer, topic, topic.encode())
        other.send(Subscribe(1, ((f"{STREAM}/first/#", 1),)))
        assert other.read_packet() == Suback(1, (0x87,))
        subscribe(reader, (f"{STREAM}/first/#", 1))
        assert [packet.payload for packet in got(reader, 2)] == [b"r/1", b"r/2"]


def iso(s: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(s))


@pytest.mark.one_process("reads one part; the parts of several workers have no common order and no common numbers: tests/workers/test_stream_subscriptions.py")
def test_a_position_in_the_future_begins_when_it_is_reached(faults: Faults) -> None:
    """Test a place in the future: it begins with the first record of each shard that is not older, or with that number."""
    with Kept(keeping("stream all t/# shards 3"), faults.env) as broker:
        fill(broker, 0, 10)
        reader = broker.client("reader", clean=True)
        subscribe(reader, (f"{STREAM}/{iso(time.time() + 1800)}/#", 0))
        other = broker.client("other", clean=True)
        subscribe(other, (f"{STREAM}/5/#", 0))
        fill(broker, 10, 30)
        faults.set(wall_ms=3_600_000)
        fill(broker, 30, 40)
        faults.set(wall_ms=0)
        fill(broker, 40, 50)
        assert sorted(numbers(got(reader, 20))) == list(range(30, 50))
        assert all(int(place(packet)["mosq-seq"]) >= 5 for packet in got(other, 50 - 3 * 5))


@pytest.mark.parametrize("fault", ["EMFILE", "ENFILE"])
def test_a_replay_waits_for_a_descriptor(fault: str, faults: Faults) -> None:
    with Kept(keeping("stream all t/#", "log_dest file {dir}/log", "log_type all"), faults.env) as broker:
        fill(broker, 0, 50)
        reader = broker.client("reader", clean=True)
        faults.set(read_errno=getattr(errno, fault))
        subscribe(reader, (f"{STREAM}/first/#", 1))
        until(lambda: "Warning: stream all cannot be read for client reader, which waits: " in (broker.dir / "log").read_text())
        reader.expect_nothing()
        faults.heal()
        assert numbers(got(reader, 50)) == list(range(50))
        log = (broker.dir / "log").read_text()
        assert "damaged" not in log and log.count("cannot be read") == 1


@pytest.mark.timing             # sanitizers have an allocator of their own, without such faults
def test_a_replay_waits_for_memory_for_a_message(faults: Faults) -> None:
    with Kept(keeping("stream all t/#"), faults.env) as broker:
        pub = broker.client("pub", clean=True)
        pub.send(Publish("t/1", b"7", 1, 1, props=((P.USER, ("k", "v" * 40_000)),)))
        assert isinstance(pub.read_packet(), Puback)
        reader = broker.client("reader", clean=True)
        faults.set(realloc_from=40_120)         # its record fits; the message to be sent, with its place, does not
        subscribe(reader, (f"{STREAM}/first/#", 1))
        until(lambda: faults.denied)
        reader.expect_nothing()
        faults.heal()
        assert numbers(got(reader, 1)) == [7]


def hogged(pub: Wire) -> list[Publish]:
    """Fill the memory with retained messages. Return the messages that clear them."""
    for n in range(1000):
        pub.send(Publish(f"h/{n}", bytes(40_000), 1, 1, retain=True))
        if pub.read_packet() == Puback(1, 0x97):
            return [Publish(f"h/{i}", b"", retain=True) for i in range(n)]
    raise AssertionError("40 MB fit into the memory")


@pytest.mark.one_process("several workers share memory_limit, so its values here are too small for each of them")
@pytest.mark.skipif(SANITIZED, reason="the sanitizer's memory is part of the process, which memory_limit bounds")
@pytest.mark.parametrize("qos", [0, 1])
def test_a_replay_waits_while_memory_is_short(qos: int) -> None:
    lines = ("stream all t/#", "memory_limit 4000000", "max_packet_size 10000000", "max_inflight_messages 10", "log_type all", "log_dest file {dir}/log")
    with Kept(keeping(*lines)) as broker:
        fill(broker, 0, 1500, size=6000)         # more than sockets can hold
        pub = broker.client("pub 2", clean=True)
        reader, quick = broker.client("reader", clean=True), broker.client("quick", clean=True)
        subscribe(reader, (f"{STREAM}/first/#", qos))
        subscribe(quick, (f"{STREAM}/1500/#", qos))
        first = got(reader, 10, ack=False)
        clear = hogged(pub)
        if qos:
            reader.send(*(Puback(packet.mid) for packet in first))
        found = numbers(first)
        reader.send(Pingreq())
        while (packet := reader.read_packet()) != Pingresp():         # messages on their way
            assert isinstance(packet, Publish)
            found.append(int(packet.payload.rstrip(b".")))
            if qos:
                reader.send(Puback(packet.mid))
        assert len(found) < 1500
        pub.send(*clear)
        found += numbers(got(reader, 1500 - len(found)))
        assert found == list(range(1500))
        fill(broker, 1500, 1510)
        assert numbers(got(quick, 10)) == list(range(1500, 1510))
        assert "dropped" not in (broker.dir / "log").read_text()


@pytest.mark.one_process("several workers share memory_limit, so its values here are too small for each of them")
@pytest.mark.skipif(SANITIZED, reason="as above")
def test_memory_pressure_drops_read_ahead_of_slow_readers_first() -> None:
    """Test that given-up messages are counted and read again: all arrive, in order."""
    with Kept(keeping("stream all t/# shards 2", "memory_limit 4000000", "max_inflight_messages 3", "max_queued_messages 5")) as broker:
        fill(broker, 0, 600, size=1000)
        readers = [broker.client(f"reader{n}", clean=True) for n in range(30)]
        firsts = []
        for reader in readers:
            subscribe(reader, (f"{STREAM}/first/#", 1))
            firsts.append(got(reader, 3, ack=False))        # then 64 KiB are held for it
        fill(broker, 600, 620, size=1000)
        retained = broker.client("retained", clean=True)
        for topic in ("big", "big too", "big 3"):
            retained.send(Publish(topic, bytes(500_000), 1, 1, retain=True))
            assert retained.read_packet() == Puback(1, 0x10)
        for reader, first in zip(readers, firsts, strict=True):
            reader.send(*(Puback(packet.mid) for packet in first))
            found = first + got(reader, 617)
            for shard in "01":
                of_shard = [int(place(packet)["mosq-seq"]) for packet in found if place(packet)["mosq-shard"] == shard]
                assert of_shard == list(range(len(of_shard)))
