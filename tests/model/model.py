"""Provide a naive model of the broker: sessions, subscriptions, retained messages, wills, and the messages that each client
must get.

It knows no packets and no sockets; the driver reports each event and asks which messages a client must get. It leaves out
shared groups (the broker is free to choose a member), expiry and limits.
"""

from __future__ import annotations

from dataclasses import dataclass, field


def matches(pattern: str, topic: str) -> bool:
    """Match by recursion over levels [v5 4.7]; the model has no `$` topics."""

    def walk(want: list[str], have: list[str]) -> bool:
        if not want:
            return not have
        if want[0] == "#":
            return True
        return bool(have) and want[0] in ("+", have[0]) and walk(want[1:], have[1:])

    return walk(pattern.split("/"), topic.split("/")) or (pattern.endswith("/#") and matches(pattern[:-2], topic))


@dataclass
class PendingMessage:
    """One copy of a message for one session, until its handshake is over."""

    payload: bytes
    topic: str
    qos: int
    retain: bool
    mid: int | None = None  # packet id that the client has seen
    seen: bool = False  # sent on the current connection
    maybe_sent: bool = False  # may have been sent on an earlier connection: it may arrive with DUP
    received: bool = False  # the client has sent PUBREC: only PUBREL may follow
    released: bool = False  # PUBREL has arrived on the current connection


@dataclass
class Session:
    persistent: bool
    online: bool = True
    subscriptions: dict[str, int] = field(default_factory=dict)
    pending: list[PendingMessage] = field(default_factory=list)


@dataclass
class Model:
    merged: bool = False  # one copy for overlapping subscriptions
    sessions: dict[str, Session] = field(default_factory=dict)
    retained: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    routed: list[bytes] = field(default_factory=list)

    def connect(self, client: str, persistent: bool) -> bool:
        """Connect; return session present. Call lost() first if the client is still connected."""
        session = self.sessions.get(client)
        if session is None or not persistent:
            self.sessions[client] = Session(persistent)
            return False
        session.online, session.persistent = True, persistent
        return True

    def lost(self, client: str) -> None:
        """End the connection, with or without DISCONNECT."""
        session = self.sessions[client]
        if not session.persistent:
            del self.sessions[client]
            return
        session.online = False
        session.pending = [o for o in session.pending if o.qos]
        for pending in session.pending:
            pending.seen, pending.released, pending.maybe_sent = False, False, True

    def route(self, topic: str, payload: bytes, qos: int, retain: bool) -> None:
        self.routed.append(payload)
        if retain:
            self.retained.pop(topic, None)
            if payload:
                self.retained[topic] = (payload, qos)
        for session in self.sessions.values():
            levels = [min(qos, granted) for pattern, granted in session.subscriptions.items() if matches(pattern, topic)]
            for level in [max(levels)] if self.merged and levels else levels:
                if level or session.online:
                    session.pending.append(PendingMessage(payload, topic, level, False))

    def subscribe(self, client: str, pattern: str, qos: int) -> None:
        session = self.sessions[client]
        session.subscriptions[pattern] = qos
        for topic, (payload, kept) in self.retained.items():
            if matches(pattern, topic):
                session.pending.append(PendingMessage(payload, topic, min(kept, qos), True))

    def unsubscribe(self, client: str, pattern: str) -> None:
        self.sessions[client].subscriptions.pop(pattern, None)

    def deliver(self, client: str, topic: str, payload: bytes, qos: int, retain: bool, mid: int, dup: bool) -> PendingMessage:
        """Note that the client got a PUBLISH; raise if it must not get it, or not now."""
        session = self.sessions[client]
        alike = [o for o in session.pending if o.qos == qos and o.retain == retain and not o.seen and not o.received]
        same = [o for o in alike if (o.topic, o.payload) == (topic, payload) and o.mid in (None, mid)]
        what = f"{client}: {topic} {payload!r} qos {qos} retain {retain} mid {mid} dup {dup}"
        assert same, f"not pending: {what}; pending are {session.pending}"
        pending = same[0]
        # retained messages have no order; other messages of one QoS arrive in the order of publishing
        assert retain or (alike[0].topic, alike[0].payload) == (topic, payload), f"out of order: {what}; first is {alike[0]}"
        assert dup <= pending.maybe_sent, f"DUP at the first sending: {what}"
        assert dup or pending.mid is None or not qos, f"sent again without DUP: {what}"
        pending.seen, pending.mid = True, mid
        if qos == 0:
            session.pending.remove(pending)
        return pending

    def finish(self, client: str, pending: PendingMessage) -> None:
        self.sessions[client].pending.remove(pending)

    def missing(self, client: str) -> list[PendingMessage]:
        return [o for o in self.sessions[client].pending if not o.seen]
