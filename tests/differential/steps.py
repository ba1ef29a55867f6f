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

from tests.fuzz.sessions.steps import Maker, Step
from tests.harness.packets import (
    Auth, Connect, Disconnect, Puback, Pubcomp, Publish, Pubrec, Pubrel, Subscribe, Unsubscribe, Will, frame, split,
)
from tests.harness.properties import P, Props, read_varint

CLIENTS = 5
IDS = ["a", "b", "c", "d", "e"]
TOPICS = ["a", "a/b", "a/b/c", "b", "b//c", "", "große/straße", "deny/x", "of/ann", "a/" * 20 + "x"]
FILTERS = ["#", "a/#", "a/+", "+/b", "+/+/c", "+", "a/b", "b//c", "a", "große/#", "deny/#", "of/+", "a/" * 10 + "#", "+/#"]
INVALID_FILTERS = ["a#", "#/a", "a+/b", "$share", "$share/g", "$share//a", "$share/+/a", ""]
ANSWERS = "aaaaaaaaaakked"      # a: right; k: not yet; e: with an error; d: twice
VARIANTS = 4
USERS: dict[str, tuple[str, bytes | None]] = {"b": ("ann", b"secret"), "c": ("ann", None), "d": ("bob", b"")}
UTF8 = "größe"
LARGE = 1000            # bytes of a packet that a configuration may refuse
PREFIX = "s0000000/"


