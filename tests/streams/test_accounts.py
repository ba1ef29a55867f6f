"""Test the account of a session (the messages that were published to it at QoS 1 and 2, and their outcome) against the view of its client and a
model.
"""

from __future__ import annotations

import json
import random
import time
from dataclasses import dataclass, field

import pytest

from mosq.journal.kinds import NAMES
from mosq.journal.stream import Record
from tests.durable.test_restart import Kept, nothing_more, publish, read_publishes, subscribe
from tests.harness.broker import has_workers
from tests.harness.faults import Faults
from tests.harness.packets import Disconnect, Mid, Pingreq, Pingresp, Puback, Pubcomp, Publish, Pubrec, Pubrel, Unsuback, Unsubscribe
from tests.harness.properties import P
from tests.harness.wire import Wire
from tests.streams.journalled import keeping, stopped

EVENTS = "stream_events true"
QUEUE_MAX = 6
LEFT = ("acknowledged", "expired", "dropped", "gone", "queued")
COUNTERS = ("published", "delivered", "resent", "acknowledged", "expired", "dropped", "gone")


def accounts(found: list[Record], client: str) -> list[dict[str, int]]:
    """Return the last record of each counting, in their order."""
    last: dict[int, dict[str, int]] = {}
    for r in found:
        if NAMES[r.kind] == "account" and r.client_id == client:
            said = json.loads(r.payload)
            last[said["session"]] = said
            assert said["restored"] + said["published"] == sum(said[name] for name in LEFT), said
    return list(last.values())


def brief(account: dict[str, int]) -> dict[str, int]:
    return {name: n for name, n in account.items() if n and name != "session"}


@dataclass
class Sent:
    payload: bytes
    qos: int
    expires: bool = False
    before: bool = False        # the message was sent to the client
    released: bool = False      # QoS 2, and the client has sent PUBREC


@dataclass
class Model:
    """Model one client from its own view, and the expected sums of its accounts."""

    name: str
    broker: Kept
    wire: Wire | None = None
    subscribed: bool = False
    pending: list[Sent] = field(default_factory=list)
    mids: dict[bytes, Mid] = field(default_factory=dict)
    count: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTERS, 0))

    def arrives(self, sent: Sent, packet: object) -> None:
        assert isinstance(packet, Publish) and packet.payload == sent.payload and packet.qos == sent.qos and packet.dup == sent.before
        self.mids[sent.payload] = packet.mid
        self.count["resent" if sent.before else "delivered"] += 1
        sent.before = True

    def connect(self) -> None:
        if any(sent.expires for sent in self.pending):
            time.sleep(0.01)                 # the message is then more than a millisecond old, by any clock
        self.wire = self.broker.client(self.name)
        for sent in list(self.pending):
            if sent.expires and not sent.before:
                self.pending.remove(sent)
                self.count["expired"] += 1
        packets = [self.wire.read_packet() for _ in self.pending]         # a PUBREL waits for changes that are not on record
        assert [p for p in packets if isinstance(p, Pubrel)] == [Pubrel(self.mids[sent.payload]) for sent in self.pending if sent.released]
        for sent, packet in zip((s for s in self.pending if not s.released), (p for p in packets if not isinstance(p, Pubrel)), strict=True):
            self.arrives(sent, packet)

    def leave(self) -> None:
        assert self.wire is not None
        self.wire.send(Disconnect())
        self.wire.expect_closed()
        self.wire = None

    def subscribe(self) -> None:
        assert self.wire is not None
        subscribe(self.wire, (f"to/{self.name}", 2))
        self.subscribed = True

    def unsubscribe(self) -> None:
        assert self.wire is not None
        self.wire.send(Unsubscribe(3, (f"to/{self.name}",)))
        assert isinstance(self.wire.read_packet(), Unsuback)
        self.subscribed = False

    def published(self, sent: Sent) -> None:
        if not self.subscribed:
            return
        self.count["published"] += 1
        if self.wire is None and len(self.pending) >= QUEUE_MAX:
            self.count["dropped"] += 1
            return
        self.pending.append(sent)
        if self.wire is not None:
            self.arrives(sent, self.wire.read_packet())

    def answers(self, at: int, half: bool) -> None:
        assert self.wire is not None
        sent = self.pending[at]
        mid = self.mids[sent.payload]
        if sent.qos == 1:
            self.wire.send(Puback(mid))
        elif not sent.released:
            self.wire.send(Pubrec(mid))
            assert self.wire.read_packet() == Pubrel(mid)
            sent.released = True
            if half:
                return
            self.wire.send(Pubcomp(mid))
        else:
            self.wire.send(Pubcomp(mid))
        del self.pending[at]
        self.count["acknowledged"] += 1

    def ends(self) -> None:
        """End the session by a clean start."""
        wire = self.broker.client(self.name, clean=True)
        self.count["gone"] += len(self.pending)
        self.pending.clear()
        self.subscribed = False
        if self.wire is not None:
            self.wire.close()
        self.wire = wire


