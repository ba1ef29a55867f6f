"""Make the steps of a session from a seed: what several clients send to both brokers.

A step is a tuple of plain values (JSON can hold it), so that a session can be written down, played again and made shorter:

    ("open", n, level, client id, CONNECT in hex)   client n connects; its former connection, if any, stays open and acknowledges nothing
    ("send", n, packets in hex)     client n sends packets
    ("answer", n, answers)          client n acknowledges what it has received; one letter for each message
    ("close", n, how)               client n disconnects, or its connection ends or is reset
    ("reload", n)                   both brokers read their configuration again, with the nth variant

All topics and client ids of a session begin with PREFIX. Each play replaces it by a prefix of its own and of the same length, so the
sessions that are played on one pair of brokers do not meet.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.fuzz.sessions.maker import Maker, Step
from tests.harness.packets import (
    Auth, Connect, Disconnect, Puback, Pubcomp, Publish, Pubrec, Pubrel, Subscribe, Unsubscribe, Will, frame, split,
)
from tests.harness.properties import P, Props, read_varint

IDS = ["a", "b", "c", "d", "e"]
TOPICS = ["a", "a/b", "a/b/c", "b", "b//c", "", "große/straße", "deny/x", "of/ann", "a/" * 20 + "x"]
FILTERS = ["#", "a/#", "a/+", "+/b", "+/+/c", "+", "a/b", "b//c", "a", "große/#", "deny/#", "of/+", "a/" * 10 + "#", "+/#"]
INVALID_FILTERS = ["a#", "#/a", "a+/b", "$share", "$share/g", "$share//a", "$share/+/a", ""]
ANSWERS = "aaaaaaaaaakked"      # a: right; k: not yet; e: with an error; d: twice
VARIANTS = 4
USERS: dict[str, tuple[str, bytes | None]] = {"b": ("ann", b"secret"), "c": ("ann", None), "d": ("bob", b"")}
UTF8 = "größe"
KEEPALIVES = (0, 60, 600, 0xFFFF)          # of 3.x clients
LARGE = 1000            # bytes of a packet that a configuration may refuse
PREFIX = "s0000000/"


class SessionMaker(Maker):
    """Make one session for a configuration.

    window       messages that may be in flight to a client without a Receive Maximum
    unreleased   whether clients may leave QoS 2 messages unreleased
    peer         Mosquitto's version. Some differences of docs/differences.md are in the state of a session and show only later;
                 a session without them compares more than one that ends at the first of them
    """

    clients = 5
    lengths = (8, 16, 32)
    wilds = (0.0, 0.0, 0.0, 0.04)
    sizes = (0, 0, 0, 0, 0, 10, 100, 200, 1500, 5000)
    share = 0.25

    def __init__(self, seed: int, *, window: int = 20, unreleased: bool = True, keepalives: tuple[int, ...] = KEEPALIVES,
                 peer: str = "2.1") -> None:
        super().__init__(seed)
        self.window, self.unreleased, self.keepalives, self.peer = window, unreleased, keepalives, peer
        self.mid = 0
        self.aliases: dict[int, set[int]] = {}
        self.again: dict[int, Publish] = {}         # by client: its last QoS 2 message, which it may send again
        self.brief: set[int] = set()                # clients whose sessions end with their connections
        self.names: dict[int, str] = {}             # by client: its id
        self.strict: set[int] = set()               # clients to which few messages may be in flight
        self.options: dict[tuple[str, str], int] = {}   # by client id and filter: No Local and Retain As Published

    def some(self, n: int) -> list[Step]:
        r = self.r
        roll = r.random()
        if roll < 0.66:
            return [self.send(n)]
        if roll < 0.88:
            # in Mosquitto, a second acknowledgement makes the inflight window larger, and a PUBREC with an error makes it smaller
            answers = ANSWERS.rstrip("ed") if n in self.strict else ANSWERS
            return [("answer", n, "".join(r.choice(answers) for _ in range(8)))]
        if roll < 0.98:
            if r.random() < 0.4:        # a take-over by the same client id, or by the id of another client
                return [self.open(n)]
            del self.level[n]
            return [("close", n, r.choice(("disconnect", "with will", "end", "reset")))]
        return [("reload", r.randrange(VARIANTS))]

    # ---- packets

    def open(self, n: int) -> Step:
        r, level = self.r, self.r.choice((3, 4, 5, 5))
        client_id = PREFIX + r.choice((IDS[n], IDS[n], IDS[n], r.choice(IDS))) if r.random() < 0.96 else ""
        clean = r.random() < (0.4 if client_id else 0.8)
        self.level[n] = level
        # a session belongs to one user name, so each client id has its own
        username, password = USERS.get(client_id[len(PREFIX):], (None, None))
        self.aliases[n] = set()
        self.again.pop(n, None)
        props = self.connect_props(clean) if level == 5 else ()
        lasts = dict(props).get(P.SESSION_EXPIRY, 0) != 0 if level == 5 else not clean
        (self.brief.discard if lasts else self.brief.add)(n)
        (self.strict.add if self.window < 20 or dict(props).get(P.RECEIVE_MAXIMUM, 20) < 20 else self.strict.discard)(n)
        will = self.will(level, lasts) if r.random() < 0.4 else None
        keepalive = r.choice((60, 60, 600, 0xFFFF) if level == 5 else self.keepalives)
        packet = Connect(client_id, clean, keepalive, will, username, password, props)
        self.names[n] = client_id or f"?{n}"
        return ("open", n, level, client_id, self.perhaps_mutated(packet.encode(level)).hex())

    def connect_props(self, clean: bool) -> Props:
        r = self.r
        props = self.some_of((P.SESSION_EXPIRY, r.choice((0, 100, 0xFFFFFFFF))), (P.RECEIVE_MAXIMUM, r.choice((1, 2) if self.window < 20 else (1, 2, 20))),
                             (P.TOPIC_ALIAS_MAXIMUM, r.choice((0, 2, 100))), (P.MAXIMUM_PACKET_SIZE, 100_000),
                             (P.REQUEST_PROBLEM, r.randrange(2)), (P.REQUEST_RESPONSE, r.randrange(2)), (P.USER, ("k", UTF8)))
        if clean and self.window >= 20 and self.unreleased and r.random() < 0.1:
            # a message that is too large leaves traces in Mosquitto's window and aliases, so this client has neither, and no session
            props = (*self.some_of((P.REQUEST_PROBLEM, r.randrange(2)), (P.USER, ("k", UTF8))), (P.MAXIMUM_PACKET_SIZE, r.choice((80, 200))))
        return props

    def will(self, level: int, lasts: bool) -> Will:
        r = self.r
        delay = r.choice((0, 0, 1000)) if lasts else 0      # 2.x waits for the delay also when the session ends before
        props = self.some_of((P.WILL_DELAY, delay), (P.PAYLOAD_FORMAT, 1), (P.EXPIRY, r.choice((50, 1000))),
                             (P.CONTENT_TYPE, "t"), (P.RESPONSE_TOPIC, "a/b"), (P.CORRELATION, b"\0\xff"), (P.USER, ("k", "v"))) if level == 5 else ()
        return Will(self.topic(), self.payload(), r.randrange(3), r.random() < 0.3, props)

    def topic(self) -> str:
        return PREFIX + self.r.choice(TOPICS)

    def filter(self, n: int) -> str:
        r = self.r
        if r.random() < 0.004:
            return r.choice(INVALID_FILTERS)
        chosen = PREFIX + r.choice(FILTERS)
        # mostly, a group has one member, since the brokers may choose different ones; 2.0 forgets groups when a session is resumed
        if r.random() < 0.08 and (self.peer != "2.0" or (n in self.brief and self.level[n] == 5)):
            return f"$share/g{n if r.random() < 0.9 else 'x'}/{chosen}"
        return chosen

    def next_mid(self) -> int:
        self.mid += 1
        return self.mid

    def send(self, n: int) -> Step:
        level, data = self.level[n], b""
        for _ in range(self.r.choice((1, 1, 1, 2, 5))):
            packet = self.one_packet(n, level)
            right = packet.encode(level)
            one = self.perhaps_mutated(right)
            invalid = isinstance(packet, Subscribe | Unsubscribe) and any(PREFIX not in str(one) for one in packet.filters)
            again = isinstance(packet, Publish) and packet.qos == 2 and packet.mid != self.mid
            if one != right or len(one) > LARGE or invalid or again or isinstance(packet, Auth):
                return ("send", n, one.hex())       # alone: an error may cost the answers to the packets before
            data += one
            if isinstance(packet, Disconnect):      # Mosquitto may read the packets behind it
                break
            if isinstance(packet, Publish) and packet.qos == 2 and self.releases(packet):
                data += Pubrel(packet.mid).encode(level)
        return ("send", n, data.hex())

    def releases(self, packet: Publish) -> bool:
        """Return True if a PUBREL follows at once. A client with a small window must not leave many messages unreleased: Mosquitto
        acknowledges the next ones and drops them."""
        share = 0.85 if self.window < 20 or not self.unreleased else 0.1
        return self.r.random() < share

    def one_packet(self, n: int, level: int) -> Any:
        r, kind = self.r, self.r.randrange(100)
        if kind < 50:
            if n in self.again and r.random() < 0.05:
                return replace(self.again[n], dup=True)
            packet = self.publish(n, level)
            if packet.qos == 2 and not packet.props:
                self.again[n] = packet
            return packet
        if kind < 78:
            return self.subscribe(n, level)
        if kind < 87:
            props = self.some_of((P.USER, ("k", "v"))) if level == 5 else ()
            return Unsubscribe(self.next_mid(), tuple(self.filter(n) for _ in range(r.choice((1, 3)))), props)
        if kind < 91:
            return Pubrel(max(1, self.mid - r.randrange(8)))
        if kind < 93:
            # ids that no broker has used so far; a PUBACK or PUBCOMP makes Mosquitto's inflight window larger
            return (Pubrec if n in self.strict else r.choice((Puback, Pubrec, Pubcomp)))(r.randrange(40_000, 40_003))
        if kind < 95:
            props = self.some_of((P.SESSION_EXPIRY, r.choice((0, 50))), (P.USER, ("k", "v")), (P.REASON_STRING, "r")) if level == 5 else ()
            return Disconnect(r.choice((0, 0, 4)) if level == 5 else 0, props)
        if kind == 95 and level == 5 and r.random() < 0.2:
            return Auth(0x19)
        return self.publish(n, level)       # no PINGREQ: each step sends one

    def publish(self, n: int, level: int) -> Publish:
        r = self.r
        props = self.some_of((P.TOPIC_ALIAS, r.randrange(1, 4)), (P.EXPIRY, r.choice((50, 1000))), (P.CONTENT_TYPE, UTF8), (P.PAYLOAD_FORMAT, 1),
                            (P.USER, ("k", "v" * r.randrange(50))), (P.USER, ("k", "2")), (P.RESPONSE_TOPIC, "a/b"), (P.CORRELATION, b"\0\xff"),
                            share=0.12) if level == 5 else ()
        retain, qos = r.random() < 0.25, r.randrange(3)
        payload = b"" if retain and r.random() < 0.3 else self.payload()
        alias = next((value for ident, value in props if ident == P.TOPIC_ALIAS), None)
        known = alias in self.aliases[n] or r.random() < 0.01
        if alias is not None:
            self.aliases[n].add(alias)
        topic = "" if alias is not None and known and r.random() < 0.5 else self.topic()
        return Publish(topic, payload, qos, self.next_mid() if qos else 0, retain, qos > 0 and r.random() < 0.05, props)

    def subscribe(self, n: int, level: int) -> Subscribe:
        r = self.r
        props = self.some_of((P.SUBSCRIPTION_ID, r.randrange(1, 300)), (P.USER, ("k", "v"))) if level == 5 else ()
        qos, handling = r.randrange(3), r.choice((0, 0, 0, 16, 32))
        filters = [self.filter(n) for _ in range(r.choice((1, 1, 2, 4)))]
        return Subscribe(self.next_mid(), tuple((f, qos | (self.flags(n, f, handling) if level == 5 else 0)) for f in filters), props)

    def flags(self, n: int, filter_: str, handling: int) -> int:
        """Return Retain Handling, No Local and Retain As Published. 2.0 ignores changes of the latter two."""
        shared = filter_.startswith("$")
        flags = self.r.choice((0, 0, 0, 0, 4, 8))
        if self.peer == "2.0":
            flags = self.options.setdefault((self.names[n], filter_), flags)
            handling = 32 if shared else handling       # 2.0 sends retained messages to the members of a group
        return handling | (flags & ~4 if shared else flags)     # No Local there is a protocol error [v5 3.8.3.1]

    def perhaps_mutated(self, data: bytes) -> bytes:
        """Return the packet, perhaps with other flags or another body. Its length is right, so that later packets are read as such."""
        r = self.r
        if r.random() >= self.wild:
            return data
        assert split(data) == len(data)
        head, body = data[0], bytearray(data[read_varint(data, 1)[1]:])
        how = r.randrange(6)
        at = r.randrange(len(body)) if body else 0
        if how == 0 or not body:
            head ^= 1 << r.randrange(4)
        elif how == 1:
            del body[at:]
        elif how == 2:
            body[at] ^= 1 << r.randrange(8)
        elif how == 3:
            body[at:at] = r.randbytes(r.randrange(1, 4))
        elif how == 4:
            del body[at:at + r.randrange(1, 4)]
        else:
            body[at] = r.choice((0, 0x7F, 0x80, 0xFF))
        return frame(head, bytes(body))


def with_prefix(step: Step, number: int) -> Step:
    """Return the step with the prefix of a play."""
    old, new = PREFIX, f"s{number:07d}/"
    swaps = ((old, new), (old.encode().hex(), new.encode().hex()))
    out = []
    for value in step:
        for before, after in swaps if isinstance(value, str) else ():
            value = value.replace(before, after)
        out.append(value)
    return tuple(out)
