"""Provide a slow decoder in plain Python; the tests compare the compiled decoder with it."""

import unicodedata
from typing import Any

from tests.codec.packets import (
    AUTH,
    BAD_VERSION,
    CLIENTID_NOT_VALID,
    COMPAT_MALFORMED,
    COMPAT_PROTOCOL_ERROR,
    CONNECT,
    DISCONNECT,
    MALFORMED,
    PLACES,
    PROTOCOL_ERROR,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    SUBSCRIBE,
    UNSUBSCRIBE,
    V5,
    V31,
    WILL,
)

NO_PROPS: dict[Any, Any] = {"present": [], "raw": b""}
WIDTH = {1: 1, 2: 4, 17: 4, 19: 2, 23: 1, 24: 4, 25: 1, 33: 2, 34: 2, 35: 2, 36: 1, 37: 1, 39: 4, 40: 1, 41: 1, 42: 1}
STRINGS = {3, 8, 18, 21, 26, 28, 31}
BINARIES = {9, 22}
BOOLS = {1, 23, 25}
NOT_0 = {11, 33, 39}
KEPT = {1, 2, 3, 8, 9, 11, 17, 18, 19, 21, 22, 23, 24, 25, 31, 33, 34, 35, 36, 37, 39}
PUB_REASONS = {0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99}
REASONS = {
    PUBACK: PUB_REASONS,
    PUBREC: PUB_REASONS,
    PUBREL: {0, 0x92},
    PUBCOMP: {0, 0x92},
    DISCONNECT: set(range(256)),
    AUTH: {0x18, 0x19},
}


class Refused(Exception):
    def __init__(self, rc: int) -> None:
        super().__init__(hex(rc))
        self.rc = rc


def utf8_ok(raw: bytes) -> bool:
    try:
        s = raw.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return not any(
        unicodedata.category(c) == "Cc" or 0xFDD0 <= ord(c) <= 0xFDEF or ord(c) & 0xFFFF in (0xFFFE, 0xFFFF) for c in s
    )


class Reader:
    def __init__(self, data: bytes) -> None:
        self.rest = data

    def take(self, n: int) -> bytes:
        if len(self.rest) < n:
            raise Refused(MALFORMED)
        taken, self.rest = self.rest[:n], self.rest[n:]
        return taken

    def number(self, n: int) -> int:
        return int.from_bytes(self.take(n), "big")

    def binary(self) -> bytes:
        return self.take(self.number(2))

    def string(self) -> bytes:
        raw = self.binary()
        if not utf8_ok(raw):
            raise Refused(MALFORMED)
        return raw

    def varint(self) -> int:
        value = 0
        for i in range(4):
            byte = self.number(1)
            value |= (byte & 127) << 7 * i
            if byte < 128:
                if byte == 0 and i:
                    raise Refused(MALFORMED)
                return value
        raise Refused(MALFORMED)

    def end(self) -> None:
        if self.rest:
            raise Refused(MALFORMED)


def properties(r: Reader, place: int) -> dict[Any, Any]:
    raw = r.take(r.varint())
    out: dict[Any, Any] = {"raw": raw}
    present: set[int] = set()
    p = Reader(raw)
    wrong = 0
    while p.rest:
        i = p.number(1)
        if i not in WIDTH and i not in STRINGS | BINARIES and i not in (11, 38):
            raise Refused(MALFORMED)
        if i not in PLACES[place]:
            wrong = wrong or (MALFORMED if place in (SUBSCRIBE, UNSUBSCRIBE) else PROTOCOL_ERROR)
        if i in present and i != 38:
            wrong = wrong or PROTOCOL_ERROR
        present.add(i)
        if i == 38:
            p.string(), p.string()
            continue
        value: Any = (
            p.string()
            if i in STRINGS
            else p.binary()
            if i in BINARIES
            else p.varint()
            if i == 11
            else p.number(WIDTH[i])
        )
        if (i in BOOLS and value > 1) or (i in NOT_0 and value == 0):
            wrong = wrong or PROTOCOL_ERROR
        if i == 8 and (not value or b"+" in value or b"#" in value):
            wrong = wrong or PROTOCOL_ERROR
        if i in KEPT:
            out[i] = value
    if wrong:
        raise Refused(wrong)
    return out | {"present": sorted(present)}


def connect(flags: int, r: Reader) -> Any:
    name = r.binary()
    if name not in (b"MQTT", b"MQIsdp"):
        raise Refused(PROTOCOL_ERROR)
    level = r.number(1)
    versions = {(b"MQTT", 4): 4, (b"MQTT", 0x84): 4, (b"MQTT", 5): 5, (b"MQIsdp", 3): 3, (b"MQIsdp", 0x83): 3}
    if (name, level) not in versions:
        return BAD_VERSION, level
    v = versions[name, level]
    if flags and v != V31:
        raise Refused(MALFORMED)
    head = r.take(3)
    bits = head[0]
    will, qos, retain = bits >> 2 & 1, bits >> 3 & 3, bits >> 5 & 1
    has_password, has_username = bits >> 6 & 1, bits >> 7
    if (
        qos == 3
        or (v != V31 and (bits & 1 or (not will and (qos or retain))))
        or (v != V5 and has_password > has_username)
    ):
        raise Refused(MALFORMED)
    out: dict[str, Any] = {
        "version": v,
        "bridge": level >> 7,
        "clean_start": bits >> 1 & 1,
        "will": will,
        "will_qos": qos if will else 0,
        "will_retain": retain if will else 0,
        "keepalive": int.from_bytes(head[1:], "big"),
        "will_topic": b"",
        "will_payload": b"",
        "username": b"",
        "password": b"",
        "props": NO_PROPS,
        "will_props": NO_PROPS,
    }
    if v == V5:
        out["props"] = properties(r, CONNECT)
        if 22 in out["props"] and 21 not in out["props"]:
            raise Refused(PROTOCOL_ERROR)
    out["client_id"] = r.binary()
    if not utf8_ok(out["client_id"]):
        raise Refused(CLIENTID_NOT_VALID)
    if will:
        if v == V5:
            out["will_props"] = properties(r, WILL)
        out["will_topic"], out["will_payload"] = r.string(), r.binary()
    if v == V31 and not r.rest:
        has_username = has_password = 0
    if has_username:
        out["username"] = r.string()
    if v == V31 and not r.rest:
        has_password = 0
    if has_password:
        out["password"] = r.binary()
    r.end()
    return 0, out | {"has_username": has_username, "has_password": has_password}


