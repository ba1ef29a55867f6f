"""Does what Sparkplug 3.0 requires of a "Sparkplug Aware MQTT Server", as Mosquitto's sparkplug-aware plugin does.

NBIRTH and DBIRTH messages are published again, retained, as $sparkplug/certificates/TOPIC
[tck-id-conformance-mqtt-aware-store, -nbirth-mqtt-topic, -nbirth-mqtt-retain, -dbirth-mqtt-topic, -dbirth-mqtt-retain].
With `plugin_opt_ndeath_timestamp true`, which the specification leaves open, an NDEATH gets the time of its delivery
[...-aware-ndeath-timestamp]. Of a payload, only field 1 of a protobuf message is known.
"""

import time

from mosq.auth.plugin import Message, Plugin
from mosq.varint import varint

BIRTHS = ("spBv1.0/+/NBIRTH/+", "spBv1.0/+/DBIRTH/+/+")
DEATHS = ("spBv1.0/+/NDEATH/+",)
CERTIFICATES = "$sparkplug/certificates/"
OPTION = "ndeath_timestamp"
TIMESTAMP_KEY = 1 << 3                  # protobuf: field 1, a varint
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
VARINT_BYTES_MAX = 10


class SparkplugAware(Plugin):
    """The plugin sparkplug-aware."""
    topics_in = BIRTHS

    def __init__(self, options: dict[str, str]) -> None:
        unknown = next((key for key in options if key != OPTION), None)
        if unknown is not None:
            raise ValueError(f"unknown option '{unknown[:40]}'; expected none, or {OPTION}")
        if options.get(OPTION, "false") not in ("true", "false"):
            raise ValueError(f"{OPTION} is neither true nor false")
        if options.get(OPTION) == "true":
            self.topics_out = DEATHS

    def message_in(self, message: Message) -> None:
        """Store a birth message as a retained certificate. The message itself is unchanged."""
        topic = CERTIFICATES + message.topic
        if len(topic.encode()) <= 65535:
            self.broker.publish(topic, message.payload, message.qos, retain=True)

    def message_out(self, message: Message) -> Message | None:
        """Return an NDEATH with the time of its delivery in milliseconds since 1970."""
        payload = with_timestamp(message.payload, int(time.time() * 1000))
        return None if payload is None else message._replace(payload=payload)


def with_timestamp(payload: bytes, now_ms: int) -> bytes | None:
    """Return a Sparkplug payload with another timestamp; None if it is no Sparkplug payload."""
    kept = bytearray()
    place = 0
    while place < len(payload):
        begin = place
        key, place = read_varint(payload, place)
        if place < 0:
            return None
        kind = key & 7
        if kind == VARINT:
            _, place = read_varint(payload, place)
        elif kind == BYTES:
            length, place = read_varint(payload, place)
            place = place + length if place >= 0 else place
        elif kind in (FIXED64, FIXED32):
            place += 8 if kind == FIXED64 else 4
        else:
            return None
        if not 0 <= place <= len(payload):
            return None
        if key != TIMESTAMP_KEY:
            kept += payload[begin:place]
    return bytes((TIMESTAMP_KEY,)) + varint(now_ms) + bytes(kept)


def read_varint(payload: bytes, place: int) -> tuple[int, int]:
    """Return a value and the position after it; a position below 0 means that there is none."""
    value = 0
    for i in range(VARINT_BYTES_MAX):
        if place + i >= len(payload):
            break
        byte = payload[place + i]
        value |= (byte & 0x7F) << 7 * i
        if byte < 0x80:
            return value, place + i + 1
    return 0, -1
