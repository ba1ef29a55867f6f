"""Compare acknowledged messages with delivered ones, by sequence numbers. It uses no sockets: the clients report each packet.

    lost        a message was acknowledged to its publisher, and a session that was subscribed before never got it
    doubled     a session got a QoS 2 message more than once (after the receiver has compared packet ids at QoS 2; at QoS 1 a copy
                with DUP does not count)
    no dup      a message arrived again without DUP, though its publisher sent it once
    order       the first copies of a publisher's messages did not arrive in the order in which they were sent
    again       a message arrived again although the broker had read its acknowledgement
    session     a session is lost: CONNACK reports no session present
    shared id   a second message got a packet id while the first was in flight
    foreign     a message arrived at a session that did not subscribe to it, or was never sent
    will        the will of a lost client did not arrive or arrived twice, or a will arrived although its client sent DISCONNECT
    stale       a message arrived after it had expired
    retained    the retained message of a topic is older than the last acknowledged one, or newer than the last sent
"""

from __future__ import annotations

from dataclasses import dataclass, field

TOLD = 10
KINDS = ("lost", "doubled", "no dup", "order", "again", "session", "shared id", "foreign", "retained", "will", "stale")


@dataclass(slots=True)
class Sent:
    """Record the messages of one publisher; sequence numbers begin with 1."""

    name: str
    qos: int
    group: int
    last: int = 0                                                   # highest sequence number sent
    acked: bytearray = field(default_factory=bytearray)             # index: sequence number minus one
    sends: bytearray = field(default_factory=bytearray)             # number of times sent, at most 255
    refused: set[int] = field(default_factory=set)

    def sent(self, seq: int) -> None:
        if seq > self.last:
            assert seq == self.last + 1
            self.last = seq
            self.acked.append(0)
            self.sends.append(0)
        self.sends[seq - 1] = min(self.sends[seq - 1] + 1, 255)

    def copies_allowed(self, seq: int) -> int:
        """Return the allowed copies without DUP: at QoS 1 a repeated message is a new one for the broker."""
        return 1 if self.qos == 2 else self.sends[seq - 1]


@dataclass(slots=True)
class Got:
    """Record the messages of one publisher that one session got."""

    wanted_from: int                                                # first required message; 0 = not subscribed yet
    first: int = 0                                                  # highest sequence number whose first copy arrived
    copies: bytearray = field(default_factory=bytearray)            # all copies; index: sequence number minus one
    fresh: bytearray = field(default_factory=bytearray)             # copies without DUP
    told_at: dict[int, tuple[float, float]] = field(default_factory=dict)   # the broker read the acknowledgement in between

    def has(self, seq: int) -> bool:
        return seq <= len(self.copies) and self.copies[seq - 1] > 0


