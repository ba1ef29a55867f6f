"""Compute tables again from bronze with the current settings, beside the tables that readers see.

Only what the change of the settings concerns is computed; if nothing changed, everything but bronze. New files are
written that no commit names. Then one commit for each table switches it. The list of those commits is on the disk
before the first one, so that a killed switch is finished by the next run.
"""

import base64
import datetime
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from mosq.pipeline import MosqPipelineError, audit
from mosq.pipeline.lake.parts import DATE, Part, PartWriter
from mosq.pipeline.lake.table import Table
from mosq.pipeline.rows import devices, telemetry, types
from mosq.pipeline.rows import sums as gold_sums
from mosq.pipeline.rows import tables as columns
from mosq.pipeline.rows.duplicates import Duplicates
from mosq.pipeline.rows.keys import PLACE
from mosq.pipeline.rows.tables import TELEMETRY, TELEMETRY_SCHEMA
from mosq.pipeline.rows.work import MANIFEST_DDL, Manifest, Work, read_manifest
from mosq.pipeline.runs import progress, settling, tending
from mosq.pipeline.runs.progress import PROGRESS
from mosq.pipeline.runs.tableset import BACKLOG, QUARANTINE, TableSet, adds_values, rules

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterable, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from mosq.pipeline.settings import Settings

    Log = Callable[[str], object]

STOPPED = "the rebuild was stopped: readers still see the old tables; run `mosq pipeline run --rebuild` again"
# in the state, for each rule
OF_RULES = ("schemas", "fields", "new", "pending", "backfill", "events", "keyless", "notes")
ACCOUNT = "account"  # the name in quarantine.silver of the events that the audit cannot read


@dataclass(frozen=True)
class Plan:
    """Hold what to compute, and which tables have no rows any more."""

    silver: frozenset[str]  # rules
    gold: frozenset[str]  # tables without their "gold/"
    audit: bool
    gone: frozenset[str] = frozenset()
    values: frozenset[str] = frozenset()  # rules whose values gold/telemetry adds up; they are in `silver` too
    devices: bool = False  # the rows of gold/devices of these jobs and rules; its other rows stay

    @property
    def jobs(self) -> frozenset[str]:
        chosen = {"silver": bool(self.silver), "gold": bool(self.gold), "audit": self.audit}
        return frozenset(job for job, wanted in chosen.items() if wanted)


# ---- what a change concerns


def overlap(a: str, b: str) -> bool:
    """Return whether a topic can match both filters."""
    first, second = a.split("/"), b.split("/")
    # a wildcard at the first level matches no topic that begins with `$` [v5 4.7.2-1]
    if {first[0], second[0]} & {"+", "#"} and "$" in (a[0], b[0]):
        return False
    for one, other in zip(first, second, strict=False):
        if "#" in (one, other):
            return True
        if "+" not in (one, other) and one != other:
            return False
    if len(first) == len(second):
        return True
    longer, n = (first, len(second)) if len(first) > len(second) else (second, len(first))
    return longer[n] == "#"  # `#` also matches the level above it


def _before(setup: dict[str, Any], name: str) -> list[list[str]]:
    """Return the rules that take messages from a rule: earlier ones whose topics overlap."""
    order = setup["silver_order"]
    topic = setup["silver"][name][0]
    earlier = order[: order.index(name)]
    return [[one, setup["silver"][one][0]] for one in earlier if overlap(setup["silver"][one][0], topic)]


