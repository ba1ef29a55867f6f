"""Do the upkeep of all tables on a schedule while `run` runs, a table at a time between two batches."""

import time
from typing import TYPE_CHECKING, Any

from mosq.pipeline import MosqPipelineError
from mosq.pipeline.lake import upkeep
from mosq.pipeline.runs import progress

if TYPE_CHECKING:
    from collections.abc import Callable

    from mosq.pipeline.runs.tableset import TableSet

EVERY_S = 600.0
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
        return bool(self.waiting) or time.time() - self.at >= EVERY_S

    def step(self, state: dict[str, Any]) -> None:
        """Tend some of the tables; those left come in the next step."""
        if not self.waiting:
            self.waiting = sorted(self.tables.open)
            self.full = time.time() - self.full_at >= upkeep.FULL_EVERY_S
        until = time.monotonic() + STEP_S
        while self.waiting and time.monotonic() < until:
            name = self.waiting.pop()
            plan = upkeep.Plan(self.tables.settings.retention.get(name), self.tables.closed(state), full=self.full)
            try:
                upkeep.tend(self.tables.table(name), plan)
            except MosqPipelineError as error:
                self.log(f"the upkeep of {name} failed, and is done again later: {error}")
        if not self.waiting:
            self.at = time.time()
            self.full_at = self.at if self.full else self.full_at
            progress.put(self.path, {"at": self.at, "full_at": self.full_at})
