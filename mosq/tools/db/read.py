"""Walk over a store for the commands: decode every record, report undecodable ones, and show progress."""

from typing import TYPE_CHECKING, Any

from mosq._core import record_decode
from mosq.tools.db.state import State, record_size
from mosq.tools.db.store import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mosq.tools.db.store import Source

    # lsn, kind, fields, bytes in the log
    Each = Callable[[int, int, dict[Any, Any], int], None]
    Progress = Callable[[int], None]  # further bytes

PROGRESS_BYTES = 1 << 20
UNREADABLE_LISTED = 100
TRIES = 10


class Unreadable:
    """Hold the records whose bodies cannot be decoded."""

    def __init__(self) -> None:
        self.n = 0
        self.first: list[tuple[int, str]] = []

    def add(self, lsn: int, text: str) -> None:
        self.n += 1
        if len(self.first) < UNREADABLE_LISTED:
            self.first.append((lsn, text))


def decoded(several: list[tuple[int, int, int, bytes]]) -> "Iterator[tuple[int, int, dict[Any, Any], int]]":
    """Yield (lsn, kind, fields, bytes in the log); leave out undecodable records."""
    for lsn, kind, _flags, body in several:
        try:
            yield lsn, kind, record_decode(kind, body), record_size(len(body))
        except ValueError:
            continue


def walk(source: "Source", each: "Each", progress: "Progress | None" = None) -> tuple[dict[str, Any], Unreadable]:
    """Call `each` for all records; return the losses and the undecodable records."""
    unreadable = Unreadable()
    seen = reported = 0

    def records(several: list[tuple[int, int, int, bytes]]) -> None:
        nonlocal seen, reported
        for lsn, kind, _flags, body in several:
            size = record_size(len(body))
            seen += size
            try:
                fields = record_decode(kind, body)
            except ValueError as error:
                unreadable.add(lsn, str(error))
                continue
            each(lsn, kind, fields, size)
        if progress is not None and seen - reported >= PROGRESS_BYTES:
            progress(seen - reported)
            reported = seen

    loss = source.scan(records)
    return loss, unreadable


def walk_whole(
    source: "Source", begin: "Callable[[], Each]", progress: "Progress | None" = None
) -> tuple[dict[str, Any], Unreadable]:
    """Walk over a store; begin again, with another function from `begin`, if a broker dropped a segment before it was
    read: the records that were read before may have been deleted by records of that segment. Raises StoreError."""
    for _ in range(TRIES):
        loss, unreadable = walk(source, begin(), progress)
        if not loss["moved"]:
            return loss, unreadable
    raise StoreError(f"{source.path}: the broker dropped segments before they were read, {TRIES} times; try again when "
                     "it has less to do, or stop it")


def state_of(source: "Source", progress: "Progress | None" = None) -> tuple[State, dict[str, Any], Unreadable]:
    state = State()

    def begin() -> "Each":
        nonlocal state
        state = State()
        return state.apply

    loss, unreadable = walk_whole(source, begin, progress)
    state.end()
    return state, loss, unreadable


def losses(loss: dict[str, Any], live: bool) -> list[str]:
    """Return the losses of a store as lines; torn bytes are no loss while a broker writes."""
    if loss["moved"]:
        return [f"the broker dropped {loss['moved']} segments before they were read; try again, or stop the broker"]
    out = [f"lost: lsn {lo} to {'?' if hi is None else hi}" for lo, hi in loss["ranges"]]
    if loss["n"] > len(loss["ranges"]):
        out.append(f"lost: {loss['n'] - len(loss['ranges'])} more ranges")
    if loss["n"]:
        out.append(
            f"lost in all: {loss['bytes']:,} bytes, {loss['unsynced_bytes']:,} of them never reported as synced"
        )
    if loss["unreadable"]:
        out.append(f"{loss['unreadable']} files have damaged headers; they stay unchanged")
    if loss["foreign"]:
        out.append(f"{loss['foreign']} files are of another store; they stay unchanged")
    if loss["torn_bytes"] and not live:
        out.append(f"torn: {loss['torn_bytes']:,} bytes behind the last commit, which were never acknowledged")
    return out
