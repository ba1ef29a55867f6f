"""Test the effects on a disk with streams, and on their files: each has one outcome (docs/journal.md, docs/storage.md)."""

from __future__ import annotations

import errno
import re
import select
from collections.abc import Iterator

import pytest

from mosq.journal.stream import Stream
from tests.durable.test_disk import QUOTA, spare_written
from tests.durable.test_restart import Kept, publish, read_publishes, subscribe
from tests.harness.effort import TIMEOUT_S
from tests.harness.faults import Faults, until
from tests.harness.packets import Puback, Pubcomp, Publish, Pubrec, Pubrel
from tests.harness.wire import Wire
from tests.streams.journalled import folder, keeping, payloads, stopped

pytestmark = pytest.mark.one_process("fills, damages and reads the files of one process; tests/workers/test_streams.py has those of workers")


@pytest.fixture
def faults() -> Iterator[Faults]:
    faults = Faults()
    yield faults
    faults.close()


def refused(pub: Wire) -> None:
    pub.send(Publish("a", b"no", 1, 6))
    assert pub.read_packet() == Puback(6, QUOTA)


def gauge(broker: Kept, name: str, stream: str = "all") -> int:
    """Return a gauge of $SYS."""
    wire = broker.client("gauge", clean=True, level=4)
    subscribe(wire, (f"$SYS/broker/streams/{stream}/{name}", 0))
    got = wire.read_packet()
    assert isinstance(got, Publish)
    wire.close()
    return int(got.payload)


def test_a_full_disk(faults: Faults) -> None:
    with Kept(keeping("stream all #"), faults.env) as broker:
        spare_written(broker.dir)
        pub, old = broker.client("pub", clean=True), broker.client("old", clean=True, level=4)
        publish(pub, "a", b"before")
        faults.set(full=1)
        old.send(Publish("a", b"old 1", 1, 1), Publish("a", b"old 2", 1, 2))         # cannot be refused: it waits, and the broker does not read from the client
        until(lambda: "Error: the disk is full" in broker.log())
        refused(pub)
        pub.send(Publish("a", b"no", 2, 7))
        assert pub.read_packet() == Pubrec(7, QUOTA)
        sub = broker.client("sub", clean=True, level=4)
        subscribe(sub, ("b", 0))
        pub.send(Publish("b", b"0", 0))                                                # accepted, and waits in memory
        assert isinstance(sub.read_packet(), Publish)
        faults.set(full=0)
        assert [old.read_packet(), old.read_packet()] == [Puback(1), Puback(2)]
        until(lambda: "The disk has room again" in broker.log())
        publish(pub, "a", b"after")
        found = payloads(stopped(broker))
        assert sorted(found) == sorted([b"before", b"old 1", b"0", b"old 2", b"after"]) and found[-1] == b"after"


@pytest.mark.parametrize("fault", ["write_errno", "sync_errno"])
def test_a_failing_disk(fault: str, faults: Faults) -> None:
    with Kept(keeping("stream all #", "durability strict"), faults.env) as broker:
        pub, old = broker.client("pub", clean=True), broker.client("old", clean=True, level=4)
        publish(pub, "a", b"before")
        faults.set(**{fault: errno.EIO})
        old.send(Publish("a", b"waits", 1, 1))
        until(lambda: "Error: the store: Cannot" in broker.log())
        refused(pub)
        faults.heal()
        assert old.read_packet() == Puback(1)
        until(lambda: "The store is written again" in broker.log())
        publish(pub, "a", b"after")
        broker.kill()
        publish(broker.client("pub", clean=True), "a", b"last")
        assert payloads(stopped(broker)) == [b"before", b"waits", b"after", b"last"]


