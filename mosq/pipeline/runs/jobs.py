"""Run the jobs as one streaming query.

Each micro-batch of the journal becomes a batch of bronze. All other tables get a batch with the same number, computed
from that batch read back from bronze. The state after the batch is written last.

Invariant: every table has a batch once or not at all, and doing a batch again (after the driver was killed) writes the
same rows. So no row is lost or doubled for any reader. Cost: a batch takes several Spark jobs of at least 0.2 s each.
"""

import contextlib
import functools
import shutil
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame

from mosq.journal.kinds import ACCOUNT, GAP
from mosq.pipeline import MosqPipelineError, audit, fanout, gold, state, tables, trouble, views
from mosq.pipeline import silver as typed
from mosq.pipeline.runs import compaction
from mosq.pipeline.state import JOBS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import FrameType

    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from mosq.pipeline.settings import Settings

    Log = Callable[[str], object]
    # gets the state before and after a batch, and the seconds that the batch took
    Report = Callable[[dict[str, Any], dict[str, Any], float], object]

BRONZE = "bronze"
LOOK_S = 0.2
REMEMBER_S = 600


class Jobs:
    """Process batches."""

    def __init__(
        self,
        spark: "SparkSession",
        settings: "Settings",
        jobs: "Sequence[str]" = JOBS,
        log: "Log" = print,
        report: "Report | None" = None,
    ) -> None:
        self.spark, self.settings, self.log, self.report = spark, settings, log, report
        self.jobs = frozenset(jobs)  # beside bronze
        self.rules = typed.settled(settings) if "silver" in self.jobs else []
        self.error: BaseException | None = None
        self.there: list[str] = []
        self.at_work = threading.Lock()
        self.stopping = False
        self.remembered_at = time.monotonic()

    def batch(self, df: "DataFrame", batch_id: int) -> None:
        """Process a batch, as foreachBatch calls it."""
        with self.at_work:
            self._batch(df, batch_id)

    def stop(self, query: "StreamingQuery") -> None:
        """Stop the query after the current batch. Spark would otherwise abort its jobs in the middle and log errors."""
        with self.at_work:
            self.stopping = True
        query.stop()

    def _batch(self, df: "DataFrame", batch_id: int) -> None:
        if self.stopping:
            raise MosqPipelineError("the query is stopping: no further batch begins")
        try:
            if state.after(self.settings, None)["batch"] >= batch_id:
                return
            tables.write_batch(df, self.settings.table(BRONZE), batch_id)
            now = self.derive(batch_id)
            if time.monotonic() - self.remembered_at > REMEMBER_S:
                self.remember(now)
        except BaseException as error:
            self.error = error  # Spark passes on only a text of it
            raise

    def derive(self, batch_id: int, before: dict[str, Any] | None = None) -> dict[str, Any]:
        """Compute everything but bronze from a batch of bronze.

        `before` is the state after the previous batch, if known. Return the state after this batch.
        """
        began = time.monotonic()
        before = before or state.after(self.settings, batch_id - 1)
        batch = tables.read_batch(self.spark, self.settings.table(BRONZE), batch_id)
        found = gold.sums(batch, self.settings, {place: shard["time_us"] for place, shard in before["shards"].items()})
        now = self._next(before, batch_id, found)
        if "gold" in self.jobs:
            for name, rows in gold.cut(found, self.settings).items():
                self._small(f"gold/{name}", rows, now)
                now["late"] += sum(rows["rows"].to_pylist()) if name == "late" else 0
        bad: list[DataFrame] = []
        if "silver" in self.jobs:
            counts = gold.by(found, "rule")
            for number in sorted(counts):
                bad += self._silver(number, counts[number], batch, now)
        kinds = gold.by(found, "kind")
        if "audit" in self.jobs and (ACCOUNT in kinds or GAP in kinds):
            bad += self._audit(batch, now)
        if bad:
            self._quarantine(bad, now)
        self._empty(now)
        self._views(now)
        state.put_after(self.settings, now)
        if self.report is not None:
            self.report(before, now, time.monotonic() - began)
        return now

    def _next(self, before: dict[str, Any], batch_id: int, found: "pa.Table") -> dict[str, Any]:
        """Return the state after the batch, as far as it is known before its tables are written."""
        positions = gold.positions(found)
        shards = dict(before["shards"])
        for place, at in positions.items():
            had = shards.get(place, {"next": 0, "time_us": 0, "rows": 0})
            shards[place] = {
                "next": at["seq"] + 1,
                "time_us": max(had["time_us"], at["time_us"] or 0),
                "rows": had["rows"] + at["n"],
            }
        rows = dict(before["rows"])
        rows[BRONZE] = rows.get(BRONZE, 0) + sum(at["n"] for at in positions.values())
        return {
            "batch": batch_id,
            "at": time.time(),
            "rows": rows,
            "shards": shards,
            "quarantine": dict(before["quarantine"]),
            "late": before["late"],
            "audit": {**before["audit"], "examples": list(before["audit"]["examples"])},
        }

    def _counted(self, table: str, n: int, now: dict[str, Any]) -> None:
        now["rows"][table] = now["rows"].get(table, 0) + n

    def _small(self, table: str, rows: "pa.Table", now: dict[str, Any]) -> None:
        """Write a batch unless it has no rows.

        The first batch is always written, so that all tables exist from the start.
        """
        if not rows.num_rows and table in now["rows"]:
            return
        tables.write_arrow(rows, self.settings.table(table), now["batch"], tables.query_of(self.spark))
        self._counted(table, rows.num_rows, now)

    def _silver(self, number: int, messages: int, batch: "DataFrame", now: dict[str, Any]) -> "list[DataFrame]":
        """Write the messages that a rule can read; return those that it may not be able to read."""
        rule = self.rules[number]
        if rule.silver.format == "json" and rule.schema is None:
            rule = self.rules[number] = typed.infer(self.settings, rule, batch, self.log)
        rows = typed.read(batch, self.settings, rule)
        if rule.schema is not None:
            table = self.settings.table(rule.table)
            tables.write_batch(typed.good(rows), table, now["batch"])
            written = tables.count(table, now["batch"])
            self._counted(rule.table, written, now)
            if written == messages and rule.silver.format != "sparkplug":  # sparkplug: a message has many rows, or none
                return []
        return [typed.quarantined(rows, rule)]

    def _audit(self, batch: "DataFrame", now: dict[str, Any]) -> "list[DataFrame]":
        rows, unreadable, lost = audit.accounts(audit.decoded(batch))
        self._small("gold/backlog", rows, now)
        bad = audit.wrong(rows)
        summary = now["audit"]
        summary["rows"] += rows.num_rows
        summary["wrong"] += bad.num_rows
        summary["lost_events"] += lost
        examples = [audit.why(row) for row in bad.slice(0, audit.EXAMPLES).to_pylist()]
        summary["examples"] = [*summary["examples"], *examples][: audit.EXAMPLES]
        return [self.spark.createDataFrame(unreadable)] if unreadable.num_rows else []

    def _quarantine(self, bad: "list[DataFrame]", now: dict[str, Any]) -> None:
        """Write one batch of all unreadable payloads."""
        table = self.settings.table("quarantine")
        tables.write_batch(functools.reduce(DataFrame.unionByName, bad), table, now["batch"])
        for reason, n in tables.counts(table, now["batch"], "reason").items():
            now["quarantine"][reason] = now["quarantine"].get(reason, 0) + n
            self._counted("quarantine", n, now)

    def _empty(self, now: dict[str, Any]) -> None:
        """Create the tables that have no rows yet."""
        if "audit" in self.jobs:
            self._small("gold/backlog", audit.NONE, now)
        if self.jobs & {"audit", "silver"}:
            self._small("quarantine", typed.NO_QUARANTINE, now)

    def _views(self, now: dict[str, Any]) -> None:
        there = sorted(now["rows"])
        if there != self.there:
            whole = [fanout.TABLE] if "gold" in self.jobs else []
            if whole:
                fanout.begin(self.settings)
            tables.put(self.settings.tables / "views.sql", views.for_duckdb(self.settings.tables, [*there, *whole]))
            self.there = there

    def remember(self, now: dict[str, Any]) -> None:
        """Write the audit's result, at the end of a run and every REMEMBER_S seconds."""
        self.remembered_at = time.monotonic()
        if "audit" in self.jobs:
            audit.remember(self.settings, now["batch"])


