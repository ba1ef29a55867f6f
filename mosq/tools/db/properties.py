"""Read the properties of a stored message that subscribers receive [v5 3.3.2.3]."""

from typing import Any

FORWARDED = {1: "payload_format", 3: "content_type", 8: "response_topic", 9: "correlation_data", 38: "user_properties"}
STRINGS = {3: 1, 8: 1, 9: 1, 38: 2}
TAKEN_OFF = {2: 4, 35: 2}  # expiry and alias, which the broker removes: bytes of their values
SUBSCRIPTION_ID = 11


def split(properties: bytes) -> list[tuple[int, bytes, list[bytes]]] | None:
    """Return (property, its bytes, its values) in order, or None if it is not a property block of a PUBLISH."""
    out, at = [], 0
    while at < len(properties):
        start, kind = at, properties[at]
        values: list[bytes] = []
        at += 1
        if kind == SUBSCRIPTION_ID:
            while at < len(properties) and properties[at] > 127:
                at += 1
            at += 1
        elif kind in STRINGS:
            for _ in range(STRINGS[kind]):
                n = int.from_bytes(properties[at : at + 2], "big")
                values.append(properties[at + 2 : at + 2 + n])
                at += 2 + n
        elif kind == 1 or kind in TAKEN_OFF:
            n = TAKEN_OFF.get(kind, 1)
            values.append(properties[at : at + n])
            at += n
        else:
            return None
        if at > len(properties):
            return None
        out.append((kind, properties[start:at], values))
    return out


def forwardable(properties: bytes) -> bytes | None:
    """Return the properties that subscribers receive, or None if it is not a property block of a PUBLISH."""
    parts = split(properties)
    return None if parts is None else b"".join(raw for kind, raw, _ in parts if kind in FORWARDED)


def readable(properties: bytes) -> dict[str, Any]:
    """Return the properties by name; correlation data is in hex."""
    parts = split(properties)
    if parts is None:
        return {"undecodable": properties.hex()}
    out: dict[str, Any] = {}
    for kind, _, values in parts:
        name = FORWARDED.get(kind)
        if kind == 38:
            out.setdefault("user_properties", []).append([value.decode(errors="replace") for value in values])
        elif kind == 9:
            out["correlation_data"] = values[0].hex()
        elif kind == 1:
            out["payload_format"] = values[0][0]
        elif name:
            out[name] = values[0].decode(errors="replace")
    return out