def put(pub: Wire, sent: Sent, client: Model) -> None:
    props = ((P.EXPIRY, 0),) if sent.expires else ()
    pub.send(Publish(f"to/{client.name}", sent.payload, sent.qos, 9, props=props))
    if sent.qos == 1:
        assert isinstance(pub.read_packet(), Puback)
    else:
        assert isinstance(pub.read_packet(), Pubrec)
        pub.send(Pubrel(9))
        assert isinstance(pub.read_packet(), Pubcomp)
    client.published(sent)


def settled(broker: Kept, clients: list[Model]) -> None:
    """Let all clients connect and leave, so that their accounts are written in an acknowledged batch."""
    for client in clients:
        if client.wire is None:
            client.connect()
        client.leave()
    publish(broker.client("settles", clean=True, level=4), "witness", b"", 1)


@pytest.mark.parametrize("seed", range(2))
def test_accounts_add_up_after_random_steps(seed: int) -> None:
    chance = random.Random(seed)
    with Kept(keeping(EVENTS, f"max_queued_messages {QUEUE_MAX}")) as broker:
        witness = broker.client("witness")
        subscribe(witness, ("witness", 1))
        clients = [Model("a", broker), Model("b", broker)]
        for client in clients:
            client.connect()
            client.subscribe()
        pub = broker.client("pub", clean=True)
        number = 0
        restarts = iter([30, 60])
        again = next(restarts)
        for step in range(90):
            client = chance.choice(clients)
            what = chance.random()
            if step == again:
                again = next(restarts, 0)
                settled(broker, clients)
                if chance.random() < 0.75:
                    broker.kill()
                else:
                    assert broker.stop() == 0
                    broker.start()
                pub = broker.client("pub", clean=True)
            elif what < 0.4 and (client.wire is None or len(client.pending) < 15):
                number += 1
                # a message for another worker expires up to a second later
                expires = client.wire is None and chance.random() < 0.2 and not has_workers()       # a QoS 2 message would end before its release
                put(pub, Sent(b"%d" % number, 1 if expires else chance.choice((1, 2)), expires), client)
            elif client.wire is None:
                client.connect()
            elif what < 0.8 and client.pending:
                client.answers(chance.randrange(len(client.pending)), chance.random() < 0.5)
            elif what < 0.93:
                client.leave()
            elif what < 0.96:
                client.unsubscribe()
            elif what < 0.98:
                client.ends()
                client.subscribe()
            else:
                client.subscribe()
        settled(broker, clients)
        found = stopped(broker, "events")
        for client in clients:
            periods = accounts(found, client.name)
            assert {name: sum(p[name] for p in periods) for name in COUNTERS} == client.count
            assert periods[-1]["queued"] == len(client.pending)
            drops = sum(NAMES[r.kind] == "drop" and r.client_id == client.name and r.reason == 0 for r in found)
            assert drops == client.count["dropped"]