def test_a_kill_between_the_journal_and_the_batch(faults: Faults) -> None:
    """Test records of a stream that no batch names: a start drops them. The client repeats PUBREL of a QoS 2 message; then it is written."""
    with Kept(keeping("stream all #"), faults.env) as broker:
        spare_written(broker.dir)
        broker.kill()
        pub = broker.client("pub", level=4)
        for i in range(1, 50):      # now and then another batch of the broker is written first, and waits
            pub.send(Publish("a", b"once %d" % i, 2, i))
            assert pub.read_packet() == Pubrec(i)
            faults.set(stalled=2)
            pub.send(Pubrel(i))
            until(lambda: faults.waiting)
            if any(b"once %d" % i in file.read_bytes() for file in folder(broker).glob("*.seg")):
                break
            faults.set(stalled=0)
            assert pub.read_packet() == Pubcomp(i)
        broker.die()
        faults.heal()
        faults.set(waiting=0)
        broker.start()
        pub = broker.client("pub", level=4)
        pub.send(Pubrel(i))
        assert pub.read_packet() == Pubcomp(i)
        publish(pub, "a", b"next")
        assert payloads(stopped(broker)) == [*(b"once %d" % j for j in range(1, i + 1)), b"next"]


def test_records_that_exceed_the_memory_are_dropped(faults: Faults) -> None:
    """Test a blocked disk: QoS 0 continues, and is in no stream when half of the bound waits; QoS 1 waits for the disk before that."""
    with Kept(keeping("stream all #", "sys_interval 1"), faults.env) as broker:
        pub, one = broker.client("pub", clean=True), broker.client("one", clean=True)
        sub = broker.client("sub", clean=True)
        subscribe(sub, ("end", 0))
        publish(pub, "a", b"first")
        faults.set(stalled=1)
        for _ in range(40):
            pub.send(Publish("a", bytes(1 << 20)))
        one.send(Publish("b", b"one", 1, 1))
        pub.send(Publish("end", b""))
        assert isinstance(sub.read_packet(), Publish)
        until(lambda: gauge(broker, "lost"))
        assert "Warning: stream all: the disk does not keep up" in broker.log()
        one.expect_nothing()
        faults.set(stalled=0)
        assert one.read_packet() == Puback(1, 0x10)
        until(lambda: "Stream all has room again" in broker.log())
        lost = sum(map(int, re.findall(r"Stream all has room again: (\d+) records are not in it", broker.log())))
        assert 5 < lost < 20
        found = stopped(broker)
        assert len(found) == 43 - lost and (found[0].payload, b"one" in payloads(found)) == (b"first", True)


def test_messages_without_room_are_refused_before_delivery(faults: Faults) -> None:
    """Test messages that are refused before any subscriber has them: QoS 1 is refused, QoS 2 stays to be released."""
    large = bytes(1 << 20)
    with Kept(keeping("stream all #"), faults.env) as broker:
        flood, two = broker.client("flood", clean=True, level=4), broker.client("two", level=4)
        ones = [broker.client(f"one{n}") for n in range(40)]
        two.send(Publish("two", large, 2, 1, retain=True))
        assert two.read_packet() == Pubrec(1)
        faults.set(stalled=1)
        for _ in range(32):
            flood.send(Publish("flood", large))
        for n, one in enumerate(ones):
            one.send(Publish(f"one/{n}", large, 1, 1, retain=True))
        ready = select.select([one.sock for one in ones], [], [], TIMEOUT_S)[0]
        assert all(one.read_packet() == Puback(1, QUOTA) for one in ones if one.sock in ready)
        two.send(Pubrel(1))
        two.expect_closed()
        sub = broker.client("sub", clean=True, level=4)
        subscribe(sub, ("two", 1))
        sub.expect_nothing()             # the message was not retained either
        sub.close()
        faults.set(stalled=0)
        told = [one.read_packet() for one in ones if one.sock not in ready]
        taken = told.count(Puback(1, 0x10))
        assert taken > 20 and ready and told.count(Puback(1, QUOTA)) == len(told) - taken
        two = broker.client("two", level=4)
        two.send(Pubrel(1))
        assert two.read_packet() == Pubcomp(1)
        sub = broker.client("sub", clean=True, level=4)
        subscribe(sub, ("one/+", 0), ("two", 0))
        kept = [packet.topic for packet in read_publishes(sub, taken + 1)]
        sub.expect_nothing()
        topics = [r.topic for r in stopped(broker) if r.topic != "flood"]
        assert sorted(topics) == sorted(kept) and len(set(kept)) == taken + 1