def changed(had: dict[str, Any], now: dict[str, Any]) -> Plan:
    """Return what differs between two settings; if nothing does, everything."""
    jobs, old_jobs = set(now["jobs"]), set(had["jobs"])
    names = now["silver_order"] if "silver" in jobs else []
    new_gold = "gold" in jobs and "gold" not in old_jobs  # which has the last values of all rules
    silver = {
        name
        for name in names
        if "silver" not in old_jobs
        or new_gold
        or had["silver"].get(name) != now["silver"][name]
        or _before(had, name) != _before(now, name)
    }
    if adds_values(jobs) and (not adds_values(old_jobs) or had["window_us"] != now["window_us"]):
        silver |= _with_values(now, names)
    gold = set()
    if "gold" in jobs:
        if new_gold or had["window_us"] != now["window_us"]:
            gold = set(columns.GOLD)
        elif had["prefix_levels"] != now["prefix_levels"]:
            gold = {"traffic"}
    audited = "audit" in jobs and "audit" not in old_jobs
    gone = {f"silver/{name}" for name in had["silver_order"] if name not in names}
    gone |= {columns.DEVICES, *(f"gold/{name}" for name in columns.GOLD)} if "gold" in old_jobs - jobs else set()
    gone |= {BACKLOG} if "audit" in old_jobs - jobs else set()
    if adds_values(old_jobs) and not adds_values(jobs) and _with_values(had, had["silver_order"]):
        gone |= {TELEMETRY}
    if not (silver or gold or audited or gone):
        silver, gold, audited = set(names), set(columns.GOLD if "gold" in jobs else ()), "audit" in jobs
    values = _with_values(now, silver) if adds_values(jobs) else set()
    return Plan(
        frozenset(silver), frozenset(gold), audited, frozenset(gone), frozenset(values), devices="gold" in jobs
    )


def _with_values(setup: dict[str, Any], names: "Iterable[str]") -> set[str]:
    """Return which of the rules declare values for gold/telemetry."""
    return {name for name in names if any("event" in more for more in setup["silver"][name][3:])}


# ---- fill


@dataclass
class _New:
    """Collect the new content of tables: files that no commit names yet."""

    parts: dict[str, list[Part]] = field(default_factory=dict)
    schemas: dict[str, pa.Schema] = field(default_factory=dict)
    manifests: list[Manifest] = field(default_factory=list)


