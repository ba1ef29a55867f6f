"""Open and create all tables of the settings, and commit the batches to them."""

import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mosq.pipeline import MosqPipelineError, audit, sparkplug
from mosq.pipeline.lake.parts import PartWriter
from mosq.pipeline.lake.places import place_of
from mosq.pipeline.lake.table import Table
from mosq.pipeline.rows import csv_rows, declared, devices, telemetry, types
from mosq.pipeline.rows import tables as columns
from mosq.pipeline.rows.work import Rule
from mosq.pipeline.runs import progress
from mosq.pipeline.runs.progress import BRONZE, PROGRESS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mosq.pipeline.settings import Settings, Silver

QUARANTINE, BACKLOG = "quarantine", audit.TABLE
OF_FORMAT = {
    "number": "value DOUBLE",
    "sparkplug": ", ".join(f"{name} {type}" for name, type in sparkplug.COLUMNS.items()),
}


def known_schema(settings: "Settings", silver: "Silver", settled: "Mapping[str, str]") -> pa.Schema | None:
    """Return the schema of a rule: of its format, declared, or settled earlier; None if it is not settled yet."""
    text = OF_FORMAT.get(silver.format, silver.schema)
    text = settled.get(silver.name) if text is None else text
    try:
        found = None if text is None else types.schema(text)
        if silver.format == "csv" and found is not None:
            csv_rows.check(found)
        return found
    except types.SchemaError as error:
        raise MosqPipelineError(f"{settings.file}: [[silver]] {silver.name} schema: {error}") from None


def rules(settings: "Settings", settled: "Mapping[str, str]") -> tuple[Rule, ...]:
    """Return the rules of the settings with their schemas, as tasks need them."""
    return tuple(
        Rule(silver.name, silver.topic, silver.format, _checked(settings, silver, settled), silver.event, silver.unique)
        for silver in settings.silver
    )


def _checked(settings: "Settings", silver: "Silver", settled: "Mapping[str, str]") -> pa.Schema | None:
    """Return the schema of a rule, after a check that it has the columns that the rule declares."""
    schema = known_schema(settings, silver, settled)
    if schema is not None:
        why = None if silver.event is None else declared.problem(silver.event, schema)
        if why is None and silver.unique is not None:
            why = declared.key_problem(silver.unique, schema)
        if why is not None:
            raise MosqPipelineError(f"{settings.file}: [[silver]] {silver.name} {why}")
    return schema


class TableSet:
    """Hold all open tables of one set."""

    def __init__(self, settings: "Settings", about: dict[str, Any]) -> None:
        self.settings, self.place = settings, place_of(settings)
        self.identity, self.app, self.made = about["identity"], about["app"], bool(about["made"])
        self.setup = about["settings"]
        self.open: dict[str, Table] = {}

    def table(self, name: str) -> Table:
        """Return a table that `create` has created."""
        return self.open[name]

    def create(self, jobs: "Iterable[str]", rules: "Iterable[Rule]") -> None:
        """Open all tables, and create those that are not there yet; silver gets the columns that it lacks."""
        wanted: dict[str, pa.Schema] = {BRONZE: columns.BRONZE}
        jobs = frozenset(jobs)
        if jobs & {"silver", "audit"}:
            wanted[QUARANTINE] = columns.QUARANTINE
        if "gold" in jobs:
            wanted |= {f"gold/{name}": one.schema for name, one in columns.GOLD.items()}
            self._whole(columns.DEVICES, columns.DEVICE_SCHEMA)
        if "audit" in jobs:
            wanted[BACKLOG] = audit.SCHEMA
        if "silver" in jobs:
            wanted |= {rule.table: types.silver_schema(rule.schema) for rule in rules if rule.schema is not None}
        if adds_values(jobs) and any(rule.event is not None for rule in rules):
            wanted[columns.TELEMETRY] = columns.TELEMETRY_SCHEMA
        for name, schema in wanted.items():
            self._opened(name, schema)
        self._whole(PROGRESS, progress.SCHEMA)

    def _whole(self, name: str, schema: pa.Schema) -> None:
        """Open or create a table that each batch writes as a whole."""
        if name not in self.open:
            self._keep(Table.create(self.place, name, schema, self.identity, ()))

    def _opened(self, name: str, schema: pa.Schema) -> None:
        if name not in self.open:
            self._keep(Table.create(self.place, name, schema, self.identity))
        self.open[name].add_columns(list(schema))

    def _keep(self, table: Table) -> None:
        self.open[table.name] = table

    # ---- commits

    def rows_as_parts(self, name: str, rows: pa.Table) -> list[Any]:
        """Write rows of the driver into files of a table that no commit names yet."""
        if not rows.num_rows:
            return []
        schema = self.open[name].schema
        writer = PartWriter(self.place, name, schema)
        writer.write(rows.select(schema.names))
        return writer.close()

    def append(self, name: str, parts: "Iterable[Any]", batch: int, about: "Mapping[str, object]") -> bool:
        """Commit the files of a batch, and return whether it did: not if there are none, or if it is done already."""
        parts = list(parts)
        return bool(parts) and self.open[name].append(parts, self.app, batch, about)

    def merge(self, name: str, rows: pa.Table, batch: int) -> None:
        """Commit the sums of a batch to a gold table."""
        if rows.num_rows:
            gold = columns.GOLD[name.removeprefix("gold/")]
            about = {"rows": rows.num_rows}
            self.open[name].merge(rows, gold.keys, gold.how, self.app, batch, about)

    def fold(self, rows: pa.Table | None, app: str, batch: int) -> None:
        """Commit the rows of a batch to gold/devices."""
        if rows is not None and rows.num_rows:
            self.open[columns.DEVICES].fold(rows, devices.folded, app, batch, {"rows": rows.num_rows})

    def merge_values(self, rows: pa.Table, batch: int) -> None:
        """Commit the values of a batch to gold/telemetry."""
        if rows.num_rows:
            about = {"rows": rows.num_rows}
            self.open[columns.TELEMETRY].merge_by(rows, telemetry.folded, self.app, batch, about)


def adds_values(jobs: "Iterable[str]") -> bool:
    """Return whether the jobs make gold/telemetry of the rules that declare an event."""
    return {"silver", "gold"} <= set(jobs)


def closed(settings: "Settings", state: "Mapping[str, Any]") -> datetime.datetime | None:
    """Return the time before which no batch changes a window of gold, or None before the first batch."""
    times = [shard["time_us"] for shard in state["shards"].values() if shard["time_us"]]
    if not times:
        return None
    behind_us = settings.watermark_us + 2 * settings.window_us
    return datetime.datetime.fromtimestamp((min(times) - behind_us) / 1e6, datetime.UTC)