# ---- the query


def alone(settings: "Settings") -> "contextlib.AbstractContextManager[None]":
    """Lock the tables for this process."""
    busy = f"{settings.checkpoints} is in use: another `mosq pipeline run` works on these tables; stop it first"
    return state.locked(settings.checkpoints / "lock", busy)


def source(spark: "SparkSession", settings: "Settings") -> "DataFrame":
    """Return the streaming DataFrame of the journal, with the options of the settings."""
    reader = spark.readStream.format("mosq").option("maxRecordsPerTrigger", str(settings.batch_rows))
    reader = reader.option("failOnDataLoss", str(settings.stop_on_loss).lower())
    if settings.streams:
        reader = reader.option("streams", ",".join(settings.streams))
    if settings.consumer:
        reader = reader.option("consumer", settings.consumer)
    return reader.load(str(settings.journal))


def start(spark: "SparkSession", settings: "Settings", work: Jobs, once: bool) -> "StreamingQuery":
    """Start the query that passes each micro-batch to `work.batch`."""
    writer = source(spark, settings).writeStream.queryName("mosq").foreachBatch(work.batch)
    writer = writer.option("checkpointLocation", str(settings.checkpoints / state.QUERY))
    writer = (
        writer.trigger(availableNow=True)
        if once
        else writer.trigger(processingTime=f"{settings.trigger_us // 1000} milliseconds")
    )
    query: StreamingQuery = writer.start()
    return query


