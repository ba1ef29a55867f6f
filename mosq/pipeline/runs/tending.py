"""Do the upkeep of all tables on a schedule while `run` runs, a table at a time between two batches."""

import contextlib
import functools
import time
from typing import TYPE_CHECKING, Any

from mosq.pipeline import MosqPipelineError
from mosq.pipeline.lake import lock, upkeep
from mosq.pipeline.lake.places import are_made, lost, place_of
from mosq.pipeline.lake.table import Table, plain
from mosq.pipeline.rows.tables import DEVICES, FANOUT, GOLD, TELEMETRY
from mosq.pipeline.runs import progress, removed
from mosq.pipeline.runs.progress import BRONZE, PROGRESS
from mosq.pipeline.runs.tableset import BACKLOG, QUARANTINE, closed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from mosq.pipeline.runs.tableset import TableSet
    from mosq.pipeline.settings import Settings

EVERY_S = 60.0  # the number of replaced files and logs grows with it
STEP_S = 1.0  # no further table begins after that in one step
DONE = "upkeep.json"  # when the last one was done


class Tending:
    """Know which tables are due."""

    def __init__(self, tables: "TableSet", log: "Callable[[str], object]") -> None:
        self.tables, self.log = tables, log
        self.path = tables.settings.checkpoints / DONE
        done = progress.get(self.path) or {}
        self.at, self.full_at = float(done.get("at", 0.0)), float(done.get("full_at", time.time()))
        self.waiting: list[str] = []
        self.full = False

    def is_due(self) -> bool:
        return bool(self.waiting) or abs(time.time() - self.at) >= EVERY_S  # the clock may have been set back

    def step(self, state: dict[str, Any]) -> None:
        """Tend some of the tables; those left come in the next step. A `compact` beside this run does the same work."""
        try:
            with alone(self.tables.settings):
                self._step(state)
        except MosqPipelineError:
            self.waiting, self.at = [], time.time()

    def _step(self, state: dict[str, Any]) -> None:
        if not self.waiting:
            self.full = time.time() - self.full_at >= upkeep.FULL_EVERY_S
            self.waiting = sorted({*self.tables.open, *(_unwritten(self.tables.settings) if self.full else ())})
        until = time.monotonic() + STEP_S
        settings = self.tables.settings
        with lock.deleting(settings.checkpoints / lock.READERS) as cleans:
            while self.waiting and time.monotonic() < until:
                name = self.waiting.pop()
                plan = upkeep.Plan(
                    settings.retention.get(name),
                    closed(settings, state),
                    newest_at_least=upkeep.NEWEST_AT_LEAST,
                    full=self.full,
                    cleans=cleans,
                    record=functools.partial(removed.record, settings),
                )
                try:
                    table = self.tables.open.get(name) or Table.open(self.tables.place, name)
                    if table is not None and table.identity == self.tables.identity:
                        upkeep.tend(table, plan)
                except MosqPipelineError as error:
                    self.log(f"the upkeep of {name} failed, and is done again later: {error}")
        if not self.waiting:
            self.at = time.time()
            self.full_at = self.at if self.full else self.full_at
            progress.put(self.path, {"at": self.at, "full_at": self.full_at})


# ---- by command


def existing(settings: "Settings") -> list[Table]:
    """Return all tables of the set that there are."""
    silver = [f"silver/{rule.name}" for rule in settings.silver]
    gold = [*(f"gold/{name}" for name in GOLD), DEVICES, BACKLOG, TELEMETRY]
    names = [BRONZE, *silver, QUARANTINE, *gold, *_unwritten(settings), PROGRESS]
    found = [Table.open(place_of(settings), name) for name in names]
    tables = [table for table in found if table is not None]
    if not tables:
        if are_made(settings):
            raise lost(settings, BRONZE)
        raise MosqPipelineError(f"{settings.tables}: there are no tables yet: `mosq pipeline run` creates them")
    return [table for table in tables if table.identity == tables[0].identity]


def _unwritten(settings: "Settings") -> list[str]:
    """Return the names of tables that no batch writes: gold/fanout, the records of deletions, those of old rules."""
    from pyarrow import fs

    files, base = place_of(settings).child("silver").filesystem()
    with plain(settings.tables):
        there = files.get_file_info(fs.FileSelector(base, allow_not_found=True))
    known = {rule.name for rule in settings.silver}
    return [FANOUT, removed.NAME, *sorted(f"silver/{one.base_name}" for one in there if one.base_name not in known)]


def alone(settings: "Settings") -> "AbstractContextManager[lock.Lock]":
    """Lock the upkeep: two merges of the same files would double their rows."""
    busy = f"{settings.tables}: another program merges the files of these tables; wait for it"
    return lock.held(settings.checkpoints / lock.UPKEEP, busy)


@contextlib.contextmanager
def between_rebuilds(settings: "Settings") -> "Iterator[None]":
    """Let no rebuild write the tables during the block. Raises MosqPipelineError if there is an unfinished one."""
    busy = f"{settings.tables}: a rebuild works on these tables, or rows are erased from them; wait for it"
    with lock.held(settings.checkpoints / lock.REBUILD, busy):
        if (settings.checkpoints / progress.SWAP).exists():
            raise MosqPipelineError(f"{settings.checkpoints}: {progress.HALF_SWITCHED}")
        yield


def _is_rebuilding(settings: "Settings") -> bool:
    """Return whether there are files of a rebuild that no version names yet."""
    try:
        with between_rebuilds(settings):
            return False
    except MosqPipelineError:
        return True


def compact_all(settings: "Settings", at_least: int = 2) -> "Iterator[str]":
    """Merge small files of all tables, and delete replaced files and old rows; yield a line for each table.

    `run` may write the tables at the same time.
    """
    with alone(settings), lock.deleting(settings.checkpoints / lock.READERS) as cleans:
        state = progress.after(settings)
        record = functools.partial(removed.record, settings)
        full = not _is_rebuilding(settings)
        for table in existing(settings):
            keep_us = settings.retention.get(table.name)
            plan = upkeep.Plan(
                keep_us, closed(settings, state), max(2, at_least), full=full, cleans=cleans, record=record
            )
            yield f"{table.name}: {upkeep.tend(table, plan)}"


def erase(settings: "Settings", client: str | None, topic: str | None, log: "Callable[[str], object]") -> int:
    """Delete the rows of a client, of a topic, or of a client on a topic, from all tables; return how many.

    A rebuild has read the rows already, and would bring them back. No batch is committed at the same time: some
    of the tables would keep rows of the batch, and others would lose them.
    """
    path = settings.checkpoints / lock.COMMITS
    waits = functools.partial(log, "waiting until `run` has committed its batch")
    with between_rebuilds(settings), lock.awaited(path, waits):
        return upkeep.erase(existing(settings), client, topic, log, functools.partial(removed.record, settings))