def test_a_second_broker(faults: Faults) -> None:
    with Kept(keeping("stream all #")) as broker, pytest.raises(RuntimeError, match="in use by another broker"):
        Kept(broker.config.read_text().replace(str(broker.port), "{port}")).start()


def test_shards_grow() -> None:
    with Kept(keeping("stream all #")) as broker:
        pub = broker.client("pub", clean=True)
        for n in range(20):
            publish(pub, f"t/{n}", b"1")
        broker.stop()
        text = broker.config.read_text()
        broker.config.write_text(text.replace("stream all #", "stream all # shards 3"))
        broker.start()
        pub = broker.client("pub", clean=True)
        for n in range(20):
            publish(pub, f"t/{n}", b"2")
        broker.stop()
        stream = Stream(folder(broker))
        topics = [[r.topic for r in stream.read(0, 100, shard=shard)] for shard in range(3)]
        assert len(topics[0]) > 20 and topics[1] and topics[2] and sum(map(len, topics)) == 40
        assert sorted(topics[0][20:] + topics[1] + topics[2]) == sorted(f"t/{n}" for n in range(20))
        broker.config.write_text(text.replace("stream all #", "stream all # shards 2"))
        with pytest.raises(RuntimeError, match="their number can only grow: write shards 3"):
            broker.start()
        broker.config.write_text(text)          # without a configured number the stream keeps its shards
        broker.start()
        assert "Stream all: 3 shards" in broker.log()


def test_damaged_files() -> None:
    with Kept(keeping("stream all #")) as broker:
        pub = broker.client("pub", clean=True)
        for n in range(50):
            publish(pub, "a", b"%d" % n)
        broker.die()
        for mark in folder(broker).glob("mark.*"):
            mark.write_bytes(b"x" * 100)
        broker.start()
        assert "the marks of the stream all were missing" in broker.log()
        publish(broker.client("pub", clean=True), "a", b"last")
        assert payloads(stopped(broker)) == [*(b"%d" % n for n in range(50)), b"last"]
        for segment in folder(broker).glob("*.seg"):
            segment.unlink()
        broker.start()
        assert "the stream all has lost 51 records: 0 to 50" in broker.log()
        publish(broker.client("pub", clean=True), "a", b"goes on")
        broker.stop()
        assert [(r.seq, r.payload) for r in Stream(folder(broker)).read(51, 60)] == [(51, b"goes on")]


def test_retention_waits_for_consumers() -> None:
    with Kept(keeping("stream all # retain_bytes 64K", "sys_interval 1")) as broker:
        stream = Stream(folder(broker))
        pub = broker.client("pub", clean=True)
        stream.put_consumer("slow", [0])
        for n in range(100):
            publish(pub, "a", bytes(2000))
        until(lambda: gauge(broker, "retired/unread"))
        until(lambda: "Warning: stream all: its retain_bytes took" in broker.log())
        until(lambda: stream.marks()[0].seq == 100)
        until(lambda: gauge(broker, "disk/bytes") <= 80 << 10)
        first = stream.marks()[0].first_seq
        assert first > 50 and [r.seq for r in stream.read(first, 200)] == list(range(first, 100))


def test_retention_needs_no_new_record() -> None:
    with Kept(keeping("stream all # retain_bytes 320K")) as broker:
        pub = broker.client("pub", clean=True)
        for _ in range(100):
            publish(pub, "a", bytes(2000))
        stream = Stream(folder(broker))
        until(lambda: stream.marks()[0].seq == 100)
        broker.config.write_text(broker.config.read_text().replace("320K", "64K"))
        broker.restart()
        until(lambda: sum(size for _, size in stream.sizes(0)) <= 80 << 10)
        assert stream.marks()[0].first_seq > 50
