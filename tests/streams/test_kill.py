"""Test repeated kill -9 under load: acknowledged messages are in the stream once, numbers continue, no record is torn."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import closing

import pytest

from mosq.journal.stream import Stream
from tests.durable.test_disk import spare_written
from tests.durable.test_restart import Kept, offline_subscriber, publish, read_publishes, subscribe
from tests.harness import packets
from tests.harness.effort import tries
from tests.harness.faults import Faults, until
from tests.harness.packets import Connack, Connect, Puback, Pubcomp, Publish, Pubrec, Pubrel
from tests.harness.wire import Wire
from tests.streams.journalled import folder, keeping, stopped

pytestmark = pytest.mark.one_process("kills one process, and reads its files; tests/workers/test_streams.py kills workers")

KILLS = tries(8, 2)
WINDOW = 40


class Sender:
    """Publish QoS 1 and 2 with a session. After a kill, replace unacknowledged QoS 1 messages by new ones, and continue QoS 2."""

    def __init__(self, broker: Kept, name: str, dice: random.Random) -> None:
        self.broker, self.name, self.dice = broker, name, dice
        self.n = 0
        self.open: dict[int, tuple[bytes, int, bool]] = {}      # packet id: (payload, qos, PUBREC was seen)
        self.sent: set[bytes] = set()
        self.done: set[bytes] = set()
        self.twos: set[bytes] = set()       # those of QoS 2

    def connect(self) -> None:
        wire = self.broker.wire(4)
        wire.send(Connect(self.name, clean=False))
        assert isinstance(wire.read_packet(), Connack)
        self.go_on(wire)

    def go_on(self, wire: Wire) -> None:
        """Continue with a new connection."""
        self.wire = wire
        self.open = {mid: state for mid, state in self.open.items() if state[1] == 2}
        for mid, (payload, _, released) in self.open.items():
            self.wire.send(Pubrel(mid) if released else Publish(self.topic(payload), payload, 2, mid, dup=True))

    def topic(self, payload: bytes) -> str:
        return f"{self.name}/{payload[-1]}"

    def fill(self) -> None:
        out = []
        while len(self.open) < WINDOW:
            self.n += 1
            mid = next(mid for mid in range(self.n % 60000 + 1, 65536) if mid not in self.open)
            payload, qos = b"%s %d" % (self.name.encode(), self.n), self.dice.choice((1, 2))
            self.open[mid] = payload, qos, False
            self.sent.add(payload)
            if qos == 2:
                self.twos.add(payload)
            out.append(Publish(self.topic(payload), payload, qos, mid))
        self.wire.send(*out)

    def take(self) -> bool:
        """Handle one packet; return False if there are no more."""
        raw = self.wire.read_frame()
        if raw is None:
            return False
        packet = packets.decode(4, raw)
        assert isinstance(packet, Puback | Pubrec | Pubcomp)
        payload, _, _ = self.open[packet.mid]
        if isinstance(packet, Pubrec):
            self.open[packet.mid] = payload, 2, True
            try:
                self.wire.send(Pubrel(packet.mid))
            except OSError:
                return False
            return True
        self.done.add(payload)
        del self.open[packet.mid]
        return True


@pytest.mark.again("kills")
@pytest.mark.parametrize("durability", ["group", "strict"])
def test_acknowledged_messages_are_in_the_stream_once(durability: str) -> None:
    dice = random.Random(durability)
    lines = ("stream all #", "stream odd +/49 +/51", "max_inflight_messages 0", f"durability {durability}")
    with Kept(keeping(*lines)) as broker:
        senders = [Sender(broker, name, dice) for name in ("a", "b")]
        for _ in range(KILLS):
            for sender in senders:
                sender.connect()
            for _ in range(dice.randrange(3, 15)):
                for sender in senders:
                    sender.fill()
                    for _ in range(dice.randrange(1, WINDOW)):
                        sender.take()
            broker.die()
            for sender in senders:
                while sender.take():
                    pass
            broker.start()
        for sender in senders:
            sender.connect()
            while sender.open:
                sender.take()
        found = stopped(broker)
        assert [r.seq for r in found] == list(range(len(found)))
        counts = Counter(r.payload for r in found)
        for sender in senders:
            assert {p for p in sender.done if counts[p] != 1} == set()
        assert set(counts) <= senders[0].sent | senders[1].sent and set(counts.values()) == {1}
        some = [r.payload for r in Stream(folder(broker, "odd")).read(0, len(found))]
        assert some == [r.payload for r in found if r.topic.endswith(("/49", "/51"))]
        assert "lost" not in broker.log()


def store_bytes(broker: Kept) -> bytes:
    return b"".join(file.read_bytes() for file in sorted((broker.dir / "mosquitto.db.store").glob("*")) if file.is_file())


@pytest.mark.parametrize("retain", [False, True])
def test_a_message_released_twice_is_in_the_stream_once(retain: bool) -> None:
    """Test a kill after the first slice of a fan-out: the batch of the journal is written, the release is not done."""
    faults = Faults()
    with closing(faults), Kept(keeping("stream all #", "turn_budget 1000", "durability_interval 0", "sys_interval 0"), faults.env) as broker:
        spare_written(broker.dir)
        for n in range(70):              # a slice is of 64
            subscribe(broker.client(f"sub{n}", clean=True, level=4), ("a", 0))
        pub = broker.client("pub", level=4)
        pub.send(Publish("a", b"once only", 2, 1, retain))
        assert pub.read_packet() == Pubrec(1)
        before = store_bytes(broker)
        faults.set(sends=1)
        pub.send(Pubrel(1))
        until(lambda: faults.waiting and any(b"once only" in file.read_bytes() for file in folder(broker).glob("*.seg")))
        until(lambda: store_bytes(broker) != before)
        broker.die()
        faults.heal()
        faults.set(waiting=0)
        for _ in range(2):              # kill it again before the release is done
            broker.start()
            broker.die()
        broker.start()
        sub = broker.client("sub", clean=True, level=4)
        subscribe(sub, ("a", 0))
        if retain:
            assert sub.read_packet() == Publish("a", b"once only", 0, retain=True)
        pub = broker.client("pub", level=4)
        pub.send(Pubrel(1))
        assert pub.read_packet() == Pubcomp(1)
        assert sub.read_packet() == Publish("a", b"once only")       # subscribers get it, perhaps again
        pub.send(Publish("a", b"once only", 2, 1), Pubrel(1))         # another message
        assert [pub.read_packet(), pub.read_packet()] == [Pubrec(1), Pubcomp(1)]
        assert [r.payload for r in stopped(broker)] == [b"once only"] * 2


def test_a_kill_during_a_fan_out_loses_no_delivery() -> None:
    """Subscribers of the first slice get the QoS 2 message again, as docs/storage.md says; no subscriber misses it."""
    faults = Faults()
    with closing(faults), Kept(keeping("turn_budget 1000", "durability_interval 0", "sys_interval 0"), faults.env) as broker:
        for n in range(5):
            offline_subscriber(broker, ("a", 2), name=f"early{n}")
        for n in range(70):              # a slice is of 64
            subscribe(broker.client(f"sub{n}", clean=True, level=4), ("a", 0))
        for n in range(5):
            offline_subscriber(broker, ("a", 2), name=f"late{n}")
        pub = broker.client("pub", level=4)
        pub.send(Publish("a", b"all", 2, 1))
        assert pub.read_packet() == Pubrec(1)
        before = store_bytes(broker)
        faults.set(sends=1)
        pub.send(Pubrel(1))
        until(lambda: faults.waiting and store_bytes(broker) != before)
        broker.die()
        faults.heal()
        broker.start()
        pub = broker.client("pub", level=4)
        pub.send(Pubrel(1))
        assert pub.read_packet() == Pubcomp(1)
        publish(pub, "a", b"end", 2)
        copies = {name: queued(broker, name) for name in (*(f"early{n}" for n in range(5)), *(f"late{n}" for n in range(5)))}
        assert {copies[f"early{n}"] for n in range(5)} <= {1, 2}
        assert {copies[f"late{n}"] for n in range(5)} == {1}


def queued(broker: Kept, name: str) -> int:
    """Return the number of messages that wait for the session before the last one."""
    wire = broker.client(name, session=True)
    got = read_publishes(wire, 1)
    while got[-1].payload != b"end":
        got += read_publishes(wire, 1)
    assert {packet.payload for packet in got[:-1]} <= {b"all"}
    return len(got) - 1


def test_a_packet_id_reused_during_a_fan_out_stays() -> None:
    """Test a session that returns on another connection: it also waits for the fan-out of the first connection's release."""
    with Kept(keeping("turn_budget 1000", "durability_interval 0")) as broker:
        subs = [broker.client(f"sub{n}", clean=True, level=4) for n in range(600)]       # a slice is of 64
        for sub in subs:
            subscribe(sub, ("a", 0))
        pub = broker.client("pub", level=4)
        pub.send(Publish("a", b"one", 2, 1))
        assert pub.read_packet() == Pubrec(1)
        again = broker.wire(4)
        pub.send(Pubrel(1))
        again.send(Connect("pub", clean=False), Publish("b", b"two", 2, 1))
        assert [again.read_packet(), again.read_packet()] == [Connack(session=True), Pubrec(1)]
        for sub in subs:
            assert sub.read_packet() == Publish("a", b"one")
        again.send(Publish("c", b"", 1, 2))      # its record follows all earlier records
        assert again.read_packet() == Puback(2)
        broker.die()
        broker.start()
        sub = broker.client("sub", clean=True, level=4)
        subscribe(sub, ("b", 0))
        pub = broker.client("pub", level=4)
        pub.send(Pubrel(1))
        assert pub.read_packet() == Pubcomp(1)
        assert sub.read_packet() == Publish("b", b"two")