class SessionMaker(Maker):
    """Make one session. `variants`: number of configurations to reload; 0 = no reloads."""

    def __init__(self, seed: int, *, variants: int = VARIANTS, receive_maximums: tuple[int, ...] = (1, 2, 100, 0xFFFF)) -> None:
        super().__init__(seed, durable=False)
        self.prefix = PREFIX
        self.variants, self.receive_maximums = variants, receive_maximums
        self.wild = self.r.choice((0.0, 0.0, 0.0, 0.04))
        self.mid = 0
        self.aliases: dict[int, set[int]] = {}
        self.again: dict[int, Publish] = {}         # by client: its last QoS 2 message, which it may send again

    def steps(self) -> list[Step]:
        made: list[Step] = []
        for _ in range(self.r.choice((8, 16, 32))):
            made += self.some()
        return made

    def some(self) -> list[Step]:
        r, n = self.r, self.r.randrange(CLIENTS)
        if n not in self.level:
            return [self.open(n)]
        roll = r.random()
        if roll < 0.66:
            return [self.send(n)]
        if roll < 0.88:
            return [("answer", n, "".join(r.choice(ANSWERS) for _ in range(8)))]
        if roll < 0.98 or not self.variants:
            if r.random() < 0.4:        # a take-over by the same client id, or by the id of another client
                return [self.open(n)]
            del self.level[n]
            return [("close", n, r.choice(("disconnect", "with will", "end", "reset")))]
        return [("reload", r.randrange(self.variants))]

    # ---- packets

    def open(self, n: int) -> Step:
        r, level = self.r, self.r.choice((3, 4, 5, 5))
        client_id = self.prefix + r.choice((IDS[n], IDS[n], IDS[n], r.choice(IDS))) if r.random() < 0.96 else ""
        clean = r.random() < (0.4 if client_id else 0.8)
        self.level[n] = level
        will = self.will(level) if r.random() < 0.4 else None
        # a session belongs to one user name, so each client id has its own
        username, password = USERS.get(client_id[len(PREFIX):], (None, None))
        self.aliases[n] = set()
        self.again.pop(n, None)
        packet = Connect(client_id, clean, r.choice((60, 60, 600, 0xFFFF) if level == 5 else (0, 60, 600, 0xFFFF)), will, username, password, self.connect_props() if level == 5 else ())
        return ("open", n, level, client_id, self.perhaps_mutated(packet.encode(level)).hex())

    def connect_props(self) -> Props:
        r = self.r
        return self.rarely((P.SESSION_EXPIRY, r.choice((0, 100, 0xFFFFFFFF))), (P.RECEIVE_MAXIMUM, r.choice(self.receive_maximums)),
                           (P.TOPIC_ALIAS_MAXIMUM, r.choice((0, 2, 100))), (P.MAXIMUM_PACKET_SIZE, r.choice((80, 200, 100_000))),
                           (P.REQUEST_PROBLEM, r.randrange(2)), (P.REQUEST_RESPONSE, r.randrange(2)), (P.USER, ("k", UTF8)))

    def rarely(self, *props: tuple[int, Any], share: float = 0.25) -> Props:
        return tuple(one for one in props if self.r.random() < share)

    def will(self, level: int) -> Will:
        r = self.r
        props = self.rarely((P.WILL_DELAY, r.choice((0, 0, 1000))), (P.PAYLOAD_FORMAT, 1), (P.EXPIRY, r.choice((50, 1000))),
                            (P.CONTENT_TYPE, "t"), (P.RESPONSE_TOPIC, "a/b"), (P.CORRELATION, b"\0\xff"), (P.USER, ("k", "v"))) if level == 5 else ()
        return Will(self.topic(), self.payload(), r.randrange(3), r.random() < 0.3, props)

    def topic(self) -> str:
        return self.prefix + self.r.choice(TOPICS)

    def filter(self, n: int) -> str:
        r = self.r
        if r.random() < 0.004:
            return r.choice(INVALID_FILTERS)
        chosen = self.prefix + r.choice(FILTERS)
        if r.random() < 0.08:           # mostly, a group has one member, since the brokers may choose different ones
            return f"$share/g{n if r.random() < 0.9 else 'x'}/{chosen}"
        return chosen

    def payload(self) -> bytes:
        self.serial += 1
        return b"%d:" % self.serial + b"x" * self.r.choice((0, 0, 0, 0, 0, 10, 100, 200, 1500, 5000))

    def next_mid(self) -> int:
        self.mid += 1
        return self.mid

    def send(self, n: int) -> Step:
        level, data = self.level[n], b""
        for _ in range(self.r.choice((1, 1, 1, 2, 5))):
            right = self.one_packet(n, level).encode(level)
            one = self.perhaps_mutated(right)
            if one != right or len(one) > LARGE:
                return ("send", n, one.hex())       # alone: an error may cost the answers to the packets before
            data += one
        return ("send", n, data.hex())

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
            props = self.rarely((P.USER, ("k", "v"))) if level == 5 else ()
            return Unsubscribe(self.next_mid(), tuple(self.filter(n) for _ in range(r.choice((1, 3)))), props)
        if kind < 91:
            return Pubrel(max(1, self.mid - r.randrange(8)))
        if kind < 93:
            return r.choice((Puback, Pubrec, Pubcomp))(r.randrange(40_000, 40_003))     # ids that no broker has used so far
        if kind < 95:
            props = self.rarely((P.SESSION_EXPIRY, r.choice((0, 50))), (P.USER, ("k", "v")), (P.REASON_STRING, "r")) if level == 5 else ()
            return Disconnect(r.choice((0, 0, 4)) if level == 5 else 0, props)
        if kind == 95 and level == 5 and r.random() < 0.2:
            return Auth(0x19)
        return self.publish(n, level)       # no PINGREQ: each step sends one

    def publish(self, n: int, level: int) -> Publish:
        r = self.r
        props = self.rarely((P.TOPIC_ALIAS, r.randrange(1, 4)), (P.EXPIRY, r.choice((50, 1000))), (P.CONTENT_TYPE, UTF8), (P.PAYLOAD_FORMAT, 1),
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
        qos, more = r.randrange(3), r.choice((0, 0, 0, 4, 8, 16, 32)) if level == 5 else 0
        props = self.rarely((P.SUBSCRIPTION_ID, r.randrange(1, 300)), (P.USER, ("k", "v"))) if level == 5 else ()
        filters = [self.filter(n) for _ in range(r.choice((1, 1, 2, 4)))]
        # no local with a shared subscription is a protocol error [v5 3.8.3.1]
        return Subscribe(self.next_mid(), tuple((f, qos | (more & ~4 if f[:1] == "$" else more)) for f in filters), props)

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
