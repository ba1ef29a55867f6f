"""Make the steps of a sequence from a seed: what several clients of a broker do, and what happens around them.

A step is a tuple of plain values (JSON can hold it), so that a sequence can be written down, played again and made shorter:

    ("open", n, way, level, client id, CONNECT in hex, will's topic or "")   client n connects; way: tcp, ws or mount
    ("send", n, bytes in hex, places of cuts, valid, filters, topics)   client n sends one or more packets, in pieces
    ("read", n, answers)        client n reads what has come; answers: how it acknowledges, one letter for each message
    ("close", n, how)           client n disconnects, or its connection ends or is reset
    ("sync", n)                 client n waits for a PINGRESP
    ("later", seconds)          the broker's clocks jump forward
    ("reload", n)               the broker reads its configuration again, with the nth variant
    ("disk", fault)             writes fail ("full", "error"), or work again ("")
"""

from __future__ import annotations

from typing import Any

from tests.fuzz.sessions.maker import Maker, Step
from tests.harness.packets import (
    Auth, Connect, Disconnect, Pingreq, Puback, Pubcomp, Publish, Pubrec, Pubrel, Subscribe, Unsubscribe, Will,
)
from tests.harness.properties import P, Props

IDS = ["a", "b", "c", "d", ""]
MOUNT_IDS = ["m", "n"]              # a session belongs to one mount point
TOPICS = ["a", "a/b", "a/b/c", "b", "b//c", "/", "$x/y", "a/" * 20 + "x", "große/straße"]
FILTERS = ["#", "a/#", "a/+", "+/b", "+/+/c", "+", "/", "a/b", "b//c", "$share/g/a/#", "$share/g/a/b", "$share/h/#", "$share/g/+/+",
           "a/" * 10 + "#", "$x/+", "$SYS/broker/uptime", "große/#"]
VARIANTS = 6
ANSWERS = "aaaaaaannwed"            # a: right; n: none; w: wrong type; e: with an error; d: twice
WAYS = ["tcp", "tcp", "tcp", "ws", "mount"]