def publish(flags: int, r: Reader, v: int) -> Any:
    qos, dup = flags >> 1 & 3, flags >> 3
    if qos == 3 or dup > qos:
        raise Refused(MALFORMED)
    topic = r.binary()
    pid = 0
    if qos:
        pid = r.number(2)
        if pid == 0:
            raise Refused(PROTOCOL_ERROR)
    if not utf8_ok(topic):
        raise Refused(MALFORMED)
    props = properties(r, PUBLISH) if v == V5 else NO_PROPS
    if v == V5 and not topic and 35 not in props:
        raise Refused(PROTOCOL_ERROR | COMPAT_MALFORMED)
    return 0, {
        "qos": qos,
        "retain": flags & 1,
        "dup": dup,
        "pid": pid,
        "topic": topic,
        "payload": r.rest,
        "props": props,
    }


def ack(t: int, flags: int, r: Reader, v: int) -> Any:
    if flags != (2 if t == PUBREL else 0) and not (v == V31 and t == PUBREL):
        raise Refused(PROTOCOL_ERROR if t == PUBREL else MALFORMED)
    out: dict[str, Any] = {"pid": r.number(2), "rc": 0, "props": NO_PROPS}
    if out["pid"] == 0:
        raise Refused(PROTOCOL_ERROR)
    if v == V5 and r.rest:
        out["rc"] = r.number(1)
        if out["rc"] not in REASONS[t]:
            raise Refused(PROTOCOL_ERROR)
        if r.rest:
            out["props"] = properties(r, t)
    r.end()
    return 0, out


def option(byte: int, topic_filter: bytes, v: int) -> int:
    if byte > 2 if v != V5 else byte & 0xC0:
        raise Refused(MALFORMED)
    if byte & 3 == 3 or byte & 0x30 == 0x30:
        raise Refused(MALFORMED if v != V5 else PROTOCOL_ERROR | COMPAT_MALFORMED)
    if byte & 4 and topic_filter.startswith(b"$share/"):
        raise Refused(PROTOCOL_ERROR)
    return byte


def subscribe(t: int, flags: int, r: Reader, v: int) -> Any:
    if flags != 2 and not (v == V31 and flags == 10):
        raise Refused(MALFORMED)
    pid = r.number(2)
    if pid == 0:
        raise Refused(MALFORMED)
    props = properties(r, t) if v == V5 else NO_PROPS
    if not r.rest and v != V31:
        raise Refused(PROTOCOL_ERROR | COMPAT_MALFORMED)
    items: list[Any] = []
    while r.rest:
        topic_filter = r.string()
        items.append((topic_filter, option(r.number(1), topic_filter, v)) if t == SUBSCRIBE else topic_filter)
    return 0, {"pid": pid, "props": props, "items": items}


def leave(t: int, flags: int, r: Reader, v: int) -> Any:
    out: dict[str, Any] = {"rc": 0, "props": NO_PROPS}
    if t == AUTH and v != V5:
        raise Refused(PROTOCOL_ERROR)
    if flags and not (t == DISCONNECT and v == V31):
        raise Refused(MALFORMED | COMPAT_PROTOCOL_ERROR if t == DISCONNECT else MALFORMED)
    if v == V5:
        if r.rest:
            out["rc"] = r.number(1)
        if out["rc"] not in REASONS[t]:
            raise Refused(PROTOCOL_ERROR)
        if r.rest or t == AUTH:
            out["props"] = properties(r, t)
        if t == AUTH and 21 not in out["props"] and not r.rest:
            raise Refused(PROTOCOL_ERROR)
    r.end()
    return 0, out


def decode(data: bytes, v: int) -> Any:
    """Return (0, fields), (0x84, level) or (reason code, None), as the test API's decode does."""
    t, flags = data[0] >> 4, data[0] & 15
    body = data[1:]
    while body[0] > 127:
        body = body[1:]
    r = Reader(body[1:])
    try:
        if t == CONNECT:
            return connect(flags, r)
        if t == PUBLISH:
            return publish(flags, r, v)
        if t in (PUBACK, PUBREC, PUBREL, PUBCOMP):
            return ack(t, flags, r, v)
        if t in (SUBSCRIBE, UNSUBSCRIBE):
            return subscribe(t, flags, r, v)
        if t in (DISCONNECT, AUTH):
            return leave(t, flags, r, v)
        return (MALFORMED if flags or r.rest else 0), None
    except Refused as refused:
        return refused.rc, None
