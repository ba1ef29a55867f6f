"""Read the packets that clients send: the display names their fields, and rules look at them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tests.fuzz.sessions.maker import Step
from tests.harness.packets import (
    Auth, Connect, Disconnect, Pingreq, Puback, Pubcomp, Publish, Pubrec, Pubrel, Subscribe, Unsubscribe, Will, split,
)
from tests.harness.properties import Cursor, Malformed, read_varint


CONTROL = re.compile("[\0-\x1f\x7f-\x9f]")          # [v5 1.5.4]: Mosquitto and mosq refuse them
RECEIVED = {0, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99}
RELEASED = {0, 0x92}
REASONS = {Puback: RECEIVED, Pubrec: RECEIVED, Pubrel: RELEASED, Pubcomp: RELEASED}


def frames(data: bytes) -> list[bytes]:
    """Divide bytes into packets; the last one may be incomplete."""
    out = []
    while data:
        n = split(data) or len(data)
        out.append(data[:n])
        data = data[n:]
    return out


def packets_of(step: Step) -> list[bytes]:
    """Return the packets that a step sends."""
    if step[0] not in ("open", "send"):
        return []
    return frames(bytes.fromhex(step[4] if step[0] == "open" else step[2]))


def read_asked(level: int, data: bytes) -> Any:
    """Return a client's packet; None if it is malformed. `level` is that of the client's connection."""
    kind, flags = data[0] >> 4, data[0] & 15
    reader = _READERS.get(kind)
    reserved = flags != (2 if kind in (6, 8, 10) else 0) and kind != 3 and (kind, level) != (1, 3)    # 3.1 reserves no flags of CONNECT
    if reader is None or reserved:
        return None
    try:
        body = Cursor(data[read_varint(data, 1)[1]:])
        packet = reader(level, flags, body)
    except (Malformed, ValueError, IndexError):
        return None
    return None if body.left or not _valid(packet) else packet


def _valid(packet: Any) -> bool:
    """Return True if the reason code belongs to the packet and its texts have no control characters."""
    codes = REASONS.get(type(packet))
    return (codes is None or packet.rc in codes) and not any(CONTROL.search(text) for text in _texts(vars(packet).values()))


def _texts(values: Iterable[Any]) -> Iterator[str]:
    for value in values:
        if isinstance(value, str):
            yield value
        elif isinstance(value, tuple):
            yield from _texts(value)
        elif isinstance(value, Will):
            yield from _texts(vars(value).values())


def _connect(level: int, flags: int, body: Cursor) -> Connect:
    protocol, version, bits, keepalive = body.text(), body.u8(), body.u8(), body.u16()
    if (protocol, version) != ("MQIsdp" if level == 3 else "MQTT", level) or bits & 1 or bits & 0x18 == 0x18:
        raise Malformed("protocol or flags")
    if (not bits & 4 and bits & 0x38) or (level < 5 and bits & 0xC0 == 0x40):
        raise Malformed("flags of a will that is absent, or a password alone")
    props = body.props() if level == 5 else ()
    client_id = body.text()
    will = None
    if bits & 4:
        will_props = body.props() if level == 5 else ()
        will = Will(body.text(), body.binary(), bits >> 3 & 3, bool(bits & 0x20), will_props)
    username = body.text() if bits & 0x80 else None
    return Connect(client_id, bool(bits & 2), keepalive, will, username, body.binary() if bits & 0x40 else None, props)


def _subscribe(level: int, flags: int, body: Cursor) -> Subscribe:
    mid, props = body.u16(), body.props() if level == 5 else ()
    filters = []
    while body.left:
        filters.append((body.text(), body.u8()))
    return Subscribe(mid, tuple(filters), props)


def _unsubscribe(level: int, flags: int, body: Cursor) -> Unsubscribe:
    mid, props = body.u16(), body.props() if level == 5 else ()
    filters = []
    while body.left:
        filters.append(body.text())
    return Unsubscribe(mid, tuple(filters), props)


def _disconnect(level: int, flags: int, body: Cursor) -> Disconnect:
    return Disconnect.read(level, flags, body) if level == 5 else Disconnect()


_READERS: dict[int, Callable[[int, int, Cursor], Any]] = {
    1: _connect, 3: Publish.read, 4: Puback.read, 5: Pubrec.read, 6: Pubrel.read, 7: Pubcomp.read, 8: _subscribe, 10: _unsubscribe,
    12: lambda level, flags, body: Pingreq(), 14: _disconnect, 15: Auth.read,
}
