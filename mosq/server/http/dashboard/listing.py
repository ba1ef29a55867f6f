"""Searches and sorts the sessions of the broker, in a thread. A page of the dashboard gets one page of the result.

The loop answers in slices, so it never waits. Only the best rows are kept: memory does not grow with the number of
sessions. Equal searches of several pages share one result for a moment, and between two scans there is a pause of
PAUSE times the duration of a scan, so scans take at most 1 / (1 + PAUSE) of a core.
"""

import asyncio
import time

from mosq.server.admin.inspect import shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor
    from typing import Any

    from mosq.engine import Engine

    Row = dict[str, Any]
    Query = tuple[str, str, str, int, int]      # search, sort, state, offset, count

SLICE = 1000
EXAMINED_MAX = 200_000          # sessions
SCAN_S = 10.0                   # the longest search; a worker of a cluster may be slow
ROWS_MAX = 1000                 # offset and count together
NAME_MAX = 1024                 # characters of a client id or user name in a row; they may have 65,535 bytes
SHARED_S = 4.0
SHARED_MAX = 16
PAUSE = 9
# name -> key of a session of the engine; the largest come first, client ids in their order
SORTS = {"queued": "pending", "bytes": "queue_bytes", "unsent": "unsent_bytes", "subscriptions": "subscriptions"}
STATES = {"all": None, "connected": True, "offline": False}


class Listing:
    """The searches of all pages."""

    def __init__(self, engine: "Engine", thread: "Executor") -> None:
        self._engine, self._thread = engine, thread
        self._lock = asyncio.Lock()
        self._shared: dict[Query, tuple[float, dict[str, Any]]] = {}
        self._not_before_s = 0.0

    def shared(self, query: "Query") -> "dict[str, Any] | None":
        """Return the result of an equal search of a moment ago; None if there is none."""
        until_s, found = self._shared.get(query, (0.0, None))
        return found if time.monotonic() < until_s else None

    async def get(self, query: "Query") -> "dict[str, Any]":
        """Return rows, the number of matching and of examined sessions, and whether all were examined. Raises
        RuntimeError if the broker does not run."""
        async with self._lock:
            found = self.shared(query)
            if found is not None:
                return found
            await asyncio.sleep(max(0.0, self._not_before_s - time.monotonic()))
            begun_s = time.monotonic()
            found = await asyncio.get_running_loop().run_in_executor(self._thread, scan, self._engine, query)
            now_s = time.monotonic()
            self._not_before_s = now_s + PAUSE * (now_s - begun_s)
            while len(self._shared) >= SHARED_MAX:
                del self._shared[next(iter(self._shared))]
            self._shared.pop(query, None)
            self._shared[query] = now_s + SHARED_S, found
            return found

    def forget(self) -> None:
        """Forget all results, because something was changed."""
        self._shared.clear()


def scan(engine: "Engine", query: "Query") -> "dict[str, Any]":
    """Search all sessions."""
    search, sort, state, offset, count = query
    most = min(offset + count, ROWS_MAX)
    is_wanted, before = _wanted(search.casefold(), STATES[state]), _order(sort)
    best: list[Row] = []
    cursor = examined = matching = 0
    until_s = time.monotonic() + SCAN_S
    while True:
        part = engine.sessions(cursor, SLICE)
        cursor = part.cursor
        examined += len(part.sessions)
        new = [_short(row) for row in part.sessions if is_wanted(row)]
        matching += len(new)
        best += new
        if len(best) > 4 * most + SLICE:
            best = sorted(best, key=before)[:most]
        if cursor == 0 or examined >= EXAMINED_MAX or time.monotonic() >= until_s:
            break
    best = sorted(best, key=before)[offset:most]
    rows = [{**shown(row), "clientidCut": True} if row.get("id_cut") else shown(row) for row in best]
    return {"clients": rows, "matching": matching, "examined": examined,
            "complete": cursor == 0}


def _short(row: "Row") -> "Row":
    """Return a session whose names are cut, so that the rows that are kept have a bound."""
    user = row["username"]
    if len(row["id"]) <= NAME_MAX and (user is None or len(user) <= NAME_MAX):
        return row
    return {**row, "id": row["id"][:NAME_MAX], "username": None if user is None else user[:NAME_MAX],
            "id_cut": len(row["id"]) > NAME_MAX}


def _order(sort: str) -> "Callable[[Row], tuple[Any, ...]]":
    key = SORTS.get(sort)
    if key is None:
        return lambda row: (row["id"],)
    return lambda row: (-row.get(key, 0), row["id"])


def _wanted(search: str, connected: bool | None) -> "Callable[[Row], bool]":
    def is_wanted(row: "Row") -> bool:
        if connected is not None and row["connected"] is not connected:
            return False
        return (not search or search in row["id"].casefold() or search in (row["username"] or "").casefold()
                or search in (row.get("address") or ""))

    return is_wanted