class FuzzMaker(Maker):
    """Make one sequence."""

    clients = 6
    lengths = (8, 20, 40, 80)
    wilds = (0.0, 0.0, 0.02, 0.2)
    sizes = (0, 0, 0, 0, 10, 200, 5000, 40_000)
    share = 0.4

    def __init__(self, seed: int, *, durable: bool) -> None:
        super().__init__(seed)
        self.durable = durable

    def some(self, n: int) -> list[Step]:
        r = self.r
        roll = r.random()
        if roll < 0.62:
            return [self.send(n)]
        if roll < 0.8:
            return [("read", n, "".join(r.choice(ANSWERS) for _ in range(8)))]
        if roll < 0.88:
            return [("sync", n)]
        if roll < 0.94:
            if r.random() < 0.5:        # a take-over by the same client id, or a second CONNECT later
                return [self.open(n)]
            del self.level[n]
            return [("close", n, r.choice(("disconnect", "end", "reset")))]
        if roll < 0.97:
            return [("later", r.choice((1, 2, 20, 100, 4000)))]
        if roll < 0.99 or not self.durable:
            return [("reload", r.randrange(VARIANTS))]
        return [("disk", r.choice(("full", "error", ""))), *self.next(), ("disk", "")]

    # ---- packets

    def open(self, n: int) -> Step:
        r, level, way = self.r, self.r.choice((3, 4, 5, 5)), self.r.choice(WAYS)
        client_id = r.choice(MOUNT_IDS if way == "mount" else IDS)
        if not client_id and level == 3:
            level = 4
        self.level[n] = level
        clean = not client_id or r.random() < 0.4
        will = None
        if r.random() < 0.4:
            props: Props = ((P.WILL_DELAY, r.choice((0, 1, 50))),) if level == 5 and r.random() < 0.5 else ()
            will = Will(r.choice(TOPICS), self.payload(), r.randrange(3), r.random() < 0.4, props)
        props = self.some_of((P.SESSION_EXPIRY, r.choice((0, 1, 100, 0xFFFFFFFF))), (P.RECEIVE_MAXIMUM, r.choice((1, 2, 100))),
                             (P.TOPIC_ALIAS_MAXIMUM, r.choice((0, 2))), (P.MAXIMUM_PACKET_SIZE, r.choice((30, 200, 100_000))),
                             (P.REQUEST_PROBLEM, r.randrange(2))) if level == 5 else ()
        packet = Connect(client_id, clean, r.choice((0, 0, 5, 60)), will, props=props).encode(level)
        return ("open", n, way, level, client_id, packet.hex(), "" if will is None else will.topic)

    def send(self, n: int) -> Step:
        r, level = self.r, self.level[n]
        data, valid, filters, topics = b"", True, [], []
        for _ in range(r.choice((1, 1, 1, 2, 12))):
            packet = self.packet(level)
            one = packet.encode(level)
            if isinstance(packet, Subscribe):
                filters += [f for f, _ in packet.filters]
            if isinstance(packet, Publish):
                topics.append((packet.topic, packet.payload.hex() if packet.payload else ""))
            if r.random() < self.wild:
                one, valid = self.mutated(one), False
            data += one
        cuts = sorted(r.randrange(1, len(data)) for _ in range(r.choice((0, 0, 1, 3)))) if len(data) > 1 else []
        return ("send", n, data.hex(), cuts, valid, filters, topics)

    def packet(self, level: int) -> Any:
        r, mid = self.r, self.r.randrange(1, 6)
        kind = r.randrange(14)
        if kind < 6:
            props = self.some_of((P.TOPIC_ALIAS, r.randrange(1, 4)), (P.EXPIRY, r.choice((0, 1, 50))), (P.CONTENT_TYPE, "t"),
                                 (P.USER, ("k", "v" * r.randrange(50))), (P.RESPONSE_TOPIC, "a/b")) if level == 5 else ()
            retain = r.random() < 0.3
            payload = b"" if retain and r.random() < 0.3 else self.payload()
            return Publish(r.choice(TOPICS), payload, r.randrange(3), mid, retain, False, props)
        if kind < 9:
            options = r.choice((0, 1, 2)) | (r.choice((0, 4, 8, 16, 32)) if level == 5 else 0)
            props = ((P.SUBSCRIPTION_ID, r.randrange(1, 300)),) if level == 5 and r.random() < 0.3 else ()
            chosen = tuple(r.choice(FILTERS) for _ in range(r.choice((1, 2, 5))))
            # no local with a shared subscription is a protocol error [v5 3.8.3.1]
            return Subscribe(mid, tuple((f, options & ~4 if f[0] == "$" else options) for f in chosen), props)
        if kind == 9:
            return Unsubscribe(mid, tuple(r.choice(FILTERS) for _ in range(r.choice((1, 3)))))
        if kind == 10:
            return Pubrel(mid)
        if kind == 11 and r.random() < 0.2:
            return Auth(0x19) if level == 5 and r.random() < 0.3 else Disconnect(r.choice((0, 4)) if level == 5 else 0)
        if kind == 12 and r.random() < 0.3:
            return r.choice((Puback, Pubrec, Pubcomp))(mid)
        return Pingreq()

    def mutated(self, data: bytes) -> bytes:
        r, out = self.r, bytearray(data)
        for _ in range(r.choice((1, 1, 2, 4))):
            at = r.randrange(len(out)) if out else 0
            how = r.randrange(7)
            if not out or how == 0:
                out[at:at] = r.randbytes(r.randrange(1, 5))
            elif how == 1:
                out[at] ^= 1 << r.randrange(8)
            elif how == 2:
                out[at] = r.choice((0, 1, 0x7F, 0x80, 0xFF, r.randrange(256)))
            elif how == 3:
                del out[at:at + r.randrange(1, 5)]
            elif how == 4:
                out[at:at] = out[at:at + r.randrange(1, 30)]
            elif how == 5:
                del out[at:]
            else:
                out[1:2] = r.choice((b"\0", b"\xff\xff\xff\x7f", b"\x80\x80\x80\x80", b"\x80\0", b"\x7f"))
        return bytes(out)
