"""Bring what a client has received into a form in which two brokers can be compared.

What a broker may choose is replaced: packet ids by their order, assigned client ids, aliases, the rest of an expiry, reason strings; and
what may come in any order is sorted: copies of one message, the retained messages of one SUBSCRIBE, and acknowledgements among messages.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

from tests.harness import packets
from tests.harness.packets import Connack, Disconnect, Puback, Pubcomp, Publish, Pubrec, Pubrel
from tests.harness.properties import Malformed, P, Props

CLOSED, SILENT = "closed", "silent"
EXPIRY_STEPS = (50, 100, 1000)          # what steps.py sends; a broker subtracts the time that has passed


Got = tuple[Any, bytes]         # a packet, or CLOSED, SILENT or a text about bytes that are no packet; and the bytes


@dataclass
class Names:
    """The names of the packet ids that a broker has chosen for one session."""

    by_mid: dict[int, str] = field(default_factory=dict)
    copies: dict[int, tuple[str, bytes]] = field(default_factory=dict)      # by packet id: topic and payload of the message
    count: int = 0

    def of_publish(self, packet: Publish) -> str:
        mid = int(packet.mid)
        if not packet.dup or mid not in self.by_mid:
            self.count += 1
            self.by_mid[mid] = f"m{self.count}"
            self.copies[mid] = (packet.topic, packet.payload)
        return self.by_mid[mid]

    def of_ack(self, mid: int) -> str:
        return self.by_mid.get(mid, f"unknown {mid}")


@dataclass(frozen=True)
class Item:
    """One received packet: its form for the comparison, the packet itself, and its bytes."""

    key: Any
    packet: Any = None
    raw: bytes = b""


def read(level: int, raw: bytes, aliases: dict[int, str]) -> Any:
    """Decode a packet, resolve its alias; return a text for a packet that a server must not send."""
    try:
        packet = packets.decode(level, raw)
    except (Malformed, UnicodeDecodeError, ValueError) as error:
        return f"malformed {raw.hex()}: {error}"
    if isinstance(packet, Publish):
        alias = next((value for ident, value in packet.props if ident == P.TOPIC_ALIAS), None)
        if isinstance(alias, int):
            if packet.topic:
                aliases[alias] = packet.topic
            packet = replace(packet, topic=aliases.get(alias, f"unknown alias {alias}"))
    return packet


def ordered(got: list[Got], names: Names) -> list[Got]:
    """Sort what may come in any order: equal for both brokers if they have sent the same, since acknowledgements follow this order too.
    A PUBREL that is sent again is a copy of the message that it belongs to."""
    live, retained = ({_copies(packet) for packet, _ in got if isinstance(packet, Publish) and packet.retain == flag} for flag in (False, True))
    # a retained message next to live copies of the same message could be sorted among them, or among the retained ones
    apart = bool(live & retained)
    got = sorted(got, key=lambda one: _place(one[0], apart))
    again = any(isinstance(packet, Connack) for packet, _ in got)

    def copies(packet: Any) -> object:
        return names.copies.get(packet.mid, id(packet)) if again and isinstance(packet, Pubrel) else _copies(packet)

    for kind in (_retained, copies) if apart else (copies, _retained):
        got = [one for _, group in groupby(got, key=lambda one: kind(one[0])) for one in sorted(group, key=lambda one: _rank(one[0], names))]
    return got


def _place(packet: Any, apart: bool) -> int:
    if isinstance(packet, Connack):
        return 0
    if isinstance(packet, str | Disconnect):
        return 4
    return 3 if apart and isinstance(packet, Publish) and packet.retain else 2 if _message(packet) else 1


def _message(packet: Any) -> bool:
    return isinstance(packet, Publish | Pubrel)


def _copies(packet: Any) -> object:
    return (packet.topic, packet.payload) if isinstance(packet, Publish) else id(packet)


def _retained(packet: Any) -> object:
    return "retained" if isinstance(packet, Publish) and packet.retain else id(packet)


def _rank(packet: Any, names: Names) -> tuple[Any, ...]:
    if isinstance(packet, Pubrel) and packet.mid in names.copies:
        return (*names.copies[packet.mid], -1, names.of_ack(packet.mid))
    if not isinstance(packet, Publish):
        return ()
    return packet.topic, packet.payload, packet.qos, packet.retain, packet.dup, _props(packet.props)


def named(got: list[Got], names: Names) -> list[Item]:
    return [Item(_key(packet, names), packet, raw) for packet, raw in got]


def _key(packet: Any, names: Names) -> Any:
    if isinstance(packet, Publish):
        assert isinstance(packet.mid, int)
        return replace(packet, mid=names.of_publish(packet) if packet.qos else 0, props=_props(packet.props))
    if isinstance(packet, Pubrel):
        assert isinstance(packet.mid, int)
        return replace(packet, mid=names.of_ack(packet.mid), props=_props(packet.props))
    if isinstance(packet, Connack | Puback | Pubrec | Pubcomp | Disconnect | packets.Suback):
        return replace(packet, props=_props(packet.props))
    return packet


def _props(props: Props) -> Props:
    """Return the properties in one order, without what a broker may choose."""
    out: list[tuple[int, Any]] = []
    for ident, value in props:
        if ident in (P.TOPIC_ALIAS, P.REASON_STRING):
            continue
        if ident == P.ASSIGNED_ID:
            value = "assigned"
        if ident == P.EXPIRY and isinstance(value, int):
            value = min((step for step in EXPIRY_STEPS if value <= step), default=value)
        out.append((ident, value))
    user = [(ident, value) for ident, value in out if ident == P.USER]
    return tuple(sorted((one for one in out if one[0] != P.USER), key=repr)) + tuple(user)
