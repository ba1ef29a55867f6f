"""Provide members of shared groups: clients that record the messages that each of them received."""

from __future__ import annotations

from itertools import count

import mosq
from tests.harness.packets import Connack, Connect, Pingreq, Pingresp, Puback, Pubcomp, Publish, Pubrec, Pubrel, Suback, Subscribe
from tests.harness.properties import P, Props
from tests.harness.wire import Wire

FOREVER = 0xFFFFFFFF


class Member:
    def __init__(self, broker: mosq.Broker, client_id: str, *, expiry_s: int = 0, clean: bool = True, level: int = 5, window: int = 0,
                 user: str | None = None, port: int = 0) -> None:
        self.broker, self.client_id = broker, client_id
        props: Props = ((P.SESSION_EXPIRY, expiry_s),) if expiry_s else ()
        props += ((P.RECEIVE_MAXIMUM, window),) if window else ()
        self.mids = count(1)
        self.wire = Wire(port or broker.port, level, 20)
        self.wire.send(Connect(client_id, clean, props=props, username=user))
        got = self.wire.read_packet()
        assert isinstance(got, Connack) and got.rc == 0, got
        self.session = got.session

    def joins(self, pattern: str, qos: int = 1, sub_id: int = 0) -> Member:
        self.wire.send(Subscribe(mid := next(self.mids), ((pattern, qos),), ((P.SUBSCRIPTION_ID, sub_id),) if sub_id else ()))
        self.wire.expect_packet(Suback(mid, (qos,)))
        return self

    def sends(self, topic: str, payload: bytes, qos: int = 0, props: Props = ()) -> None:
        """Publish a message; return when the broker has routed it."""
        self.wire.send(Publish(topic, payload, qos, mid := next(self.mids) if qos else 0, props=props))
        if qos == 1:
            got = self.wire.read_packet()
            assert isinstance(got, Puback) and got.mid == mid, got
        elif qos == 2:
            assert isinstance(self.wire.read_packet(), Pubrec)
            self.wire.send(Pubrel(mid))
            assert isinstance(self.wire.read_packet(), Pubcomp)
        self.wire.expect_nothing()  # PUBACK may precede the last slice of a fan-out; PINGRESP does not

    def gets(self, acknowledge: bool = True) -> list[Publish]:
        """Read all messages until none is left; acknowledge them if `acknowledge` is true."""
        seen: list[Publish] = []
        answered = True
        while answered:
            answered = False
            self.wire.send(Pingreq())
            while not isinstance(got := self.wire.read_packet(), Pingresp):
                if isinstance(got, Publish):
                    seen.append(got)
                    if acknowledge and got.qos:
                        self.wire.send(Puback(got.mid) if got.qos == 1 else Pubrec(got.mid))
                        answered = True
                elif isinstance(got, Pubrel):
                    self.wire.send(Pubcomp(got.mid))
                    answered = True
        return seen

    def payloads(self, acknowledge: bool = True) -> list[bytes]:
        return [got.payload for got in self.gets(acknowledge)]

    def leaves(self) -> None:
        """Send DISCONNECT; return when the broker has closed the connection."""
        self.wire.send(b"\xe0\x00")
        while self.wire.read_frame() is not None:
            pass
        self.wire.close()

    def close(self) -> None:
        self.wire.close()
