"""Encodes and decodes the few MQTT 5 packets that an in-process client needs. Pure functions without state or sockets.

Encoding raises ValueError for a value that no packet can carry; decoding raises Malformed for bytes that are no packet.
"""

from struct import Struct

from mosq.embed.message import Message, Properties
from mosq.varint import varint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

CONNECT, CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP, SUBSCRIBE, SUBACK = range(1, 10)
DISCONNECT = 14

UINT16_MAX = 65535
UINT32_MAX = 2**32 - 1
VARINT_MAX = 268_435_455        # [v5 1.5.5]

PAYLOAD_FORMAT, MESSAGE_EXPIRY, CONTENT_TYPE, RESPONSE_TOPIC, CORRELATION_DATA = 1, 2, 3, 8, 9
RECEIVE_MAXIMUM, MAXIMUM_QOS, RETAIN_AVAILABLE, USER_PROPERTY, MAXIMUM_PACKET_SIZE = 33, 36, 37, 38, 39

# [v5 2.2.2.2] property -> type, for the properties that a broker sends
_KINDS = {PAYLOAD_FORMAT: "byte", MESSAGE_EXPIRY: "u32", CONTENT_TYPE: "text", RESPONSE_TOPIC: "text",
          CORRELATION_DATA: "binary", 11: "varint", 17: "u32", 18: "text", 19: "u16", 21: "text", 22: "binary",
          26: "text", 28: "text", 31: "text", RECEIVE_MAXIMUM: "u16", 34: "u16", 35: "u16", MAXIMUM_QOS: "byte",
          RETAIN_AVAILABLE: "byte", USER_PROPERTY: "pair", MAXIMUM_PACKET_SIZE: "u32", 40: "byte", 41: "byte",
          42: "byte"}
_U16, _U32 = Struct("!H"), Struct("!I")


class Malformed(Exception):
    """The bytes are no valid packet."""


# ---------------------------------------------------------------- encoding

def frame(head: int, *parts: bytes) -> bytes:
    """Encode a packet from its first byte and its parts. Raises ValueError if it is too long."""
    size = sum(map(len, parts))
    if size > VARINT_MAX:
        raise ValueError(f"a packet of {size} bytes; at most {VARINT_MAX} are possible")
    return b"".join((bytes((head,)), varint(size), *parts))


def binary(value: bytes, what: str) -> bytes:
    """Encode binary data with its length [v5 1.5.6]. Raises ValueError."""
    if len(value) > UINT16_MAX:
        raise ValueError(f"{what} has {len(value)} bytes; at most {UINT16_MAX} are possible")
    return _U16.pack(len(value)) + value


def text(value: str, what: str) -> bytes:
    """Encode a string [v5 1.5.4]. Raises ValueError, TypeError."""
    if not isinstance(value, str):
        raise TypeError(f"{what} must be str, not {type(value).__name__}")
    if "\0" in value:
        raise ValueError(f"{what} holds a zero character")
    return binary(value.encode(), what)


def connect(client_id: str, receive_maximum: int, username: str | None = None, password: str | None = None) -> bytes:
    """Encode CONNECT: clean start, no keep alive, no will; the session ends with the socket."""
    properties = bytes((RECEIVE_MAXIMUM,)) + _U16.pack(receive_maximum)
    flags = 0x02 | (username is not None) << 7 | (password is not None) << 6
    return frame(CONNECT << 4, text("MQTT", "protocol"), bytes((5, flags, 0, 0)), varint(len(properties)), properties,
                 text(client_id, "client id"), b"" if username is None else text(username, "the username"),
                 b"" if password is None else binary(password.encode(), "the password"))


def properties_block(properties: Properties) -> bytes:
    """Encode properties with their length. Raises ValueError, TypeError."""
    out = bytearray()
    if properties.payload_format is not None:
        if properties.payload_format not in (0, 1):
            raise ValueError("payload_format must be 0 or 1")
        out += bytes((PAYLOAD_FORMAT, properties.payload_format))
    if properties.message_expiry is not None:
        if not 0 <= properties.message_expiry <= UINT32_MAX:
            raise ValueError(f"message_expiry must be 0 to {UINT32_MAX} seconds")
        out.append(MESSAGE_EXPIRY)
        out += _U32.pack(int(properties.message_expiry))
    if properties.content_type is not None:
        out.append(CONTENT_TYPE)
        out += text(properties.content_type, "content_type")
    if properties.response_topic is not None:
        out.append(RESPONSE_TOPIC)
        out += text(topic_name(properties.response_topic, "response_topic"), "response_topic")
    if properties.correlation_data is not None:
        out.append(CORRELATION_DATA)
        out += binary(bytes(properties.correlation_data), "correlation_data")
    for name, value in properties.user_properties:
        out.append(USER_PROPERTY)
        out += text(name, "the name of a user property") + text(value, "a user property")
    return varint(len(out)) + bytes(out)


