"""Print chosen records of a store in log order."""

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from mosq.tools.db import kinds, show
from mosq.tools.db.read import losses, walk

if TYPE_CHECKING:
    from collections.abc import Callable

    from mosq.tools.db.store import Source


class Choice(NamedTuple):
    kinds: frozenset[int] = frozenset()  # empty: all
    client: str | None = None
    topic: str | None = None  # a filter
    from_lsn: int = 0
    limit: int | None = None


class EnoughError(Exception):
    """State that the limit is reached."""


def matches(filter: str, topic: str) -> bool:
    """Return whether a filter matches a topic [v5 4.7.1]; a `$share/` prefix is not interpreted."""
    levels, names = filter.split("/"), topic.split("/")
    if topic.startswith("$") and levels[0] in ("+", "#"):
        return False
    for i, level in enumerate(levels):
        if level == "#":
            return True
        if i >= len(names) or level not in ("+", names[i]):
            return False
    return len(levels) == len(names)


def numbers_of(source: "Source", client: bytes) -> set[int]:
    """Return the store session ids of a client; a record may come before the one that names its session's client."""
    found = set()

    def record(_lsn: int, kind: int, f: dict[Any, Any], _bytes: int) -> None:
        if kind == kinds.SESSION and f["id"] == client:
            found.add(f["sno"])

    walk(source, record)
    return found


def belongs(kind: int, f: dict[Any, Any], numbers: set[int], client: bytes) -> bool:
    if kind in (kinds.CLIENT_WILL, kinds.CLIENT_WILL_GONE, kinds.WAITING_WILL, kinds.LINK_WILL):
        return bool(f["id"] == client)
    if kind == kinds.UNDELIVERED:
        return bool(f["id"] == client) or not numbers.isdisjoint(f["sessions"])
    if "sno" in f:
        return f["sno"] in numbers
    return any(delivery[0] in numbers for delivery in f.get("entries", f.get("acks", ())))


def dump_to(
    source: "Source", choice: Choice, out: "Callable[[str], object]", payload: bool, as_json: bool
) -> list[str]:
    """Print the records; return lines about lost and unreadable ones."""
    client = b"" if choice.client is None else choice.client.encode(errors="surrogateescape")
    numbers = None if choice.client is None else numbers_of(source, client)
    left = choice.limit

    def record(lsn: int, kind: int, f: dict[Any, Any], _bytes: int) -> None:
        nonlocal left
        if lsn < choice.from_lsn or (choice.kinds and kind not in choice.kinds):
            return
        if numbers is not None and not belongs(kind, f, numbers, client):
            return
        if choice.topic is not None and not ("topic" in f and matches(choice.topic, show.plain(f["topic"]))):
            return
        if as_json:
            out(json.dumps({"lsn": lsn, "kind": kinds.NAMES[kind], **show.record_json(kind, f, payload)}))
        else:
            out(show.line(lsn, kind, f, payload))
        if left is not None:
            left -= 1
            if left == 0:
                raise EnoughError

    try:
        loss, unreadable = walk(source, record)
    except EnoughError:
        return []
    more = [f"... and {unreadable.n - len(unreadable.first):,} more"] if unreadable.n > len(unreadable.first) else []
    return [*losses(loss, True), *(f"lsn {lsn}: {text}" for lsn, text in unreadable.first), *more]
