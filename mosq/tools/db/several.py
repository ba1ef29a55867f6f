"""The stores of a broker's workers as one, for `mosq db`: which folders there are, sums, and what only shows in all of
them together."""

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from mosq._core import worker_place
from mosq.server import layout
from mosq.tools.db import show
from mosq.tools.db.partly import Spread
from mosq.tools.db.report import stats_rows
from mosq.tools.db.store import STORE, StoreError, StoreSource, segment_files, sources_of, worker_folders

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mosq.tools.db.state import State
    from mosq.tools.db.store import Source

LISTED = 20
NOT_SUMMED = ("directory", "made_by", "first_lsn", "end_lsn", "oldest_needed_lsn")


class Stores:
    """The store in a folder, or the stores of workers. `parts`: worker, 0 for a broker that is one process, and its
    store. `problems`: faults of the folders."""

    def __init__(self, root: str, parts: "list[tuple[int, Source]]", found: layout.Layout | None = None,
                 problems: list[str] | None = None) -> None:
        self.root, self.parts, self.layout, self.problems = root, parts, found, problems or []

    @property
    def is_several(self) -> bool:
        """True if these are the stores of workers."""
        return self.parts[0][0] != 0

    def total_bytes(self) -> int:
        """Return the size of all files."""
        return sum(source.total_bytes() for _, source in self.parts)

    def spread(self) -> Spread:
        """Return to which of the stores a name belongs. Raises StoreError if that cannot be known."""
        if not self.is_several:
            return Spread(1, b"")
        if self.layout is None:
            raise StoreError(f"{self.problems[0]}; `mosq db check` shows more")
        return Spread(self.layout.workers, self.layout.key)

    def one(self) -> "Source":
        """Return the only store. Raises StoreError if there are several."""
        if self.is_several:
            raise StoreError(f"{self.root}: here are the stores of {len(self.parts)} workers; expected the folder of "
                             f"one of them, such as {self.parts[0][1].path}")
        return self.parts[0][1]


def stores_in(path: str) -> Stores:
    """Return the stores in a folder, or in the only store's folder in it. Raises StoreError."""
    root = _root_of(path)
    found = sources_of(root)
    if 0 in found:
        return Stores(root, [(0, found[0])])
    n = len(worker_folders(root))
    if not found:
        raise StoreError(f"{root}: the folders of {n} workers have no store")
    return Stores(root, [*found.items()], *_looked_at(root, os.listdir(root), n))


def _looked_at(root: str, names: list[str], n: int) -> tuple[layout.Layout | None, list[str]]:
    """Return the layout, if names can be looked for with it, and what is wrong with the folders."""
    problems = []
    if any(name in layout.UNFINISHED for name in names):
        problems.append("a change of the number of workers was interrupted; the next start ends it")
    try:
        found = layout.read_layout(root)
    except OSError as error:
        return None, [*problems, str(error)]
    if found is None:
        return None, [*problems, f"{root}: the file `{layout.FILE}` is missing; it names the clients' workers"]
    try:
        layout.check(root, found)
    except OSError as error:
        return found if found.workers == n else None, [*problems, str(error)]
    return found, problems


def _root_of(path: str) -> str:
    if segment_files(path):
        return path
    inside = [name for name in os.listdir(path) if name.endswith(STORE)]
    return os.path.join(path, inside[0]) if len(inside) == 1 else path


def misplaced(stores: Stores, states: "dict[int, State]") -> list[str]:
    """Return what is in several stores, or in another one than that of its hash."""
    if stores.layout is None:
        return []
    out: list[str] = []
    n = 0
    for kind in ("client id", "topic"):
        seen: dict[bytes, int] = {}
        for number, state in states.items():
            names = (session.id for session in state.sessions.values() if session.lsn >= 0)
            for name in names if kind == "client id" else state.retained:
                right = worker_place(stores.layout.key, name, stores.layout.workers) + 1
                other = seen.setdefault(name, number)
                wrong = f"is also in the store of worker {other}" if other != number else (
                    f"belongs to worker {right}" if right != number else "")
                n += bool(wrong)
                if wrong and n <= LISTED:
                    out.append(f"worker {number}: the {kind} {show.plain(name)!r} {wrong}")
    return [*out, f"and {n - LISTED:,} more names in a wrong store"] if n > LISTED else out


def summed(root: str, each: dict[int, dict[str, Any]]) -> dict[str, Any]:
    """Return the figures of all stores: sums, and those of each worker. A message in several stores counts in each."""
    most = max(each.values(), key=lambda one: int(one["queued_most"]))
    total = {name: sum(one[name] for one in each.values()) for name, value in most.items()
             if isinstance(value, int) and name not in NOT_SUMMED}
    return {"directory": root, **total, "queued_most": most["queued_most"],
            "queued_most_client": most["queued_most_client"],
            "workers": [{"worker": number, **one} for number, one in each.items()]}


def summed_text(f: dict[str, Any]) -> str:
    """Return the figures of `summed` for people: the sums, and a line for each worker."""
    rows = [("store", f"{f['directory']}, of {len(f['workers'])} workers"), *stats_rows(f)]
    rows += [(f"worker {one['worker']}", f"{one['sessions']:,} sessions, {one['queued']:,} queued, {one['retained']:,} "
              f"retained; {show.size(one['live_bytes'])} of {show.size(one['total_bytes'])}; lsn {one['first_lsn']} to "
              f"{one['end_lsn']}") for one in f["workers"]]
    return "\n".join(f"{name:<16} {value}" for name, value in rows)


@contextmanager
def joined(stores: Stores) -> "Iterator[Source]":
    """Yield one store with the content of all: that of a single process, or a copy in a temporary folder."""
    if not stores.is_several:
        yield stores.one()
        return
    import tempfile

    from mosq.tools.db.divide import Division

    old = stores.spread()
    with tempfile.TemporaryDirectory(prefix="mosq-db-") as folder:
        Division([source.path for _, source in stores.parts], old, [folder], Spread(1, b""), None,
                 [number - 1 for number, _ in stores.parts], layout.is_restored(stores.root)).write("an export")
        yield StoreSource(folder)