def prepare(settings: "Settings", jobs: "Sequence[str]") -> None:
    """Create the folders, and check that their content was made with the same settings."""
    state.check_rebuilt(settings)
    now = state.setup(settings, jobs)
    state.check(settings, now)
    settings.tables.mkdir(parents=True, exist_ok=True)
    state.put(settings.checkpoints / state.SETUP, now)


def run(
    spark: "SparkSession",
    settings: "Settings",
    *,
    once: bool = False,
    jobs: "Sequence[str]" = JOBS,
    log: "Log" = print,
    report: "Report | None" = None,
    stop: threading.Event | None = None,
) -> None:
    """Run until all current records are read (`once`), or until `stop` is set."""
    with alone(settings), trouble.plain_errors(settings):
        prepare(settings, jobs)
        work = Jobs(spark, settings, jobs, log, report)
        query = start(spark, settings, work, once)
        try:
            while not query.awaitTermination(LOOK_S):
                if stop is not None and stop.is_set():
                    work.stop(query)
        except BaseException as error:
            query.stop()
            if work.error is not None:
                raise work.error from error
            if not work.stopping:  # else the error only reports the stop
                raise
        work.remember(state.after(settings))


def rebuild(
    spark: "SparkSession",
    settings: "Settings",
    *,
    jobs: "Sequence[str]" = JOBS,
    log: "Log" = print,
    report: "Report | None" = None,
    stop: threading.Event | None = None,
) -> None:
    """Compute everything but bronze again from bronze, with the current settings.

    If the process is killed or stopped, the rebuild must be run again.
    """
    with alone(settings), compaction.alone(settings), trouble.plain_errors(settings):
        now = state.setup(settings, jobs)
        query = state.query_id(settings)
        state.put(settings.checkpoints / state.REBUILDING, now)
        for folder in (
            settings.table("silver"),
            settings.table("gold"),
            settings.table("quarantine"),
            settings.checkpoints / "batches",
            settings.checkpoints / "schemas",
            settings.checkpoints / audit.REMEMBERED,
        ):
            shutil.rmtree(folder, ignore_errors=True)
        # a table belongs to the query that writes it
        spark.sparkContext.setLocalProperty("sql.streaming.queryId", query)
        try:
            work = Jobs(spark, settings, jobs, log, report)
            before = state.empty()
            for number in tables.batches(settings.table(BRONZE)):  # numbers have holes after merges
                if stop is not None and stop.is_set():
                    raise MosqPipelineError("the rebuild was stopped: run `mosq pipeline run --rebuild` again")
                before = work.derive(number, before)
            work.remember(before)
        finally:
            spark.sparkContext.setLocalProperty("sql.streaming.queryId", None)
        state.put(settings.checkpoints / state.SETUP, now)
        (settings.checkpoints / state.REBUILDING).unlink()


@contextlib.contextmanager
def stopped_by_signals() -> "Iterator[threading.Event]":
    """Set the event on SIGINT and SIGTERM. Spark's own handler for SIGINT would abort its jobs in the middle."""
    stop = threading.Event()

    def handler(number: int, frame: "FrameType | None") -> None:
        stop.set()

    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, old in before.items():
            signal.signal(number, old)
