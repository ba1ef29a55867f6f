"""Checks the arguments that `Broker` and `AsyncBroker` share, and converts them for the protocol."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    Payload = bytes | bytearray | memoryview | str
    UserProperties = Mapping[str, str] | Iterable[tuple[str, str]]

ANSWER_TIMEOUT_S = 10.0     # seconds for an answer of the broker in this process


def octets(payload: "Payload") -> bytes:
    """Return a payload as bytes. Raises TypeError."""
    if isinstance(payload, str):
        return payload.encode()
    if isinstance(payload, bytes | bytearray | memoryview):
        return bytes(payload)
    raise TypeError(f"payload must be bytes or str, not {type(payload).__name__}")


def pairs(user_properties: "UserProperties") -> tuple[tuple[str, str], ...]:
    """Return user properties as a tuple of pairs."""
    items = user_properties.items() if hasattr(user_properties, "items") else user_properties
    return tuple((name, value) for name, value in items)


def subscribe_options(qos: int, retain_as_published: bool, retain_handling: int) -> int:
    """Return the options byte of a subscription [v5 3.8.3.1]. Raises ValueError."""
    if qos not in (0, 1, 2):
        raise ValueError(f"qos is {qos!r}; it must be 0, 1 or 2")
    if retain_handling not in (0, 1, 2):
        raise ValueError(f"retain_handling is {retain_handling!r}; it must be 0, 1 or 2")
    return qos | bool(retain_as_published) << 3 | retain_handling << 4
