"""Formats of `mosq sub`: those of mosquitto_sub's -F, -v and --pretty. A format is compiled once; each message becomes
the bytes that go to the output."""

import json
import time

from mosq.tools.clients.errors import ClientError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from paho.mqtt.client import MQTTMessage

    Field = Callable[["MQTTMessage", "Moment"], bytes]

ESCAPES = {"\\": b"\\", "0": b"\0", "a": b"\a", "e": b"\x1b", "n": b"\n", "r": b"\r", "t": b"\t", "v": b"\v"}
PADDED_WITH_ZERO, CUT = "AEFlmSXx", "CIRt"      # parameters that take the flag 0, and a maximum width
PLAIN = "DPpqrUjJ"                              # parameters of these take no width, except p
WIDTH_MAX = 10_000


class Moment:
    """The time at which a message was received."""

    __slots__ = ("local", "ns")

    def __init__(self) -> None:
        self.ns = time.time_ns()
        self.local = time.localtime(self.ns // 1_000_000_000)

    def iso(self, with_fraction: bool = False) -> str:
        """Return the time in ISO 8601 with the offset of the time zone."""
        fraction = f".{self.ns // 1000 % 1_000_000:06}" if with_fraction else ""
        return time.strftime("%Y-%m-%dT%H:%M:%S", self.local) + fraction + time.strftime("%z", self.local)


class BadPayloadError(Exception):
    """The payload is not JSON."""


def compiled(text: str, pretty: bool) -> "Callable[[MQTTMessage], bytes]":
    """Return the function that formats a message. Raises ClientError for a wrong format."""
    parts: list[Field] = []
    rest = iter(text)
    for letter in rest:
        if letter == "%":
            parts.append(_parameter(rest, pretty))
        elif letter == "@":
            parts.append(_time(next(rest, "")))
        elif letter == "\\":
            parts.append(_escape(next(rest, "")))
        else:
            parts.append(_fixed(letter.encode(errors="surrogateescape")))

    def formatted(message: "MQTTMessage") -> bytes:
        moment = Moment()
        return b"".join([part(message, moment) for part in parts])

    return formatted


def _fixed(text: bytes) -> "Field":
    return lambda message, moment: text


def _escape(letter: str) -> "Field":
    if not letter:
        raise ClientError("Error: Incomplete escape specifier.")
    if letter not in ESCAPES:
        raise ClientError(f"Error: Invalid escape specifier '{letter}'. Expected one of these letters behind the "
                          f"backslash: {', '.join(ESCAPES)}")
    return _fixed(ESCAPES[letter])


def _time(letter: str) -> "Field":
    if not letter:
        raise ClientError("Error: Incomplete format specifier.")
    if letter == "@":
        return _fixed(b"@")
    if letter == "N":
        return lambda message, moment: b"%09d" % (moment.ns % 1_000_000_000)
    return lambda message, moment: time.strftime(f"%{letter}", moment.local).encode(errors="surrogateescape")


def _parameter(rest: "Any", pretty: bool) -> "Field":
    """Read `[-0][WIDTH][.MAXIMUM]LETTER` behind a `%`."""
    letter, flags = next(rest, ""), ""
    while letter and letter in "-0":
        flags, letter = flags + letter, next(rest, "")
    width, letter = _number(letter, rest)
    maximum: int | None = None
    if letter == ".":
        maximum, letter = _number(next(rest, ""), rest)
    if not letter:
        raise ClientError("Error: Incomplete format specifier.")
    if letter == "%":
        return _fixed(b"%")
    if letter in "jJ":
        return lambda message, moment: _json(message, moment, letter == "J", pretty).encode()
    find = FIELDS.get(letter)
    if find is None:
        raise ClientError(f"Error: Invalid format specifier '{letter}'. Expected %% or one of "
                          f"%{', %'.join([*FIELDS, 'j', 'J'])}.")
    if letter in PLAIN and letter != "p":
        return find
    limit = maximum if letter in CUT else None
    fill = b"0" if "0" in flags and "-" not in flags and letter in PADDED_WITH_ZERO else b" "

    def field(message: "MQTTMessage", moment: Moment) -> bytes:
        text = find(message, moment)[:limit]
        return text.ljust(width, fill) if "-" in flags else text.rjust(width, fill)

    return field


def _number(letter: str, rest: "Any") -> tuple[int, str]:
    digits = ""
    while letter and letter in "0123456789":
        digits, letter = digits + letter, next(rest, "")
    if len(digits) > 5 or int(digits or 0) > WIDTH_MAX:
        raise ClientError(f"Error: The width {digits[:10]} is too large. Expected at most {WIDTH_MAX}.")
    return int(digits or 0), letter


# ---------------------------------------------------------------- parameters

def _property(name: str) -> "Field":
    def text(message: "MQTTMessage", moment: Moment) -> bytes:
        value: Any = getattr(message.properties, name, None)
        if value is None:
            return b""
        if name == "SubscriptionIdentifier":
            return b" ".join(b"%d" % one for one in (value if isinstance(value, list) else [value]))
        return value if isinstance(value, bytes) else str(value).encode()
    return text


def _user_properties(message: "MQTTMessage", moment: Moment) -> bytes:
    return " ".join(f"{name}:{value}" for name, value in getattr(message.properties, "UserProperty", ())).encode()


def topic_of(message: "MQTTMessage") -> bytes:
    """Return the topic in UTF-8."""
    return message.topic.encode()


FIELDS: "dict[str, Field]" = {
    "A": _property("TopicAlias"),
    "C": _property("ContentType"),
    "D": _property("CorrelationData"),
    "E": _property("MessageExpiryInterval"),
    "F": _property("PayloadFormatIndicator"),
    "I": lambda message, moment: moment.iso().encode(),
    "l": lambda message, moment: b"%d" % len(message.payload),
    "m": lambda message, moment: b"%d" % message.mid,
    "P": _user_properties,
    "p": lambda message, moment: bytes(message.payload),
    "q": lambda message, moment: b"%d" % message.qos,
    "R": _property("ResponseTopic"),
    "r": lambda message, moment: b"%d" % message.retain,
    "S": _property("SubscriptionIdentifier"),
    "t": lambda message, moment: topic_of(message),
    "U": lambda message, moment: b"%d.%09d" % divmod(moment.ns, 1_000_000_000),
    "x": lambda message, moment: message.payload.hex().encode(),
    "X": lambda message, moment: message.payload.hex().upper().encode(),
}

# ---------------------------------------------------------------- JSON

PROPERTY_NAMES = {
    "ContentType": "content-type", "UserProperty": "user-properties", "ResponseTopic": "response-topic",
    "CorrelationData": "correlation-data", "PayloadFormatIndicator": "payload-format-indicator",
    "MessageExpiryInterval": "message-expiry-interval", "SubscriptionIdentifier": "subscription-identifier",
    "TopicAlias": "topic-alias"}


def _json(message: "MQTTMessage", moment: Moment, is_json: bool, pretty: bool) -> str:
    """Return a message as JSON, with Mosquitto's keys in its order. Raises BadPayloadError."""
    made: dict[str, Any] = {"tst": moment.iso(with_fraction=True), "topic": message.topic, "qos": message.qos,
                            "retain": int(message.retain), "payloadlen": len(message.payload)}
    if message.qos:
        made["mid"] = message.mid
    properties = _properties(message)
    if properties:
        made["properties"] = properties
    try:
        made["payload"] = json.loads(message.payload) if is_json else message.payload.decode(errors="replace")
        return written(made, 0) if pretty else json.dumps(made, ensure_ascii=False, separators=(",", ":"))
    except (ValueError, RecursionError):
        raise BadPayloadError(f"Error: Message payload is not valid JSON on topic {message.topic}.") from None


def _properties(message: "MQTTMessage") -> "dict[str, Any]":
    made: dict[str, Any] = {}
    for name, value in ({} if message.properties is None else vars(message.properties)).items():
        if name == "UserProperty":
            users = made["user-properties"] = {}
            for key, one in value:          # a key may occur again: its value becomes a list
                users[key] = one if key not in users else [*_listed(users[key]), one]
        elif name in PROPERTY_NAMES:
            one = value[0] if isinstance(value, list) and len(value) == 1 else value
            made[PROPERTY_NAMES[name]] = one.decode(errors="replace") if isinstance(one, bytes) else one
    return made


def _listed(value: "Any") -> "list[Any]":
    return value if isinstance(value, list) else [value]


def written(tree: "Any", depth: int) -> str:
    """Return JSON in the layout of Mosquitto's --pretty: a line for each key, with tabs."""
    if isinstance(tree, dict) and tree:
        tabs = "\t" * (depth + 1)
        lines = [f"{tabs}{json.dumps(key, ensure_ascii=False)}:\t{written(value, depth + 1)}"
                 for key, value in tree.items()]
        return "{\n" + ",\n".join(lines) + "\n" + "\t" * depth + "}"
    if isinstance(tree, list):
        return "[" + ", ".join(written(one, depth) for one in tree) + "]"
    return json.dumps(tree, ensure_ascii=False)