def topic_name(topic: str, what: str) -> str:
    """Check a topic [v5 4.7.1-1, 4.7.3-1]. Raises ValueError, TypeError."""
    if not isinstance(topic, str):
        raise TypeError(f"{what} must be str, not {type(topic).__name__}")
    if not topic or "+" in topic or "#" in topic:
        raise ValueError(f"{what} {topic[:80]!r}: expected a topic, not empty and without + and #")
    return topic


def publish(message: Message, pid: int) -> bytes:
    """Encode PUBLISH. `pid`: the packet identifier, unused at QoS 0. Raises ValueError."""
    if message.qos not in (0, 1, 2):
        raise ValueError(f"qos is {message.qos!r}; it must be 0, 1 or 2")
    return frame(PUBLISH << 4 | message.qos << 1 | bool(message.retain),
                 text(topic_name(message.topic, "topic"), "topic"), _U16.pack(pid) if message.qos else b"",
                 properties_block(message.properties), message.payload)


def acknowledge(kind: int, pid: int) -> bytes:
    """Encode PUBACK, PUBREC, PUBREL or PUBCOMP with success."""
    return frame(kind << 4 | (2 if kind == PUBREL else 0), _U16.pack(pid))


def subscribe(pid: int, filters: "Iterable[str]", options: int) -> bytes:
    """Encode SUBSCRIBE. `options`: the byte of [v5 3.8.3.1], the same for each filter."""
    return frame(SUBSCRIBE << 4 | 2, _U16.pack(pid), b"\0",
                 *(text(filter, "filter") + bytes((options,)) for filter in filters))


def disconnect() -> bytes:
    """Encode DISCONNECT with reason 0."""
    return frame(DISCONNECT << 4)


# ---------------------------------------------------------------- decoding

class Cursor:
    """Reads a packet's body, never beyond its end. Methods raise Malformed."""

    __slots__ = ("at", "body")

    def __init__(self, body: bytes) -> None:
        self.body, self.at = body, 0

    def take(self, size: int) -> bytes:
        end = self.at + size
        if end > len(self.body):
            raise Malformed("a packet ends too early")
        value = self.body[self.at:end]
        self.at = end
        return value

    def left(self) -> int:
        return len(self.body) - self.at

    def byte(self) -> int:
        return self.take(1)[0]

    def u16(self) -> int:
        return int.from_bytes(self.take(2), "big")

    def u32(self) -> int:
        return int.from_bytes(self.take(4), "big")

    def binary(self) -> bytes:
        return self.take(self.u16())

    def text(self) -> str:
        try:
            return self.binary().decode()
        except UnicodeDecodeError:
            raise Malformed("text that is not UTF-8") from None

    def pair(self) -> tuple[str, str]:
        return self.text(), self.text()

    def varint(self) -> int:
        value = 0
        for shift in (0, 7, 14, 21):
            byte = self.byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
        raise Malformed("a length of more than four bytes")

    def properties(self) -> "dict[int, Any]":
        """Read the properties by identifier; user properties are in a list."""
        if not self.left():
            return {}
        size = self.varint()
        end = self.at + size
        if end > len(self.body):
            raise Malformed("properties longer than their packet")
        found: dict[int, Any] = {}
        while self.at < end:
            identifier = self.varint()
            kind = _KINDS.get(identifier)
            if kind is None:
                raise Malformed(f"unknown property {identifier}")
            value = getattr(self, kind)()
            if identifier == USER_PROPERTY:
                found.setdefault(USER_PROPERTY, []).append(value)
            else:
                found[identifier] = value
        if self.at != end:
            raise Malformed("a property longer than its block")
        return found


def head(buffer: bytearray, at: int) -> tuple[int, int] | None:
    """Return (length of the fixed header, length of the rest) of the frame at `at`; None if it is incomplete."""
    value = 0
    for i in range(4):
        if at + 1 + i >= len(buffer):
            return None
        byte = buffer[at + 1 + i]
        value |= (byte & 127) << 7 * i
        if byte < 128:
            return 2 + i, value
    raise Malformed("a length of more than four bytes")


def read_publish(flags: int, body: bytes) -> tuple[Message, int]:
    """Decode PUBLISH; return the message and its packet identifier (0: none)."""
    cursor = Cursor(body)
    topic = cursor.text()
    qos = flags >> 1 & 3
    pid = cursor.u16() if qos else 0
    found = cursor.properties()
    properties = Properties()
    if found:
        properties = Properties(found.get(PAYLOAD_FORMAT), found.get(MESSAGE_EXPIRY), found.get(CONTENT_TYPE),
                                found.get(RESPONSE_TOPIC), found.get(CORRELATION_DATA),
                                tuple(found.get(USER_PROPERTY, ())))
    return Message(topic, body[cursor.at:], qos, bool(flags & 1), properties), pid
