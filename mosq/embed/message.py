"""The messages that a subscription yields. Knows no bytes of packets."""

from typing import NamedTuple


class Properties(NamedTuple):
    """The properties of a message [v5 3.3.2.3]; None: not present."""

    payload_format: int | None = None           # 1: the payload is UTF-8
    message_expiry: int | None = None           # remaining seconds
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    user_properties: tuple[tuple[str, str], ...] = ()


class Message(NamedTuple):
    """A message as delivered to this subscription: `qos` and `retain` are those of the delivery, not of the
    publisher."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    properties: Properties = Properties()
