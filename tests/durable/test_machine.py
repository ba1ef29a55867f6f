"""Test the invariants I1 to I10 of durable sessions, over a real broker that is killed.

Sessions connect, disconnect, take each other over, acknowledge out of order and end, publishers stop in the middle, the clock steps; a naive model
computes what each session must receive next.

    python -m tests.durable.test_machine [examples]        runs as long as wanted, with the big profile

I1 A message that was acknowledged to its publisher is pending for each subscribed session.
I2, I3 Messages arrive in order, without a gap.
I4 A message arrives once in a connection, and with DUP if sent before.
I5 A message whose acknowledgement is on record never arrives again.
I6 A QoS 2 message arrives once.
I7 No two messages in flight share a packet id, and a repeated message keeps its own.
I8 Only the last connection has the session.
I9 The store holds the pending records and no more.
I10 The will of a client without a stored session is sent once, also after a kill, unless the client disconnected.
"""

from __future__ import annotations

import itertools
import sys
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from mosq.tools.db.read import state_of
from mosq.tools.db.store import StoreSource
from tests.durable.test_restart import KEEP, Kept, subscribe
from tests.harness.effort import tries
from tests.harness.faults import Faults, until
from tests.harness.packets import (
    Connack, Connect, Disconnect, Pingreq, Pingresp, Puback, Pubcomp, Publish, Pubrec, Pubrel, Suback, Subscribe, Unsuback, Unsubscribe, Will,
)
from tests.harness.properties import P
from tests.harness.wire import Wire

NEVER = ((P.SESSION_EXPIRY, 0xFFFFFFFF),)
SESSIONS = 3
WHO = st.integers(0, SESSIONS - 1)
TOPIC = st.sampled_from("ab")
DAY_MS = 24 * 3600 * 1000
PREFIXES = itertools.count()


@dataclass
class Entry:
    payload: bytes
    qos: int
    brief: bool = False         # it expires within a day
    maybe: bool = False         # it may not exist: the broker did not acknowledge it
    sent: bool = False          # sent in some connection
    here: bool = False          # sent in this one
    dup: bool = False           # it may arrive with DUP though the test never saw it
    pid: int = 0
    released: bool = False      # at QoS 2: PUBREC is on record
    done: bool = False          # acknowledged, and not known to be on record


@dataclass
class Session:
    name: str
    level: int
    wire: Wire | None = None
    exists: bool = False
    left: bool = False          # disconnected, and no kill since
    settled: bool = False       # the offline state is on record
    ghosts: int = 0             # expired messages that may still exist
    filters: dict[str, int] = field(default_factory=dict)
    queue: list[Entry] = field(default_factory=list)


class World:
    """Run one broker for all examples, each with its own names."""

    broker: Kept
    faults: Faults

    @classmethod
    def begin(cls) -> None:
        cls.faults = Faults()
        cls.broker = Kept(KEEP + "max_inflight_messages 1000\nmax_queued_messages 0\n", cls.faults.env)
        cls.broker.start()

    @classmethod
    def end(cls) -> None:
        """Check I9: few records are pending. Each start begins a segment, so many exist until a broker runs long enough to clean."""
        try:
            subscribe(cls.broker.client("last"), ("a", 1))
            until(lambda: sum(f.stat().st_size for f in cls.broker.dir.glob("*.store/segment.*")) <= 3 * (16 << 20))
        finally:
            cls.broker.close()
            cls.faults.close()


def setup_module() -> None:
    World.begin()


