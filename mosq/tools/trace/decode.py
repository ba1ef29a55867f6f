"""Decodes an MQTT packet from its bytes, for people. A trace cuts packets, so every field may be missing; then the
packet is marked as cut. Knows the bytes of MQTT 3.1, 3.1.1 and 5.0; never raises an error for any bytes."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TYPES = ("RESERVED", "CONNECT", "CONNACK", "PUBLISH", "PUBACK", "PUBREC", "PUBREL", "PUBCOMP", "SUBSCRIBE", "SUBACK",
         "UNSUBSCRIBE", "UNSUBACK", "PINGREQ", "PINGRESP", "DISCONNECT", "AUTH")
(CONNECT, CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP, SUBSCRIBE, SUBACK, UNSUBSCRIBE, UNSUBACK, PINGREQ,
 PINGRESP, DISCONNECT, AUTH) = range(1, 16)
V5 = 5
BYTE, TWO, FOUR, VARINT, TEXT, DATA, PAIR = range(7)
PROPERTIES = {
    1: ("payloadFormat", BYTE), 2: ("messageExpiry", FOUR), 3: ("contentType", TEXT), 8: ("responseTopic", TEXT),
    9: ("correlationData", DATA), 11: ("subscriptionIdentifier", VARINT), 17: ("sessionExpiry", FOUR),
    18: ("assignedClientId", TEXT), 19: ("serverKeepAlive", TWO), 21: ("authenticationMethod", TEXT),
    22: ("authenticationData", DATA), 23: ("requestProblemInformation", BYTE), 24: ("willDelay", FOUR),
    25: ("requestResponseInformation", BYTE), 26: ("responseInformation", TEXT), 28: ("serverReference", TEXT),
    31: ("reasonString", TEXT), 33: ("receiveMaximum", TWO), 34: ("topicAliasMaximum", TWO), 35: ("topicAlias", TWO),
    36: ("maximumQoS", BYTE), 37: ("retainAvailable", BYTE), 38: ("userProperty", PAIR),
    39: ("maximumPacketSize", FOUR),
    40: ("wildcardsAvailable", BYTE), 41: ("subscriptionIdentifiersAvailable", BYTE), 42: ("sharedAvailable", BYTE),
}
SECRET = "hidden"


class CutError(Exception):
    """The packet ends here."""


class Bytes:
    """A position in the bytes of a packet."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, n: int) -> bytes:
        """Return the next n bytes. Raises CutError."""
        if self.at + n > len(self.data):
            raise CutError
        self.at += n
        return self.data[self.at - n:self.at]

    def number(self, n: int) -> int:
        """Return a number of n bytes."""
        return int.from_bytes(self.take(n), "big")

    def varint(self) -> int:
        """Return a variable byte integer."""
        value = 0
        for i in range(4):
            byte = self.number(1)
            value |= (byte & 127) << 7 * i
            if byte < 128:
                return value
        raise CutError

    def text(self) -> str:
        """Return a text with its length in front."""
        return self.take(self.number(2)).decode("utf-8", "replace")

    @property
    def left(self) -> int:
        """The number of bytes that are left."""
        return len(self.data) - self.at


def decoded(frame: bytes, version: int, size: int) -> "dict[str, Any]":
    """Return the fields of a packet. `frame` may be cut; `size`: bytes of the whole packet."""
    found: dict[str, Any] = {}
    b = Bytes(frame)
    try:
        first = b.number(1)
        found["type"] = TYPES[first >> 4]
        found["flags"] = first & 15
        b.varint()
        decoder = DECODERS.get(first >> 4)
        if decoder is not None:
            decoder(b, found, version, first)
    except CutError:
        found["cut"] = True
    if len(frame) < size:
        found["cut"] = True
    return found


def properties(b: Bytes) -> "dict[str, Any]":
    """Return the properties at this place."""
    end = b.varint() + b.at
    found: dict[str, Any] = {}
    while b.at < end:
        number = b.varint()
        name, kind = PROPERTIES.get(number, (str(number), None))
        if kind is None:
            raise CutError
        if kind == PAIR:
            found.setdefault(name, []).append([b.text(), b.text()])
        elif kind == DATA:
            value = b.take(b.number(2))
            found[name] = SECRET if name == "authenticationData" else value.hex()
        elif kind == TEXT:
            found[name] = b.text()
        elif kind == VARINT:
            found.setdefault(name, []).append(b.varint())
        else:
            found[name] = b.number((1, 2, 4)[kind])
    return found


def _properties_of(b: Bytes, found: "dict[str, Any]", version: int) -> None:
    if version == V5:
        there = properties(b)
        if there:
            found["properties"] = there


def _connect(b: Bytes, found: "dict[str, Any]", version: int, first: int) -> None:
    b.text()
    version = found["version"] = b.number(1) & 127
    flags = b.number(1)
    found["cleanStart"] = bool(flags & 2)
    found["keepalive"] = b.number(2)
    _properties_of(b, found, version)
    found["clientid"] = b.text()
    if flags & 4:
        will: dict[str, Any] = {}
        if version == V5:
            there = properties(b)
            if there:
                will["properties"] = there
        will |= {"topic": b.text(), "qos": flags >> 3 & 3, "retain": bool(flags & 32)}
        will["size"] = len(b.take(b.number(2)))
        found["will"] = will
    if flags & 128:
        found["username"] = b.text()
    if flags & 64:
        found["password"] = SECRET


def _connack(b: Bytes, found: "dict[str, Any]", version: int, first: int) -> None:
    found["sessionPresent"] = bool(b.number(1) & 1)
    found["reason"] = b.number(1)
    _properties_of(b, found, version)


def _publish(b: Bytes, found: "dict[str, Any]", version: int, first: int) -> None:
    found |= {"qos": first >> 1 & 3, "retain": bool(first & 1), "dup": bool(first & 8), "topic": b.text()}
    if first & 6:
        found["id"] = b.number(2)
    _properties_of(b, found, version)
    found["payload"] = b.take(b.left)


def _ack(b: Bytes, found: "dict[str, Any]", version: int, first: int) -> None:
    found["id"] = b.number(2)
    if version == V5 and b.left:
        found["reason"] = b.number(1)
        if b.left:
            _properties_of(b, found, version)


def _subscribe(b: Bytes, found: "dict[str, Any]", version: int, first: int) -> None:
    found["id"] = b.number(2)
    _properties_of(b, found, version)
    filters = found["filters"] = []
    while b.left:
        one: dict[str, Any] = {"filter": b.text()}
        if first >> 4 == SUBSCRIBE:
            options = b.number(1)
            one["qos"] = options & 3
            if version == V5 and options & 60:
                one |= {"noLocal": bool(options & 4), "retainAsPublished": bool(options & 8),
                        "retainHandling": options >> 4 & 3}
        filters.append(one)


def _suback(b: Bytes, found: "dict[str, Any]", version: int, first: int) -> None:
    found["id"] = b.number(2)
    _properties_of(b, found, version)
    found["reasons"] = list(b.take(b.left))


def _end(b: Bytes, found: "dict[str, Any]", version: int, first: int) -> None:
    if b.left:
        found["reason"] = b.number(1)
        if b.left:
            _properties_of(b, found, version)


DECODERS = {CONNECT: _connect, CONNACK: _connack, PUBLISH: _publish, PUBACK: _ack, PUBREC: _ack, PUBREL: _ack,
            PUBCOMP: _ack, SUBSCRIBE: _subscribe, UNSUBSCRIBE: _subscribe, SUBACK: _suback, UNSUBACK: _suback,
            DISCONNECT: _end, AUTH: _end}