@pytest.mark.one_process("waiting messages of a group go to other members at the worker of the session that ended")
def test_messages_for_another_group_member_count_as_gone() -> None:
    with Kept(keeping(EVENTS)) as broker:
        one = broker.client("one")
        subscribe(one, ("$share/g/s", 1), ("own", 1))
        one.send(Disconnect())
        one.expect_closed()
        pub = broker.client("pub", clean=True, level=4)
        for _ in range(3):
            publish(pub, "s", b"")
        publish(pub, "own", b"")
        two = broker.client("two")
        subscribe(two, ("$share/g/s", 1))
        broker.client("one", clean=True).send(Disconnect())
        for packet in read_publishes(two, 3):
            two.send(Puback(packet.mid))
        two.send(Disconnect())
        two.expect_closed()
        found = stopped(broker, "events")
        first, second = accounts(found, "one")
        assert brief(first) == {"published": 4, "gone": 4, "ended": True}
        assert brief(second) == {} and second["session"] > first["session"]
        assert [brief(a) for a in accounts(found, "two")] == [{"published": 3, "delivered": 3, "acknowledged": 3}]


def test_queued_qos_0_messages_are_not_in_the_account() -> None:
    with Kept(keeping(EVENTS, "queue_qos0_messages true")) as broker:
        one = broker.client("one")
        subscribe(one, ("#", 1))
        one.send(Disconnect())
        one.expect_closed()
        pub = broker.client("pub", clean=True, level=4)
        pub.send(Publish("a", b"0"), Publish("a", b"1", 0))
        publish(pub, "b", b"2")
        one = broker.client("one")
        read_publishes(one, 3)
        one.send(Disconnect())
        one.expect_closed()
        broker.client("one", clean=True)
        found = stopped(broker, "events")
        assert [brief(a) for a in accounts(found, "one")] == [{"published": 1, "delivered": 1, "gone": 1, "ended": True}, {}]


def test_an_error_code_counts_as_an_acknowledgement() -> None:
    """Test [v5 4.8.2-6]: a refusal is an answer; a refusal in PUBREC also ends the handshake."""
    with Kept(keeping(EVENTS)) as broker:
        one = broker.client("one")
        subscribe(one, ("#", 2))
        pub = broker.client("pub", clean=True, level=4)
        publish(pub, "a", b"1", 1)
        publish(pub, "a", b"2", 2)
        first, second = read_publishes(one, 2)
        one.send(Puback(first.mid, 0x97), Pubrec(second.mid, 0x83))
        nothing_more(one)
        one.send(Disconnect())
        one.expect_closed()
        assert [brief(a) for a in accounts(stopped(broker, "events"), "one")] == [{"published": 2, "delivered": 2, "acknowledged": 2}]


def test_sessions_that_end_with_their_connection_have_no_account() -> None:
    with Kept(keeping(EVENTS)) as broker:
        one = broker.client("one", clean=True, level=4)
        subscribe(one, ("#", 1))
        publish(broker.client("pub", clean=True, level=4), "a", b"1", 1)
        read_publishes(one, 1)
        one.send(Disconnect())
        one.expect_closed()
        assert [r for r in stopped(broker, "events") if NAMES[r.kind] == "account"] == []


@pytest.mark.one_process("a worker writes a due account when it looks at its clock; the request of a client reaches one of them")
def test_an_account_is_written_once_a_minute_after_changes() -> None:
    """Test the account of a connected client: written a minute after the first change, then not before the next change."""
    faults = Faults()
    with Kept(keeping(EVENTS), faults.env) as broker:
        one = broker.client("one", keepalive=0)
        subscribe(one, ("a", 1))
        pub = broker.client("pub", clean=True, level=4, keepalive=0)
        for n in (1, 2):
            publish(pub, "a", b"")
            one.send(Puback(read_publishes(one, 1)[0].mid), Pingreq())
            assert one.read_packet() == Pingresp()
            for later_s in (61 * n, 61 * n + 30 * (n - 1)):
                faults.set(later_s=later_s)
                pub.send(Pingreq())                          # the broker checks the clock and due accounts before it answers
                assert pub.read_packet() == Pingresp()
        one.send(Disconnect())
        one.expect_closed()
        told = [json.loads(r.payload) for r in stopped(broker, "events") if NAMES[r.kind] == "account"]
        assert [brief(account) for account in told] == [{"published": n, "delivered": n, "acknowledged": n} for n in (1, 2, 2)]
    faults.close()