def teardown_module() -> None:
    World.end()


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.prefix = f"m{next(PREFIXES)}"
        self.sessions = [Session(f"{self.prefix}-{i}", 4 + i % 2) for i in range(SESSIONS)]
        self.numbers = itertools.count(1)
        self.held: dict[int, tuple[str, bytes, bool]] = {}      # at QoS 2, between PUBREC and PUBREL; and whether a kill followed
        self.pub_exists = False
        self.dying: tuple[Wire, str, bytes] | None = None       # a client without a stored session, its will's topic and payload
        self.publisher()

    def teardown(self) -> None:
        for s in self.sessions:
            if s.wire is not None:
                s.wire.close()
        if self.dying is not None:
            self.dying[0].send(Disconnect())
            self.dying[0].close()
        self.pub.close()

    # ---- connections

    def dial(self, name: str, level: int, present: bool, clean: bool = False) -> Wire:
        wire = Wire(World.broker.port, level)
        wire.send(Connect(name, clean=clean, props=NEVER if level == 5 else ()))
        connack = wire.read_packet()
        assert isinstance(connack, Connack) and connack.rc == 0 and connack.session is present, connack
        return wire

    def publisher(self) -> None:
        self.pub = self.dial(f"{self.prefix}-pub", 5, self.pub_exists)
        self.pub_exists = True

    def barrier(self) -> None:
        """Wait until all earlier changes are on record."""
        self.pub.send(Subscribe(1, ((f"{self.prefix}/none", 0),)))
        assert isinstance(self.pub.read_packet(), Suback)
        for s in self.sessions:
            s.settled = s.settled or s.left
            s.queue = [e for e in s.queue if not e.done]

    @rule(who=WHO)
    def connect(self, who: int) -> None:
        """Check I8: an earlier connection is closed with the reason, and no other one."""
        s = self.sessions[who]
        before = s.wire
        if before is not None:
            self.receive(who)
        s.wire = self.dial(s.name, s.level, s.exists)
        if before is not None:
            if s.level == 5:
                assert before.read_packet() == Disconnect(0x8E)
            before.expect_closed()
            before.close()
        s.exists, s.left, s.settled = True, False, False
        for e in s.queue:
            e.here = False
        self.receive(who)

    @rule(who=WHO, politely=st.booleans())
    def leave(self, who: int, politely: bool) -> None:
        s = self.sessions[who]
        if s.wire is None:
            return
        self.receive(who)
        if politely:
            s.wire.send(Disconnect())
            s.wire.expect_closed()
        s.wire.close()
        s.wire, s.left, s.settled = None, True, False

    @rule(who=WHO)
    def end_session(self, who: int) -> None:
        """End the session by a clean start; a client of 5.0 then has a new one."""
        s = self.sessions[who]
        self.leave(who, True)
        s.wire = self.dial(s.name, s.level, False, clean=True)
        s.filters.clear()
        s.queue.clear()
        s.exists, s.left, s.settled, s.ghosts = s.level == 5, False, False, 0
        if s.level == 4:
            s.wire.close()
            s.wire = None

    # ---- subscriptions and messages

    @rule(who=WHO, topic=TOPIC, qos=st.integers(1, 2))
    def subscribe(self, who: int, topic: str, qos: int) -> None:
        s = self.sessions[who]
        if s.wire is None:
            self.connect(who)
        assert s.wire is not None
        self.receive(who)
        s.wire.send(Subscribe(2, ((f"{self.prefix}/{topic}", qos),)))
        assert s.wire.read_packet() == Suback(2, (qos,))
        s.filters[topic] = qos

    @rule(who=WHO, topic=TOPIC)
    def unsubscribe(self, who: int, topic: str) -> None:
        s = self.sessions[who]
        if s.wire is None:
            return
        self.receive(who)
        s.wire.send(Unsubscribe(3, (f"{self.prefix}/{topic}",)))
        assert isinstance(s.wire.read_packet(), Unsuback)
        s.filters.pop(topic, None)

    def owe(self, topic: str, payload: bytes, qos: int, *, brief: bool = False, maybe: bool = False, dup: bool = False) -> None:
        for s in self.sessions:
            if topic in s.filters:
                least = min(qos, s.filters[topic])
                s.queue.append(Entry(payload, least, brief, maybe, dup=dup and least == 1))

    def message(self, topic: str, qos: int, mid: int, brief: bool = False) -> tuple[bytes, Publish]:
        payload = b"%d" % next(self.numbers)
        return payload, Publish(f"{self.prefix}/{topic}", payload, qos, mid, props=((P.EXPIRY, 3600),) if brief else ())

    @rule(topic=TOPIC, brief=st.booleans(), n=st.integers(1, 4))
    def publish(self, topic: str, brief: bool, n: int) -> None:
        for _ in range(n):
            payload, packet = self.message(topic, 1, 7, brief)
            self.pub.send(packet)
            assert isinstance(self.pub.read_packet(), Puback)
            self.owe(topic, payload, 1, brief=brief)

    @rule(topic=TOPIC, releases=st.booleans())
    def publish_qos_2(self, topic: str, releases: bool) -> None:
        mid = next(m for m in itertools.count(10) if m not in self.held)
        payload, packet = self.message(topic, 2, mid)
        self.pub.send(packet)
        assert self.pub.read_packet() == Pubrec(mid) or not any(topic in s.filters for s in self.sessions)
        self.held[mid] = (topic, payload, False)
        if releases:
            self.release(mid)

    def release(self, mid: int) -> None:
        topic, payload, killed = self.held.pop(mid)
        self.pub.send(Pubrel(mid))
        assert self.pub.read_packet() == Pubcomp(mid)
        self.owe(topic, payload, 2, dup=killed)

    @precondition(lambda self: self.held)
    @rule()
    def release_one(self) -> None:
        self.release(next(iter(self.held)))

    # ---- wills of clients without a stored session: at most one, because several have no order

    @precondition(lambda self: self.dying is None)
    @rule(topic=TOPIC, level=st.integers(4, 5))
    def will_begins(self, topic: str, level: int) -> None:
        payload = b"%d" % next(self.numbers)
        wire = Wire(World.broker.port, level)
        wire.send(Connect(f"{self.prefix}-dying", clean=True, will=Will(f"{self.prefix}/{topic}", payload, 1)))
        assert isinstance(wire.read_packet(), Connack)
        self.dying = wire, topic, payload

    @precondition(lambda self: self.dying is not None)
    @rule(sends=st.booleans())
    def will_ends(self, sends: bool) -> None:
        assert self.dying is not None
        wire, topic, payload = self.dying
        sends = sends and wire.level == 5
        wire.send(Disconnect(4 if sends else 0))
        wire.expect_closed()
        wire.close()
        self.dying = None
        if sends:
            self.owe(topic, payload, 1)
        self.barrier()

    # ---- received packets

    @rule(who=WHO)
    def receive(self, who: int) -> None:
        s = self.sessions[who]
        if s.wire is None:
            return
        came = self.read(s, s.wire)
        if len(came) < sum(not e.here and not e.done for e in s.queue):
            # after a start the storage thread reads the pending messages: after two of its writes it has read those requested before
            self.barrier()
            self.barrier()
            came += self.read(s, s.wire)
        wanted = [e for e in s.queue if not e.here and not e.released and not e.done]
        for p in came:
            while wanted and wanted[0].payload != p.payload:
                gone = wanted.pop(0)
                assert gone.maybe, f"{s.name} got {p}, and not {gone}"
                s.queue.remove(gone)
            assert wanted, f"{s.name} got {p}: this message is not expected, or not yet"
            self.matches(s, wanted.pop(0), p)
        for e in wanted:
            assert e.maybe, f"{s.name} did not get {e}"
            s.queue.remove(e)
        for e in [e for e in s.queue if e.released and not e.here and not e.done]:
            assert e.maybe, f"{s.name} got no PUBREL for {e}"
            s.queue.remove(e)

    def read(self, s: Session, wire: Wire) -> list[Publish]:
        wire.send(Pingreq())
        came = []
        while not isinstance(packet := wire.read_packet(), Pingresp):
            if isinstance(packet, Pubrel):
                self.released_again(s, packet.mid)
            else:
                assert isinstance(packet, Publish), packet
                came.append(packet)
        return came

    def matches(self, s: Session, e: Entry, p: Publish) -> None:
        assert p.qos == e.qos and isinstance(p.mid, int)
        assert p.dup or not e.sent, (e, p)
        assert not p.dup or e.sent or e.dup, (e, p)
        assert e.pid in (0, p.mid), (e, p)
        assert not any(o.pid == p.mid for o in s.queue if o is not e and o.here and not o.done), (e, p)
        e.sent = e.here = True
        e.maybe, e.pid = False, p.mid

    def released_again(self, s: Session, mid: object) -> None:
        e = next((e for e in s.queue if e.released and e.pid == mid and not e.here and not e.done), None)
        assert e is not None, (s.name, mid)
        e.here, e.maybe = True, False

    @rule(who=WHO, which=st.integers(0, 5), fully=st.booleans())
    def acknowledge(self, who: int, which: int, fully: bool) -> None:
        s = self.sessions[who]
        mine = [e for e in s.queue if e.here and not e.done]
        if s.wire is None or not mine:
            return
        self.receive(who)
        e = mine[which % len(mine)]
        if e.qos == 1:
            s.wire.send(Puback(e.pid))
            e.done = True
        elif not e.released:
            s.wire.send(Pubrec(e.pid))
            assert s.wire.read_packet() == Pubrel(e.pid)
            e.released = True
        if e.released and fully:
            s.wire.send(Pubcomp(e.pid))
            e.done = True
        self.receive(who)

    @rule(who=WHO)
    def acknowledge_all(self, who: int) -> None:
        for _ in [e for e in self.sessions[who].queue if e.here and not e.done]:
            self.acknowledge(who, 0, True)

    # ---- kills

    @rule(settles=st.booleans(), later=st.sampled_from([False, False, True]), unread=st.sampled_from(["", "publish", "release"]), topic=TOPIC)
    def kill(self, settles: bool, later: bool, unread: str, topic: str) -> None:
        if settles:
            self.barrier()
        again = 0
        if unread == "publish":         # the test cannot know whether it was accepted
            payload, packet = self.message(topic, 1, 7)
            self.pub.send(packet)
            self.owe(topic, payload, 1, maybe=True, dup=True)
        elif unread and self.held and self.dying is None:        # a will has no order with this message
            again = next(iter(self.held))
            self.pub.send(Pubrel(again))
        World.broker.die()
        if later:
            World.faults.set(wall_ms=World.faults.wall_ms + DAY_MS)
        try:
            self.look(settles and not unread)
        finally:
            World.broker.start()
        for s in self.sessions:
            self.killed(s, later)
        if self.dying is not None:
            wire, topic, payload = self.dying
            wire.close()
            self.owe(topic, payload, 1)
            self.dying = None
        self.held = {mid: (topic, payload, True) for mid, (topic, payload, _) in self.held.items()}
        self.pub.close()
        self.publisher()
        if again:
            self.release(again)

    def killed(self, s: Session, later: bool) -> None:
        was_online = s.wire is not None or not s.settled
        if s.wire is not None:
            s.wire.close()
        s.wire, s.left = None, False
        for e in list(s.queue):
            e.dup = e.dup or was_online         # applies at each start until the offline state is on record
            if e.done:
                e.done, e.maybe = False, True
            if later and e.brief and not e.sent:
                if not e.dup:
                    s.queue.remove(e)
                    s.ghosts += 1
                e.maybe = True

    def look(self, is_exact: bool) -> None:
        """Check I9 in the files of the stopped broker."""
        state, loss, unreadable = state_of(StoreSource(str(World.broker.dir)))
        assert loss["n"] == 0 and unreadable.n == 0
        found = {one.id: one for one in state.sessions.values()}
        for s in self.sessions:
            if not s.exists:
                assert not is_exact or s.name.encode() not in found
                continue
            one = found[s.name.encode()]
            n = sum(1 for _ in one.queue.places()) + len(one.released)
            least = sum(not e.maybe and not e.done for e in s.queue)
            assert least <= n <= len(s.queue) + s.ghosts, (s, n)
            assert not is_exact or n == least or s.ghosts or any(e.maybe for e in s.queue), (s, n)


Machine.TestCase.settings = settings(max_examples=tries(30, 2), stateful_step_count=20, suppress_health_check=list(HealthCheck))
TestMachine = pytest.mark.again("properties")(Machine.TestCase)


if __name__ == "__main__":
    World.begin()
    try:
        big = settings(max_examples=int(sys.argv[1]) if len(sys.argv) > 1 else 200, stateful_step_count=60,
                       suppress_health_check=list(HealthCheck), print_blob=True)
        run_state_machine_as_test(Machine, settings=big)
    finally:
        World.end()
