"""Run a sequence of actions with the broker and the model, and compare the messages that each client gets.

A witness subscribes to everything at QoS 0; it shows when a message has been routed. Each connection has a will, which shows
that the broker has noticed a lost connection. No step waits for a fixed time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count

from tests.harness.packets import (
    Connack,
    Connect,
    Disconnect,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Received,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
    Will,
)  # fmt: skip
from tests.harness.properties import P
from tests.harness.wire import Wire
from tests.model.model import Model, PendingMessage

Action = tuple[object, ...]  # a method of Driver and its arguments
FILTERS = ("/a", "/+", "/#", "/a/b", "/+/b")
TOPICS = ("/a", "/b", "/a/b")
_runs = count(1)


@dataclass
class Peer:
    name: str
    level: int
    wire: Wire | None = None
    inbox: list[Received] = field(default_factory=list)
    will: Will | None = None
    unsettled: list[Publish] = field(default_factory=list)  # the client's own QoS 1 and 2 messages whose handshake was cut off
    released: set[int] = field(default_factory=set)  # packet ids of those for which PUBREC arrived
    mids: count[int] = field(default_factory=lambda: count(1))


class Driver:
    def __init__(self, port: int, levels: tuple[int, ...], merged: bool = False) -> None:
        self.port = port
        self.prefix = f"m{next(_runs)}"
        self.model = Model(merged)
        self.payloads = count(1)
        self.peers = [Peer(f"{self.prefix}c{n}", level) for n, level in enumerate(levels)]
        self.witness = Wire(port, 4)
        self.witness.send(Connect(f"{self.prefix}w"), Subscribe(1, ((f"{self.prefix}/#", 0),)))
        assert isinstance(self.witness.read_packet(), Connack)
        self.witness.expect_packet(Suback(1, (0,)))
        self.witnessed = 0

    def play(self, actions: list[Action]) -> None:
        try:
            for verb, who, *rest in actions:
                assert isinstance(who, int)
                getattr(self, str(verb))(self.peers[who], *rest)
            self.settle()
        finally:
            for wire in (self.witness, *(p.wire for p in self.peers)):
                if wire is not None:
                    wire.close()

    # -- actions; an action that is impossible at the moment does nothing

    def connect(self, peer: Peer, persistent: bool, will_qos: int) -> None:
        if peer.wire is not None:  # a take-over
            old, peer.wire = peer.wire, None
            peer.inbox.clear()
            will, peer.will = peer.will, None
            present = self._connect(peer, persistent, will_qos, lost=will)
            old.close()
        else:
            present = self._connect(peer, persistent, will_qos, None)
        if not present:
            peer.unsettled.clear()
            peer.released.clear()
        for mine in peer.unsettled:
            self._resume(peer, mine)
        peer.unsettled.clear()
        peer.released.clear()

    def drop(self, peer: Peer) -> None:
        if peer.wire is None:
            return
        peer.wire.close()
        peer.wire = None
        peer.inbox.clear()
        will, peer.will = peer.will, None
        self.model.lost(peer.name)
        assert will is not None
        self.model.route(will.topic, will.payload, will.qos, False)
        self._witness()

    def disconnect(self, peer: Peer) -> None:
        if peer.wire is None:
            return
        peer.wire.send(Disconnect())
        while peer.wire.read_frame() is not None:
            pass
        peer.wire.close()
        peer.wire = peer.will = None
        peer.inbox.clear()
        self.model.lost(peer.name)

    def subscribe(self, peer: Peer, pattern: int, qos: int) -> None:
        if peer.wire is None:
            return
        text, mid = self.prefix + FILTERS[pattern], next(peer.mids)
        peer.wire.send(Subscribe(mid, ((text, qos),)))
        self.model.subscribe(peer.name, text, qos)
        self._answer(peer, Suback(mid, (qos,)))

    def unsubscribe(self, peer: Peer, pattern: int) -> None:
        if peer.wire is None:
            return
        text, mid = self.prefix + FILTERS[pattern], next(peer.mids)
        peer.wire.send(Unsubscribe(mid, (text,)))
        got = self._await(peer, Unsuback, mid)
        known = text in self.model.sessions[peer.name].subscriptions
        assert peer.level < 5 or getattr(got, "codes", ()) == ((0,) if known else (0x11,)), got
        self.model.unsubscribe(peer.name, text)

    def publish(self, peer: Peer, topic: int, qos: int, retain: bool, empty: bool, cut: int) -> None:
        """Publish. cut 0: complete the handshake; else close after 1: PUBLISH, 2: PUBREC (before PUBREL), 3: PUBREL."""
        if peer.wire is None:
            return
        payload = b"" if empty and retain else b"%d" % next(self.payloads)
        packet = Publish(self.prefix + TOPICS[topic], payload, qos, next(peer.mids) if qos else 0, retain)
        peer.wire.send(packet)
        if qos == 0:
            self._route(packet)
            return
        if cut == 1 or qos == 1:
            self._after_publish(peer, packet, cut)
            return
        self._await(peer, Pubrec, packet.mid)
        if cut == 2:
            self._cut(peer, packet, released=True)
            return
        peer.wire.send(Pubrel(packet.mid))
        if cut == 3:
            self._route(packet)
            self._cut(peer, None)
            return
        self._await(peer, Pubcomp, packet.mid)
        self._route(packet)

    def receive(self, peer: Peer, how: int) -> None:
        """Read all packets. how 0: acknowledge none; 1: send PUBREC only; 2: acknowledge all; 3: send PUBREC, then close."""
        if peer.wire is None:
            return
        if older := self._older(peer, how):
            peer.wire.send(*older)
        while True:
            self._ping(peer)
            answers = [a for packet in self._take(peer) for a in self._judge(peer, packet, how)]
            if answers:
                peer.wire.send(*answers)
            if how == 3 or not answers:
                break
        if how == 3:
            self.drop(peer)
            return
        session = self.model.sessions[peer.name]
        assert not self.model.missing(peer.name), f"{peer.name} never got {self.model.missing(peer.name)}"
        assert how != 2 or not session.pending, f"{peer.name}: not completed {session.pending}"

    def settle(self) -> None:
        """Connect each client that has a session again, and take the rest of its messages."""
        for peer in self.peers:
            if peer.wire is None and peer.name in self.model.sessions:
                self.connect(peer, True, 0)
        self._witness()
        for peer in self.peers:
            self.receive(peer, 2)
        for peer in self.peers:  # remove all sessions
            self.disconnect(peer)
            self.connect(peer, False, 0)
            self.disconnect(peer)
        for topic in self.model.retained:
            self.witness.send(Publish(topic, b"", 0, 0, True))

    # -- parts of actions

    def _connect(self, peer: Peer, persistent: bool, will_qos: int, lost: Will | None) -> bool:
        will = Will(f"{self.prefix}/will/{peer.name}", b"will %d" % next(self.payloads), will_qos)
        props = ((P.SESSION_EXPIRY, 3600),) if persistent else ()
        wire = Wire(self.port, peer.level)
        wire.send(Connect(peer.name, not persistent, 60, will, props=props))
        if lost is not None:  # take-over [v5 3.1.4-3]; a clean start also ends the session, which then does not get the will
            goes_on = persistent and self.model.sessions[peer.name].persistent
            if persistent:
                self.model.lost(peer.name)
            else:
                self.model.sessions.pop(peer.name, None)
            if peer.level == 5 or not goes_on:           # takeover_will v5: a session of 3.x that goes on sends no will
                self.model.route(lost.topic, lost.payload, lost.qos, False)
        got = wire.read_packet()
        present = self.model.connect(peer.name, persistent)
        assert isinstance(got, Connack) and (got.rc, got.session) == (0, present and peer.level > 3), (got, present)
        peer.wire, peer.will = wire, will
        self._witness()
        return present

    def _resume(self, peer: Peer, mine: Publish) -> None:
        """Continue the handshake of our own message that was cut off [v5 4.4.0-1]."""
        assert peer.wire is not None
        known = mine.payload in self.model.routed and bool(mine.payload)
        if mine.mid not in peer.released:
            peer.wire.send(Publish(mine.topic, mine.payload, mine.qos, mine.mid, mine.retain, True))
            if mine.qos == 1:
                self._await(peer, Puback, mine.mid)
                self._route(mine)
                return
            self._await(peer, Pubrec, mine.mid)
        peer.wire.send(Pubrel(mine.mid))
        self._await(peer, Pubcomp, mine.mid)
        if not known:
            self._route(mine)
        self._witness()

    def _after_publish(self, peer: Peer, packet: Publish, cut: int) -> None:
        if packet.qos == 1 and cut == 0:
            self._await(peer, Puback, packet.mid)
            self._route(packet)
        elif packet.qos == 1:
            self._route(packet)
            self._cut(peer, packet)
        else:
            self._cut(peer, packet)

    def _cut(self, peer: Peer, packet: Publish | None, released: bool = False) -> None:
        """Lose the connection during the handshake of our message.

        The broker may route a QoS 2 message once, at its PUBLISH or at its PUBREL; the witness sees which."""
        if packet is not None:
            peer.unsettled.append(packet)
            if released:
                assert isinstance(packet.mid, int)
                peer.released.add(packet.mid)
        assert peer.wire is not None and peer.will is not None
        session, will = peer.name, peer.will
        peer.wire.close()
        peer.wire = peer.will = None
        peer.inbox.clear()
        if packet is not None and packet.qos == 2:
            first = self.witness.read_packet()
            assert isinstance(first, Publish)
            if first.payload != will.payload:
                assert first.payload == packet.payload, first
                self.model.route(packet.topic, packet.payload, packet.qos, packet.retain)
                self.witnessed += 1
                first = self.witness.read_packet()
            assert isinstance(first, Publish) and first.payload == will.payload, first
            self.model.lost(session)
            self.model.route(will.topic, will.payload, will.qos, False)
            self.witnessed += 1
        else:
            self.model.lost(session)
            self.model.route(will.topic, will.payload, will.qos, False)
        self._witness()

    def _route(self, packet: Publish) -> None:
        self.model.route(packet.topic, packet.payload, packet.qos, packet.retain)
        self._witness()

    def _witness(self) -> None:
        """Check that the witness gets all messages that the model has routed, in this order, and no others."""
        for payload in self.model.routed[self.witnessed :]:
            got = self.witness.read_packet()
            assert isinstance(got, Publish) and got.payload == payload, f"the witness wants {payload!r}, got {got}"
        self.witnessed = len(self.model.routed)
        self.witness.expect_nothing()

    def _await(self, peer: Peer, kind: type, mid: object) -> Received:
        assert peer.wire is not None
        while True:
            got = peer.wire.read_packet()
            if isinstance(got, kind) and getattr(got, "mid", None) == mid:
                assert getattr(got, "rc", 0) in (0, 0x10, 0x92), got
                return got
            peer.inbox.append(got)

    def _answer(self, peer: Peer, want: Suback) -> None:
        got = self._await(peer, Suback, want.mid)
        assert got == want, got

    def _ping(self, peer: Peer) -> None:
        assert peer.wire is not None
        peer.wire.send(Pingreq())
        while not isinstance(got := peer.wire.read_packet(), Pingresp):
            peer.inbox.append(got)

    def _take(self, peer: Peer) -> list[Received]:
        taken, peer.inbox = peer.inbox, []
        return taken

    def _judge(self, peer: Peer, packet: Received, how: int) -> list[Puback | Pubrec | Pubcomp]:
        """Check one packet that arrived for a subscriber; return its answers."""
        session = self.model.sessions[peer.name]
        if isinstance(packet, Publish):
            assert isinstance(packet.mid, int)
            pending = self.model.deliver(peer.name, packet.topic, packet.payload, packet.qos, packet.retain, packet.mid, packet.dup)
        else:
            assert isinstance(packet, Pubrel), packet
            pending = next(o for o in session.pending if o.mid == packet.mid and o.received)
            pending.seen = pending.released = True
            if how == 2:
                self.model.finish(peer.name, pending)
                return [Pubcomp(packet.mid)]
            return []
        return self._acknowledge(peer, pending, how)

    def _acknowledge(self, peer: Peer, pending: PendingMessage, how: int) -> list[Puback | Pubrec | Pubcomp]:
        assert pending.mid is not None
        if pending.qos == 2 and how:
            pending.received = True
            return [Pubrec(pending.mid)]
        if pending.qos == 1 and how == 2:
            self.model.finish(peer.name, pending)
            return [Puback(pending.mid)]
        return []

    def _older(self, peer: Peer, how: int) -> list[Puback | Pubrec | Pubcomp]:
        """Return the answers to packets that an earlier receive() on this connection read but did not answer."""
        answers: list[Puback | Pubrec | Pubcomp] = []
        for pending in [o for o in self.model.sessions[peer.name].pending if o.seen]:
            if not pending.received:
                answers += self._acknowledge(peer, pending, how)
            elif pending.released and how == 2:
                assert pending.mid is not None
                self.model.finish(peer.name, pending)
                answers.append(Pubcomp(pending.mid))
        return answers