class Audit:
    def __init__(self) -> None:
        self.publishers: dict[int, Sent] = {}
        self.sessions: dict[str, dict[int, Got]] = {}
        self.qos: dict[str, int] = {}
        self.faults: dict[str, int] = dict.fromkeys(KINDS, 0)
        self.shown: list[str] = []
        self.deliveries = self.redeliveries = 0
        self.groups: set[str] = set()           # sessions that are groups: one of several members gets each message, in no order

    # -- events

    def fault(self, kind: str, text: str) -> None:
        self.faults[kind] += 1
        if self.faults[kind] <= TOLD:
            self.shown.append(f"{kind}: {text}")

    def publisher(self, number: int, name: str, qos: int, group: int) -> Sent:
        self.publishers[number] = Sent(name, qos, group)
        return self.publishers[number]

    def subscribed(self, session: str, qos: int, group: int) -> None:
        """Note a subscription: the session must get each later message of the group."""
        self.qos[session] = qos
        got = self.sessions.setdefault(session, {})
        for number, sent in self.publishers.items():
            if sent.group == group:
                got.setdefault(number, Got(0)).wanted_from = sent.last + 1

    def asked(self, session: str, group: int) -> None:
        """Note that SUBSCRIBE is under way: a message of this filter is expected from now on."""
        got = self.sessions.setdefault(session, {})
        for number, sent in self.publishers.items():
            if sent.group == group:
                got.setdefault(number, Got(0))

    def delivered(self, session: str, number: int, seq: int, dup: bool) -> None:
        """Note a copy; at QoS 2 the caller reports only copies whose packet id the receiver does not hold."""
        got = self.sessions.get(session, {}).get(number)
        if got is None or not 0 < seq <= self.publishers[number].last:
            self.fault("foreign", f"{session} got {number}:{seq}")
            return
        self.deliveries += 1
        sent = self.publishers[number]
        if len(got.copies) < seq:
            got.copies.extend(bytes(seq - len(got.copies)))
            got.fresh.extend(bytes(seq - len(got.fresh)))
        got.copies[seq - 1] = min(got.copies[seq - 1] + 1, 255)
        if not dup:
            got.fresh[seq - 1] = min(got.fresh[seq - 1] + 1, 255)
        if got.copies[seq - 1] == 1:
            if seq < got.first and session not in self.groups:
                self.fault("order", f"{session} got {sent.name}:{seq} after {got.first}")
            got.first = max(got.first, seq)
            return
        self.redeliveries += 1
        text = f"{session} (QoS {self.qos.get(session)}) got {sent.name}:{seq} {got.copies[seq - 1]} times; it was sent {sent.sends[seq - 1]} times"
        if min(sent.qos, self.qos.get(session, 0)) == 2:
            self.fault("doubled", text)
        elif got.fresh[seq - 1] > sent.copies_allowed(seq):
            self.fault("no dup", text)

    def held_again(self, session: str, number: int, seq: int, dup: bool) -> None:
        """Note a QoS 2 copy with a packet id that the receiver still holds."""
        self.redeliveries += 1
        if not dup:
            self.fault("no dup", f"{session} got {number}:{seq} again under its packet id")

    # -- results

    def missing(self, session: str, acknowledged_only: bool = True) -> list[tuple[int, int]]:
        """Yield (publisher, sequence number) of each message that the session must get and has not."""
        out = []
        for number, got in self.sessions.get(session, {}).items():
            if got.wanted_from == 0:
                continue
            sent = self.publishers[number]
            out += [
                (number, seq)
                for seq in range(got.wanted_from, sent.last + 1)
                if not got.has(seq) and seq not in sent.refused and (sent.acked[seq - 1] or not acknowledged_only)
            ]
        return out

    def complete(self, session: str) -> bool:
        """Return True if all messages may have arrived, without a look at each of them. First copies arrive in order, so the last one is enough."""
        if session in self.groups:
            return not self.missing(session)
        return all(not got.wanted_from or got.first >= self._last_acked(number) or got.wanted_from > self._last_acked(number)
                   for number, got in self.sessions.get(session, {}).items())

    def _last_acked(self, number: int) -> int:
        return self.publishers[number].acked.rfind(1) + 1

    def reckon(self) -> None:
        for session in self.sessions:
            for number, seq in self.missing(session):
                self.fault("lost", f"{session} (QoS {self.qos[session]}) never got {self.publishers[number].name}:{seq}")

    def unacknowledged(self) -> int:
        return sum(len(sent.acked) - sent.acked.count(1) - len(sent.refused) for sent in self.publishers.values())

    @property
    def sent(self) -> int:
        return sum(sent.last for sent in self.publishers.values())

    @property
    def ok(self) -> bool:
        return not any(self.faults.values())

    def report(self) -> str:
        resent = sum(sum(sent.sends) - sent.last for sent in self.publishers.values())
        lines = [f"{self.sent:,} messages of {len(self.publishers)} publishers, {resent:,} of them sent again, {self.deliveries:,} deliveries to "
                 f"{len(self.sessions)} sessions, {self.redeliveries:,} of them again",
                 ", ".join(f"{n:,} {kind}" for kind, n in self.faults.items())]
        return "\n".join([*lines, *self.shown])
