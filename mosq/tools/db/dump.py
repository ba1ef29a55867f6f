"""The records of a store in log order, those that were asked for."""

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
    """The limit is reached."""


def matches(filter: str, topic: str) -> bool:
    """[v5 4.7.1]; a share is not looked at."""
    levels, names = filter.split("/"), topic.split("/")
    if topic.startswith("$") and levels[0] in ("+", "#"):
        return False
    for i, level in enumerate(levels):
        if level == "#":
            return True
        if i >= len(names) or level not in ("+", names[i]):
            return False
    return len(levels) == len(names)


def numbers_of(source: "Source", client: str) -> set[int]:
    """The sessions that a client had; a record may come before the one that says whose it is."""
    wanted, found = client.encode(errors="surrogateescape"), set()

    def record(_lsn: int, kind: int, f: dict[Any, Any], _bytes: int) -> None:
        if kind == kinds.SESSION and f["id"] == wanted:
            found.add(f["sno"])

    walk(source, record)
    return found


def belongs(f: dict[Any, Any], numbers: set[int]) -> bool:
    if "sno" in f:
        return f["sno"] in numbers
    return any(owed[0] in numbers for owed in f.get("entries", f.get("acks", ())))


def dump_to(
    source: "Source", choice: Choice, out: "Callable[[str], object]", payload: bool, as_json: bool
) -> list[str]:
    """-> what was lost or cannot be read, a line each"""
    numbers = None if choice.client is None else numbers_of(source, choice.client)
    left = choice.limit

    def record(lsn: int, kind: int, f: dict[Any, Any], _bytes: int) -> None:
        nonlocal left
        if lsn < choice.from_lsn or (choice.kinds and kind not in choice.kinds):
            return
        if numbers is not None and not belongs(f, numbers):
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
    more = [f"... and {unreadable.n - len(unreadable.told):,} more"] if unreadable.n > len(unreadable.told) else []
    return [*losses(loss, True), *(f"lsn {lsn}: {text}" for lsn, text in unreadable.told), *more]
