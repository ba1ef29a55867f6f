"""Follow what the clients of a session have done, as far as known differences depend on it.

Some differences of docs/differences.md are in the state of a broker and show only in a later step, or never. `Shadow.begin` and
`Shadow.end` return the rows of such differences when their preconditions are met; the session then ends, since the brokers are in
different states.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

from tests.differential.asked import packets_of, read_asked
from tests.differential.heard import CLOSED, Item
from tests.fuzz.sessions.maker import Step
from tests.harness.packets import Connack, Connect, Disconnect, Puback, Pubcomp, Publish, Pubrec, Pubrel, Subscribe, Unsubscribe, Will
from tests.harness.properties import Cursor, Malformed, P, read_varint

FORMER = 10             # a connection that client n has left open is n + FORMER, n + 2 * FORMER, ...
NO_LOCAL_OR_AS_PUBLISHED = 0x0C
UNKNOWN = "?"           # user name
Heard = dict[int, list[Item]]

UNRELEASED_5 = "receive maximum exceeded (5.0)"
UNRELEASED_3 = "QoS 2 messages that wait for PUBREL, in number (3.x)"
TAKEN_WILL = "will of a 5.0 client whose session another connection takes over and continues"
OPTIONS = "SUBSCRIBE to a filter again, with other options (5.0)"
FAULT = "SUBSCRIBE or UNSUBSCRIBE with a fault behind a valid filter"
QUEUED_QOS0 = "QoS 0 messages under `queue_qos0_messages`"
DELAYED_WILL = "a delayed will when its session ends first"
RETAINED = "retained messages for a new subscription"
KEEPALIVE = "a CONNECT that is refused because of its keepalive (3.x)"
OTHER_USER = "a session that another user name, or a client at another mount point, resumes"
ODD_DISCONNECT = "DISCONNECT with reserved flags, or bytes behind its properties (5.0)"


@dataclass
class Limits:
    """Hold what a configuration allows. 0 = no limit."""

    window: int = 20            # max_inflight_messages
    window_bytes: int = 0       # max_inflight_bytes
    max_queued: int = 0         # max_queued_messages, if it is small
    compat: bool = False        # mosq runs with the option compat
    max_keepalive: int = 0


@dataclass
class Connection:
    client_id: str
    level: int
    connect: Connect | None     # None: malformed
    limits: Limits
    ended: bool = False
    odd_acks: bool = False      # it has acknowledged something twice, or a packet id that is not in flight

    refused: bool = False       # it has answered a QoS 2 message with an error

    def prop(self, ident: int, default: int) -> int:
        value = dict(self.connect.props).get(ident, default) if self.connect else default
        return value if isinstance(value, int) else default

    @property
    def receive_maximum(self) -> int:
        return self.prop(P.RECEIVE_MAXIMUM, 0)

    @property
    def window(self) -> int:
        """Return how many messages of QoS 1 and 2 mosq may have in flight to the client."""
        return min(self.limits.window, self.receive_maximum or self.limits.window)

    @property
    def will(self) -> Will | None:
        return self.connect.will if self.connect else None

    @property
    def will_delay(self) -> bool:
        return self.will is not None and dict(self.will.props).get(P.WILL_DELAY, 0) != 0

    @property
    def lasts(self) -> bool:
        """Return True if the session continues after the connection."""
        if self.connect is None:
            return False
        return self.prop(P.SESSION_EXPIRY, 0) > 0 if self.level == 5 else not self.connect.clean


@dataclass
class Kept:
    """Hold what belongs to a session, over its connections."""

    unreleased: dict[int, bytes] = field(default_factory=dict)      # by packet id of the client: payload of its QoS 2 message
    options: dict[str, int] = field(default_factory=dict)           # by filter: No Local and Retain As Published
    shared: set[str] = field(default_factory=set)                   # filters of its shared subscriptions
    wills: set[bytes] = field(default_factory=set)                  # payloads of the wills of its connections
    username: str | None = UNKNOWN                                    # of its last connection; UNKNOWN: the CONNECT was malformed
    delayed: bytes = b""                                            # payload of the delayed will of its last connection
    inflight: dict[int, int] = field(default_factory=dict)          # payload bytes of mosq's messages that are not acknowledged
    received: set[int] = field(default_factory=set)                 # those of QoS 2 that wait for PUBCOMP


class Shadow:
    def __init__(self, peer: str, limits: Limits) -> None:
        self.peer, self.limits = peer, limits
        self.connections: dict[int, Connection] = {}
        self.sessions: dict[str, Kept] = {}
        self.former: Connection | None = None       # the connection that the last step's CONNECT has taken over
        self.full_before: set[int] = set()          # clients whose windows were full before the last step
        self.inflight_before: dict[int, int] = {}   # by client: messages in flight before the last step
        self.delayed = b""                          # payload of the delayed will that waited at the last CONNECT
        self.other_user = False                     # the last CONNECT has another user name than the one before
        self.queue_options = ""                     # all options of queues in this session
        self.serial = itertools.count()
        self.retained = False                       # a retained message may be there
        self.published: set[bytes] = set()          # payloads of the messages that the last step has published or released
        self.sources: dict[str, set[bytes]] = {}    # by client id: payloads of its messages and wills, from all of its sessions

    def session(self, n: int) -> Kept:
        return self.sessions.setdefault(self.connections[n].client_id, Kept())

    def begin(self, step: Step) -> list[str]:
        """Note what a step does, before it is played; return the rows of the differences in state that it makes."""
        self.former, self.published = None, set()
        self.full_before = {n for n, one in self.connections.items() if not one.ended and self._is_full(n)}
        self.inflight_before = {n: len(self.session(n).inflight) for n, one in self.connections.items() if not one.ended}
        if step[0] == "reload":
            self.queue_options += step[1]
        if step[0] == "open":
            self._open(*step[1:4], packets_of(step))
        if step[0] == "send" and (one := self.connections.get(step[1])) is not None and not one.ended:
            rows = [self._packet(one, step[1], read_asked(one.level, data)) for data in packets_of(step)]
            return [row for row in dict.fromkeys(rows) if row]
        return []

    def end(self, step: Step, ours: Heard, theirs: Heard, acted: list[tuple[Any, str]]) -> list[str]:
        """Note what the brokers have sent after the step; return the rows of the differences in state that show only now."""
        rows, asked = [], False
        one = self.connections.get(step[1])
        if step[0] == "open" and one is not None:
            rows.append(self._opened(step[1], one, [item.key for item in ours[step[1]]], [item.key for item in theirs[step[1]]]))
        if step[0] == "answer" and one is not None:
            self._acknowledged(step[1], one, acted)
        if step[0] == "send" and one is not None and not one.ended:
            asked = any(isinstance(read_asked(one.level, data), Subscribe) for data in packets_of(step))
            rows.append(self._ended_behind_a_filter(step, one, ours))
            rows.append(self._ended_before_its_will(step, one))
            rows += [ODD_DISCONNECT for data in packets_of(step) if one.lasts and expires_behind_a_fault(one.level, data)]
        if step[0] == "close" and one is not None:
            one.ended = True
            self.delayed = self.session(step[1]).delayed
            rows.append(DELAYED_WILL if self.peer == "2.0" and self.delayed and not one.lasts else "")
        for n, items in ours.items():
            if n in self.connections:
                sent = [item.packet for item in items if isinstance(item.packet, Publish) and item.packet.qos]
                self.session(n).inflight.update((packet.mid, len(packet.payload)) for packet in sent)
        if asked and self.retained and self.window_was_full(step[1]):
            rows.append(RETAINED)
        for n, items in ours.items():
            if any(isinstance(item.key, str) for item in items) and n in self.connections:
                self.connections[n].ended = True
        return [row for row in rows if row]

    # ---- CONNECT

    def _open(self, n: int, level: int, client_id: str, packets: list[bytes]) -> None:
        if n in self.connections and not self.connections[n].ended:
            place = next(i for i in itertools.count(n + FORMER, FORMER) if i not in self.connections)
            self.connections[place] = self.connections[n]
        connect = read_asked(level, packets[0])
        if connect is not None:
            client_id = connect.client_id       # a changed byte may have made another id of it
        client_id = client_id or f"?{next(self.serial)}"
        self.former = next((one for one in self.connections.values() if not one.ended and one.client_id == client_id), None)
        one = self.connections[n] = Connection(client_id, level, connect, self.limits)
        kept = self.session(n)
        self.delayed, kept.delayed = kept.delayed, b""
        absent = level == 3 and connect is None         # in 3.1, a user name may be absent although its flag is set
        self.other_user = (connect is not None or absent) and kept.username not in (UNKNOWN, connect.username if connect else None)
        kept.username = connect.username if connect is not None else UNKNOWN
        if one.will is not None:
            self.retained |= one.will.retain
            kept.wills.add(one.will.payload)
            self.sources.setdefault(client_id, set()).add(one.will.payload)
            kept.delayed = one.will.payload if one.will_delay else b""

    def _opened(self, n: int, one: Connection, ours: list[Any], theirs: list[Any]) -> str:
        connack = ours[0] if ours and isinstance(ours[0], Connack) else None
        if connack is None or connack.rc:
            refused = connack is not None and connack.rc == 2 and one.level < 5 and self._keepalive_refused(one)
            return KEEPALIVE if refused else ""
        if one.connect is None and self.other_user:
            return OTHER_USER       # 3.1 has no Session Present that would show it
        kept = self.session(n)
        if one.connect is not None and (one.connect.clean or (one.level > 3 and not connack.session)):
            new = {one.will.payload} if one.will else set()
            self.sessions[one.client_id] = Kept(wills=new, delayed=kept.delayed, username=kept.username)
        former = self.former
        has_will = former is not None and former.level == 5 and former.will is not None and former.lasts and not former.will_delay
        if has_will and one.connect is not None and not one.connect.clean and not self.limits.compat:
            return TAKEN_WILL
        ends = (one.connect is not None and one.connect.clean) or (former is not None and not former.lasts)
        if self.peer == "2.0" and self.delayed and ends:
            return DELAYED_WILL
        queued = [key for key in theirs if isinstance(key, Publish) and key.qos == 0]
        return QUEUED_QOS0 if queued and (one.window < 20 or self.queue_is_short()) else ""

    def queue_is_short(self) -> bool:
        """Return True if max_queued_messages is small, or was in this session."""
        return self.limits.max_queued > 0 or "max_queued_messages" in self.queue_options

    def _keepalive_refused(self, one: Connection) -> bool:
        most = self.limits.max_keepalive
        return bool(most) and one.connect is not None and (one.connect.keepalive > most or one.connect.keepalive == 0)

    # ---- other packets

    def _packet(self, one: Connection, n: int, packet: Any) -> str:
        kept = self.session(n)
        if isinstance(packet, Publish):
            self.published.add(packet.payload)
            self.sources.setdefault(one.client_id, set()).add(packet.payload)
        if isinstance(packet, Publish) and packet.qos and packet.mid not in kept.unreleased:
            if len(kept.unreleased) >= self.limits.window or 0 < self.limits.window_bytes <= sum(map(len, kept.unreleased.values())):
                return UNRELEASED_5 if one.level == 5 else UNRELEASED_3
            if packet.qos == 2:
                kept.unreleased[int(packet.mid)] = packet.payload
        self.retained |= isinstance(packet, Publish) and packet.retain
        if isinstance(packet, Pubrel) and int(packet.mid) in kept.unreleased:
            self.published.add(kept.unreleased.pop(int(packet.mid)))
        if isinstance(packet, Puback | Pubrec | Pubcomp):
            one.odd_acks = True
        if isinstance(packet, Subscribe):
            kept.shared.update(filter_ for filter_, _ in packet.filters if filter_.startswith("$share/"))
        if isinstance(packet, Unsubscribe):
            kept.shared.difference_update(packet.filters)
        if isinstance(packet, Subscribe) and self.peer == "2.0":
            for filter_, flags in packet.filters:
                if kept.options.setdefault(filter_, flags & NO_LOCAL_OR_AS_PUBLISHED) != flags & NO_LOCAL_OR_AS_PUBLISHED:
                    return OPTIONS
        return ""

    def _acknowledged(self, n: int, one: Connection, acted: list[tuple[Any, str]]) -> None:
        kept = self.session(n)
        for packet, how in acted:
            if isinstance(packet, Pubrec):
                kept.unreleased.pop(int(packet.mid), None)
            elif isinstance(packet, Pubrel) or packet.qos == 1 or (how == "e" and one.level == 5):
                kept.inflight.pop(packet.mid, None)
                kept.received.discard(packet.mid)
            elif isinstance(packet, Publish):
                kept.received.add(packet.mid)
            one.odd_acks |= how == "d"
            one.refused |= how == "e" and isinstance(packet, Publish) and packet.qos == 2 and one.level == 5

    def window_was_full(self, n: int) -> bool:
        """Return True if as many messages were in flight to a client as may be, before or after the last step."""
        return n in self.full_before or self._is_full(n)

    def window_became_full(self, n: int, keys: list[Any]) -> bool:
        """Return True if a client's window was full before, after or during the last step, in which it has got these packets."""
        new = sum(isinstance(key, Publish) and key.qos > 0 and not key.dup for key in keys)
        return self.window_was_full(n) or self.inflight_before.get(n, 0) + new >= self.connections[n].window

    def window_is_full_in_theirs(self, n: int, ours: list[Item], theirs: list[Item]) -> bool:
        """Return True if a client's window is full in Mosquitto after the last step, in which both have sent new messages only."""
        new = [[len(item.packet.payload) for item in items if isinstance(item.packet, Publish) and item.packet.qos] for items in (ours, theirs)]
        return self._is_full(n, len(new[1]) - len(new[0]), sum(new[1]) - sum(new[0]))

    def _is_full(self, n: int, more: int = 0, more_bytes: int = 0) -> bool:
        inflight = self.session(n).inflight
        return len(inflight) + more >= self.connections[n].window or 0 < self.limits.window_bytes <= sum(inflight.values()) + more_bytes

    def _ended_before_its_will(self, step: Step, one: Connection) -> str:
        """Return a row if a DISCONNECT with will has ended the session at once, and the will has a delay."""
        asked = [read_asked(one.level, data) for data in packets_of(step)]
        ended = any(isinstance(packet, Disconnect) and packet.rc and dict(packet.props).get(P.SESSION_EXPIRY) == 0 for packet in asked)
        self.delayed = self.session(step[1]).delayed if ended else self.delayed
        return DELAYED_WILL if ended and self.delayed else ""

    def _ended_behind_a_filter(self, step: Step, one: Connection, ours: Heard) -> str:
        if not any(item.key == CLOSED for item in ours.get(step[1], [])):
            return ""
        if one.lasts and any(filters_before_a_fault(one.level, data) for data in packets_of(step)):
            return FAULT
        return ""