class Filling:
    """Write the new files of a rebuild."""

    def __init__(self, spark: "SparkSession", settings: "Settings", tables: TableSet, plan: Plan, log: "Log") -> None:
        self.spark, self.settings, self.tables, self.plan, self.log = spark, settings, tables, plan, log
        self.state = progress.of_table(tables.table(PROGRESS))
        self.now = progress.copied(self.state)
        self.new = _New()
        self.backlog: list[pa.Table] = []
        self.unreadable: list[pa.Table] = []
        self.lost = 0
        self.late_spans: dict[str, list[gold_sums.Span]] = {}
        self.duplicates: Duplicates | None = None
        self.devices: list[pa.Table] = []
        self.kept: dict[str, int] = {}  # reasons of the quarantine rows that are not computed again

    def fill(self, stop: "threading.Event | None") -> None:
        self._schemas()
        if self.tables.place.is_local:
            for name in self.plan.silver:  # the tasks write into the folders of tables that are not there yet
                self.tables.place.child(f"silver/{name}").path.mkdir(parents=True, exist_ok=True)
            for name in self.plan.gold:
                self.tables.place.child(f"gold/{name}").path.mkdir(parents=True, exist_ok=True)
            for name in (BACKLOG, QUARANTINE, columns.DEVICES, *((TELEMETRY,) if self.plan.values else ())):
                self.tables.place.child(name).path.mkdir(parents=True, exist_ok=True)
        upto = {place: at["next"] for place, at in self.state["shards"].items()}
        if self.plan.gold:
            rows = self.tables.table("bronze").refresh().dataset().to_batches(columns=[*PLACE, "time"])
            self.late_spans = gold_sums.late_spans(rows, upto, self.settings.watermark_us)
        carried: dict[str, pa.Table] = {}
        values = TELEMETRY_SCHEMA.empty_table()
        dates = self._dates()
        for i, date in enumerate(dates, 1):
            if stop is not None and stop.is_set():
                raise MosqPipelineError(STOPPED)
            manifest = self._of_date(settling.bronze(self.spark, self.tables, upto, date), date)
            self.new.manifests.append(manifest)
            for name, parts in manifest.parts.items():
                self.new.parts.setdefault(name, []).extend(parts)
            carried = self._gold(manifest, carried, date, last=i == len(dates))
            values = self._values(manifest, values, date, last=i == len(dates))
            self._audit(manifest)
            if manifest.devices is not None:
                self.devices = [devices.folded(pa.concat_tables([*self.devices, manifest.devices]))]
            n = sum(at["n"] for at in manifest.places.values())
            self.log(f"rebuild: {date}, {n:,} rows ({i} of {len(dates)} days)")
        self._rest()

    def _dates(self) -> list[datetime.date]:
        dates = self.tables.table("bronze").refresh().adds()["partition.date"]
        return sorted(date for date in pc.unique(dates).to_pylist() if date is not None)

    def _schemas(self) -> None:
        """Infer the schemas of the rules that are computed and declare none."""
        for rule in self.settings.silver:
            if rule.name not in self.plan.silver:
                continue
            for key in OF_RULES:
                self.now[key].pop(rule.name, None)
            if rule.format == "json" and rule.schema is None:
                texts = settling.sampled(self.spark, self.settings, self.tables, rule.name)
                text = settling.inferred(rule.name, texts, self.log)
                if text is not None:
                    self.now["schemas"][rule.name] = text
        for key in OF_RULES:
            known = {rule.name for rule in self.settings.silver}
            self.now[key] = {name: one for name, one in self.now[key].items() if name in known}

    def _work(self) -> Work:
        return Work(
            place=self.tables.place,
            rules=rules(self.settings, self.now["schemas"]),
            jobs=self.plan.jobs,
            window_us=self.settings.window_us,
            prefix_levels=self.settings.prefix_levels,
            late_us=self.settings.watermark_us,
            telemetry=bool(self.plan.values),
            salt=self.tables.identity,
            late_spans=self.late_spans,
            bronze=False,
            only=self.plan.silver,
            devices=self.plan.devices,
        )

    def _of_date(self, every: "DataFrame", date: datetime.date) -> Manifest:
        work = self._work()
        rows = every.where(every["date"] == date)
        manifest = read_manifest(rows.mapInArrow(work, MANIFEST_DDL).toArrow().to_batches())
        if self.duplicates is None:
            self.duplicates = Duplicates(work.rules, work)

        def payloads(seqs: list[int]) -> "Iterable[Any]":
            which = (pc.field("date") == date) & pc.field("seq").isin(seqs)
            yield from self.tables.table("bronze").dataset().to_batches(columns=[*PLACE, "payload"], filter=which)

        self.duplicates.settle(manifest, {}, payloads)
        self.duplicates.committed()
        return manifest

    def _gold(
        self, manifest: Manifest, carried: dict[str, pa.Table], date: datetime.date, *, last: bool
    ) -> dict[str, pa.Table]:
        """Write the windows that no later date adds to; return the others."""
        open_from = datetime.datetime.combine(date, datetime.time(), datetime.UTC) + datetime.timedelta(
            days=1, microseconds=-self.settings.window_us
        )
        left = {}
        for name in sorted(self.plan.gold):
            pieces = [table for table in (carried.get(name), manifest.sums.get(name)) if table is not None]
            rows = gold_sums.combine({name: pieces})[name]
            is_open = pc.greater(rows["window_start"], pa.scalar(open_from, rows["window_start"].type))
            if not last:
                left[name] = rows.filter(is_open)
                rows = rows.filter(pc.invert(is_open))
            self._write(f"gold/{name}", columns.GOLD[name].schema, rows)
        return left

    def _values(self, manifest: Manifest, carried: pa.Table, date: datetime.date, *, last: bool) -> pa.Table:
        """Write the windows of gold/telemetry that no later date adds to; return the others."""
        rows = telemetry.joined([carried, *(one.rows for one in manifest.telemetry.values())])
        if not last:
            declared = [rule.event.behind_us for rule in self.settings.silver if rule.event is not None]
            behind_us = max(declared, default=0)
            open_from = datetime.datetime.combine(date, datetime.time(), datetime.UTC) + datetime.timedelta(
                days=1, microseconds=-self.settings.window_us - behind_us
            )
            is_open = pc.greater(rows["window_start"], pa.scalar(open_from, rows["window_start"].type))
            carried, rows = rows.filter(is_open), rows.filter(pc.invert(is_open))
        self._write(TELEMETRY, TELEMETRY_SCHEMA, rows)
        return carried

    def _keep_values(self, computed: set[str]) -> None:
        """Keep the rows of gold/telemetry of the rules that are not computed again."""
        found = Table.open(self.tables.place, TELEMETRY)
        if found is not None and TELEMETRY not in self.plan.gone:
            for batch in found.dataset().to_batches(filter=~pc.field("silver").isin(sorted(computed))):
                self._write(TELEMETRY, TELEMETRY_SCHEMA, pa.Table.from_batches([batch]))
        if found is not None or self.plan.values:
            self.new.schemas[TELEMETRY] = TELEMETRY_SCHEMA

    def _audit(self, manifest: Manifest) -> None:
        if self.plan.audit and manifest.accounts is not None:
            rows, unreadable, lost = audit.accounts(manifest.accounts)
            self._write(BACKLOG, audit.SCHEMA, rows)
            self._write(QUARANTINE, columns.QUARANTINE, unreadable)
            self.backlog.append(rows)
            self.unreadable.append(unreadable)
            self.lost += lost

    def _write(self, table: str, schema: pa.Schema, rows: pa.Table) -> None:
        if rows.num_rows:
            writer = PartWriter(self.tables.place, table, schema)
            writer.write(rows.select(schema.names))
            self.new.parts.setdefault(table, []).extend(writer.close())

    def _rest(self) -> None:
        """Name the schemas of the tables that switch, and keep the rows of quarantine that are not computed again."""
        for rule in rules(self.settings, self.now["schemas"]):
            if rule.name in self.plan.silver and rule.schema is not None:
                self.new.schemas[rule.table] = types.silver_schema(rule.schema)
        for name in self.plan.gold:
            self.new.schemas[f"gold/{name}"] = columns.GOLD[name].schema
        if self.plan.audit:
            self.new.schemas[BACKLOG] = audit.SCHEMA
        if self.plan.devices:
            self._devices()
        for name in self.plan.gone:
            if (table := Table.open(self.tables.place, name)) is not None:
                self.new.schemas[name] = table.schema
        computed = {*self.plan.silver, *(name.removeprefix("silver/") for name in self.plan.gone)}
        if computed:
            self._keep_values(computed)
        computed |= {ACCOUNT} if self.plan.audit or BACKLOG in self.plan.gone else set()
        if computed and QUARANTINE in self.tables.open:
            self._keep_quarantine(computed)
            self.new.schemas[QUARANTINE] = columns.QUARANTINE

    def _devices(self) -> None:
        """Write the computed rows of gold/devices, and its rows of other jobs and rules."""
        kept = pc.scalar(False)
        if "gold" not in self.plan.jobs:
            kept |= pc.field("silver") == ""
        if others := sorted({rule.name for rule in self.settings.silver} - self.plan.silver):
            kept |= pc.field("silver").isin(others)
        table = self.tables.open.get(columns.DEVICES)
        old = columns.DEVICE_SCHEMA.empty_table() if table is None else table.refresh().read(kept)
        rows = devices.folded(pa.concat_tables([old.cast(columns.DEVICE_SCHEMA), *self.devices]))
        self._write(columns.DEVICES, columns.DEVICE_SCHEMA, rows)
        self.new.schemas[columns.DEVICES] = columns.DEVICE_SCHEMA

    def _keep_quarantine(self, computed: set[str]) -> None:
        found = self.tables.table(QUARANTINE).refresh().dataset()
        keep = ~pc.field("silver").isin(sorted(computed))
        for batch in found.to_batches(filter=keep):
            rows = pa.Table.from_batches([batch])
            self._write(QUARANTINE, columns.QUARANTINE, rows)
            for reason in rows["reason"].to_pylist():
                self.kept[reason] = self.kept.get(reason, 0) + 1

    # ---- the state after it

    def after(self) -> dict[str, Any]:
        now = self.now
        rows = now["rows"]
        for name in self.new.schemas:
            if not name.startswith("gold/") or name == BACKLOG:
                rows[name] = sum(part.rows for part in self.new.parts.get(name, ()))
        for name in self.plan.gone:
            rows.pop(name, None)
        if QUARANTINE in self.new.schemas:
            now["quarantine"] = dict(self.kept)
            for manifest in self.new.manifests:
                _add(now["quarantine"], manifest.bad)
            for table in self.unreadable:
                _add(now["quarantine"], {audit.UNREADABLE: table.num_rows})
        if "late" in self.plan.gold:
            now["late"] = sum(sum(one.sums["late"]["rows"].to_pylist()) for one in self.new.manifests)
        if self.plan.audit:
            now["audit"] = self._audit_summary()
        for manifest in self.new.manifests:
            settling.add_events(now, manifest)
            settling.gather(now, manifest, {}, self.log)
        return now

    def _audit_summary(self) -> dict[str, Any]:
        found: dict[str, Any] = {"rows": 0, "wrong": 0, "lost_events": self.lost, "examples": []}
        for rows in self.backlog:
            bad = audit.wrong(rows)
            found["rows"] += rows.num_rows
            found["wrong"] += bad.num_rows
        return found


