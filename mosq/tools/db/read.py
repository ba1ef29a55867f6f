"""Walks over a store for the commands: every record decoded, what cannot be decoded told, a bar for who waits."""

from typing import TYPE_CHECKING, Any

from cext.session.record_api import record_decode
from mosq.tools.db.state import State, record_size

if TYPE_CHECKING:
    from collections.abc import Callable

    from mosq.tools.db.store import Source

    # lsn, kind, fields, bytes in the log
    Each = Callable[[int, int, dict[Any, Any], int], None]
    Progress = Callable[[int], None]  # bytes more

PROGRESS_BYTES = 1 << 20
UNREADABLE_TOLD = 100


class Unreadable:
    """Records whose bodies are none."""

    def __init__(self) -> None:
        self.n = 0
        self.told: list[tuple[int, str]] = []

    def add(self, lsn: int, text: str) -> None:
        self.n += 1
        if len(self.told) < UNREADABLE_TOLD:
            self.told.append((lsn, text))


def walk(source: "Source", each: "Each", progress: "Progress | None" = None) -> tuple[dict[str, Any], Unreadable]:
    """-> what was lost, what could not be decoded"""
    unreadable = Unreadable()
    seen = told = 0

    def records(several: list[tuple[int, int, int, bytes]]) -> None:
        nonlocal seen, told
        for lsn, kind, _flags, body in several:
            size = record_size(len(body))
            seen += size
            try:
                fields = record_decode(kind, body)
            except ValueError as error:
                unreadable.add(lsn, str(error))
                continue
            each(lsn, kind, fields, size)
        if progress is not None and seen - told >= PROGRESS_BYTES:
            progress(seen - told)
            told = seen

    loss = source.scan(records)
    return loss, unreadable


def state_of(source: "Source", progress: "Progress | None" = None) -> tuple[State, dict[str, Any], Unreadable]:
    state = State()
    loss, unreadable = walk(source, state.apply, progress)
    state.end()
    return state, loss, unreadable


def losses(loss: dict[str, Any], live: bool) -> list[str]:
    """What the store says it lost, a line each; of a store that a broker writes to, torn bytes are none."""
    out = [f"lost: lsn {lo} to {'?' if hi is None else hi}" for lo, hi in loss["ranges"]]
    if loss["n"] > len(loss["ranges"]):
        out.append(f"lost: {loss['n'] - len(loss['ranges'])} more ranges")
    if loss["n"]:
        out.append(
            f"lost in all: {loss['bytes']:,} bytes, {loss['unsynced_bytes']:,} of them never said to be on the disk"
        )
    if loss["unreadable"]:
        out.append(f"{loss['unreadable']} files have damaged headers; they are left alone")
    if loss["foreign"]:
        out.append(f"{loss['foreign']} files are of another store; they are left alone")
    if loss["torn_bytes"] and not live:
        out.append(f"torn: {loss['torn_bytes']:,} bytes behind the last commit, which were never acknowledged")
    return out
