"""Read all tables as they were after one batch."""

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mosq.pipeline import MosqPipelineError
from mosq.pipeline.lake.places import place_of
from mosq.pipeline.lake.table import Table
from mosq.pipeline.rows.tables import DEVICES, GOLD, TELEMETRY
from mosq.pipeline.runs import progress
from mosq.pipeline.runs.progress import BRONZE, PROGRESS
from mosq.pipeline.runs.tableset import BACKLOG, QUARANTINE

if TYPE_CHECKING:
    from mosq.pipeline.settings import Settings

TRIES = 50
WAIT_S = 0.2


def names(setup: dict[str, Any]) -> list[str]:
    """Return the names of the tables that batches write with the settings of tables."""
    found = [BRONZE, QUARANTINE, *(f"silver/{name}" for name in setup["silver_order"])]
    return [*found, *(f"gold/{name}" for name in GOLD), DEVICES, BACKLOG, TELEMETRY]


def of_batch(table: Table, app: str, batch: int) -> Table | None:
    """Return the newest version of a table without a later batch, or None if the log does not go back that far."""
    while app and table.done(app) > batch:
        if table.version == 0:
            return None
        try:
            older = Table.open(table.parent, table.name, table.version - 1)
        except MosqPipelineError:
            return None
        if older is None:
            return None
        table = older
    return table


@dataclass
class Snapshot:
    """Hold the state after a batch, the settings of the tables, and the tables."""

    state: dict[str, Any]
    setup: dict[str, Any]
    tables: dict[str, Table]

    @classmethod
    def take(cls, settings: "Settings", setup: dict[str, Any], app: str) -> "Snapshot":
        """Open the tables. A program that commits at the same moment makes it begin again."""
        place = place_of(settings)
        steps, lacks = set(), ""
        for _ in range(TRIES):
            record = Table.open(place, PROGRESS)
            if record is None:
                raise MosqPipelineError(f"{place.child(PROGRESS).uri}: there is no table")
            state = progress.of_table(record)
            steps.add(state["step"])
            tables: dict[str, Table] = {}
            whole = True
            for name in names(setup):
                table = Table.open(place, name)
                if table is None:
                    continue
                older = of_batch(table, app, state["batch"])
                if older is None:
                    whole, lacks = False, name
                    break
                tables[name] = older
            if whole and progress.of_table(record.refresh())["step"] == state["step"]:
                return cls(state, setup, tables)
            time.sleep(WAIT_S)
        if lacks and len(steps) == 1:
            raise MosqPipelineError(
                f"{place.child(lacks).uri}: a run was killed in batch {state['batch'] + 1:,}, and the version before it"
                " is deleted, so the tables cannot be compared: `mosq pipeline run --once` finishes the batch; then try"
                " again"
            )
        raise MosqPipelineError(
            f"{settings.tables}: the tables changed too often while they were read: stop `mosq pipeline run`, and try"
            " again"
        )