def _add(counts: dict[str, int], more: "dict[str, int]") -> None:
    for key, n in more.items():
        if n:
            counts[key] = counts.get(key, 0) + n


# ---- switch


def _switch(filling: Filling, setup: dict[str, Any]) -> dict[str, Any]:
    """Return all commits of the switch as JSON."""
    state = filling.after()
    tables = {
        name: {
            "schema": base64.b64encode(schema.serialize().to_pybytes()).decode(),
            "parts": [asdict(part) for part in filling.new.parts.get(name, ())],
        }
        for name, schema in filling.new.schemas.items()
    }
    return {"setup": setup, "state": state, "step": state["step"] + 1, "tables": tables}


def finish(settings: "Settings", log: "Log") -> bool:
    """Do the commits of a switch that has begun; return whether there were any."""
    path = settings.checkpoints / progress.SWAP
    switch = progress.get(path)
    if switch is None:
        return False
    about = progress.get(settings.checkpoints / progress.IDENTITY)
    tables = TableSet(settings, about)
    app, step = f"{tables.app}/rebuild", switch["step"]
    for name, content in switch["tables"].items():
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(content["schema"])))
        dates = () if name == columns.DEVICES else (DATE,)
        table = Table.create(tables.place, name, schema, tables.identity, dates)
        parts = [Part(**part) for part in content["parts"]]
        table.replace(parts, app, step, schema, {"mosq": "rebuild"})
    record = Table.open(tables.place, PROGRESS)
    assert record is not None
    if progress.of_table(record)["step"] < step:
        now = {"step": step, "at": time.time(), "setup": switch["setup"]}
        progress.put_after(record, tables.app, switch["state"] | now)
    about["settings"] = switch["setup"]
    progress.put(settings.checkpoints / progress.IDENTITY, about)
    path.unlink()
    log(f"rebuild: {len(switch['tables'])} tables switched")
    return True


def rebuild(
    spark: "SparkSession",
    settings: "Settings",
    jobs: "Sequence[str]" = progress.JOBS,
    log: "Log" = print,
    stop: "threading.Event | None" = None,
) -> None:
    """Do the whole rebuild; the caller holds the lock."""
    finish(settings, log)
    with tending.between_rebuilds(settings):
        _rebuild(spark, settings, jobs, log, stop)


def _rebuild(
    spark: "SparkSession", settings: "Settings", jobs: "Sequence[str]", log: "Log", stop: "threading.Event | None"
) -> None:
    now = progress.setup(settings, jobs)
    progress.check(settings, now, rebuilding=True)
    about = progress.get(settings.checkpoints / progress.IDENTITY)
    if about is None or not about["made"]:
        raise MosqPipelineError(f"{settings.tables}: there are no tables yet: `mosq pipeline run` creates them")
    tables = TableSet(settings, about)
    tables.create(about["settings"]["jobs"], ())
    filling = Filling(spark, settings, tables, changed(about["settings"], now), log)
    filling.fill(stop)
    progress.put(settings.checkpoints / progress.SWAP, _switch(filling, now))
    finish(settings, log)
