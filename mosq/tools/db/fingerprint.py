"""The fingerprint of what a persistence plugin has: one number, which is the same for the same content in each process.

It is the XOR of a number for each part that counts, so an event changes it in constant time. Stored messages count only
where a queue or a retained message uses them. Cost: 2 us for a part.
"""

import re
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mosq.tools.db.differences import Item

BYTES = 8
# persist-sqlite declares topics as STRING, which SQLite reads as a number where it can: `007` comes back as `7`
NUMBER = re.compile(rb"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*")


def digest_of(topic: bytes, payload: bytes, props: bytes, expires_s: int) -> int:
    """Return a number for the content of a message."""
    name = _name(topic)
    hasher = blake2b(b"%d %d %d " % (len(name), len(payload), expires_s), digest_size=BYTES)
    for one in (name, payload, props):
        hasher.update(one)
    return int.from_bytes(hasher.digest())


def of_client(client_id: bytes, facts: tuple[Any, ...]) -> int:
    """Return the number of a session. User name and port do not count: no broker changes them alone, and a plugin may
    not keep them."""
    _, *times, _ = facts
    return _number("client", client_id, times)


def of_sub(client_id: bytes, filter: bytes, options: tuple[int, int]) -> int:
    return _number("sub", client_id, filter, options)


def of_message(client_id: bytes, direction: int, item: "Item") -> int:
    """Return the number of a delivery. The number of its stored message does not count."""
    return _number("message", client_id, direction, item.number, item.pid, item.qos, item.sub_id, item.state,
                   item.content)


def of_retained(topic: bytes, content: int) -> int:
    return _number("retained", _name(topic), content)


def of_will(client_id: bytes, content: int) -> int:
    return _number("will", client_id, content)


def _name(topic: bytes) -> bytes:
    return b"0" if NUMBER.fullmatch(topic) else topic


def _number(*parts: object) -> int:
    return int.from_bytes(blake2b(repr(parts).encode(), digest_size=BYTES).digest())