def filters_before_a_fault(level: int, data: bytes) -> list[str]:
    """Return the filters of a SUBSCRIBE or UNSUBSCRIBE in front of its first fault; [] if it has no fault."""
    found: list[str] = []
    if data[0] not in (0x82, 0xA2):
        return found
    try:
        body = Cursor(data[read_varint(data, 1)[1]:])
        body.u16()
        if level == 5:
            body.props()
        while body.left:
            filter_ = body.text()
            flags = body.u8() if data[0] == 0x82 else 0
            if not is_filter(filter_) or flags & 3 == 3 or flags & 0x30 == 0x30 or flags & 0xC0 or (level < 5 and flags > 2):
                return found
            found.append(filter_)
    except (Malformed, ValueError, IndexError):
        return found
    return []


def expires_behind_a_fault(level: int, data: bytes) -> bool:
    """Return True if a DISCONNECT has a Session Expiry Interval of 0, and bytes behind its properties."""
    if level < 5 or data[0] != 0xE0:
        return False
    try:
        body = Cursor(data[read_varint(data, 1)[1]:])
        body.u8()
        return dict(body.props()).get(P.SESSION_EXPIRY) == 0 and body.left > 0
    except (Malformed, ValueError, IndexError):
        return False


def is_filter(text: str) -> bool:
    """Return True if it is a filter [v5 4.7.1], with a valid group if it is shared [v5 4.8.2]."""
    levels = text.split("/")
    if levels[0] == "$share":
        if len(levels) < 3 or not levels[1] or "+" in levels[1] or "#" in levels[1]:
            return False
        levels = levels[2:]
    if levels in ([], [""]) or "\0" in text:
        return False
    return all(one in ("+", "#") or not set(one) & set("+#") for one in levels) and "#" not in levels[:-1]
