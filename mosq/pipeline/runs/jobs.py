"""The jobs as one streaming query: each micro-batch of the journal becomes a batch of bronze, and what is computed of
it, read back from bronze, becomes the batch with the same number of all other tables. What stands then is remembered
last.

Invariant: every table has a batch once or not at all, and doing a batch again (the driver was killed) writes the same
rows. So nothing is ever lost or doubled, whoever reads. Cost: a batch takes some Spark jobs, of 0.2 s at least each."""

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

    Say = Callable[[str], object]
    # state before and after a batch, and the seconds that it took
    Told = Callable[[dict[str, Any], dict[str, Any], float], object]

BRONZE = "bronze"
LOOK_S = 0.2
REMEMBER_S = 600


class Jobs:
    """What is done with a batch."""

    def __init__(
        self,
        spark: "SparkSession",
        settings: "Settings",
        jobs: "Sequence[str]" = JOBS,
        say: "Say" = print,
        told: "Told | None" = None,
    ) -> None:
        self.spark, self.settings, self.say, self.told = spark, settings, say, told
        self.jobs = frozenset(jobs)  # beside bronze
        self.rules = typed.settled(settings) if "silver" in self.jobs else []
        self.error: BaseException | None = None
        self.there: list[str] = []
        self.at_work = threading.Lock()
        self.stopping = False
        self.remembered_at = time.monotonic()

    def batch(self, df: "DataFrame", batch_id: int) -> None:
        """For foreachBatch."""
        with self.at_work:
            self._batch(df, batch_id)

    def stop(self, query: "StreamingQuery") -> None:
        """Behind the batch that is being done: Spark would end its jobs in the middle, and complain."""
        with self.at_work:
            self.stopping = True
        query.stop()

    def _batch(self, df: "DataFrame", batch_id: int) -> None:
        if self.stopping:
            raise MosqPipelineError("no further batch is begun")
        try:
            if state.after(self.settings, None)["batch"] >= batch_id:
                return
            tables.write_batch(df, self.settings.table(BRONZE), batch_id)
            now = self.derive(batch_id)
            if time.monotonic() - self.remembered_at > REMEMBER_S:
                self.remember(now)
        except BaseException as error:
            self.error = error  # Spark tells only a text of it
            raise

    def derive(self, batch_id: int, before: dict[str, Any] | None = None) -> dict[str, Any]:
        """Everything but bronze, of a batch of bronze. before: what stood after the one in front of it, where that is
        known; -> what stands after it."""
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
        if self.told is not None:
            self.told(before, now, time.monotonic() - began)
        return now

    def _next(self, before: dict[str, Any], batch_id: int, found: "pa.Table") -> dict[str, Any]:
        """What stands after the batch, as far as it is known before its tables are written."""
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
        """A batch without rows is not written, but the first one is: then all tables are there from the beginning."""
        if not rows.num_rows and table in now["rows"]:
            return
        tables.write_arrow(rows, self.settings.table(table), now["batch"], tables.query_of(self.spark))
        self._counted(table, rows.num_rows, now)

    def _silver(self, number: int, messages: int, batch: "DataFrame", now: dict[str, Any]) -> "list[DataFrame]":
        """Writes what a rule can read; -> what it cannot, where there may be such."""
        rule = self.rules[number]
        if rule.silver.format == "json" and rule.schema is None:
            rule = self.rules[number] = typed.infer(self.settings, rule, batch, self.say)
        rows = typed.read(batch, self.settings, rule)
        if rule.schema is not None:
            table = self.settings.table(rule.table)
            tables.write_batch(typed.good(rows), table, now["batch"])
            written = tables.count(table, now["batch"])
            self._counted(rule.table, written, now)
            if written == messages and rule.silver.format != "sparkplug":  # whose messages have many rows, or none
                return []
        return [typed.quarantined(rows, rule)]

    def _audit(self, batch: "DataFrame", now: dict[str, Any]) -> "list[DataFrame]":
        rows, unreadable, lost = audit.accounts(audit.told(batch))
        self._small("gold/backlog", rows, now)
        bad = audit.wrong(rows)
        said = now["audit"]
        said["rows"] += rows.num_rows
        said["wrong"] += bad.num_rows
        said["lost_events"] += lost
        said["examples"] = [*said["examples"], *(audit.why(row) for row in bad.slice(0, audit.EXAMPLES).to_pylist())][
            : audit.EXAMPLES
        ]
        return [self.spark.createDataFrame(unreadable)] if unreadable.num_rows else []

    def _quarantine(self, bad: "list[DataFrame]", now: dict[str, Any]) -> None:
        """One batch of what could not be read, whoever tried."""
        table = self.settings.table("quarantine")
        tables.write_batch(functools.reduce(DataFrame.unionByName, bad), table, now["batch"])
        for reason, n in tables.counts(table, now["batch"], "reason").items():
            now["quarantine"][reason] = now["quarantine"].get(reason, 0) + n
            self._counted("quarantine", n, now)

    def _empty(self, now: dict[str, Any]) -> None:
        """What no row was for yet."""
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
        """At the end of a run, and now and then."""
        self.remembered_at = time.monotonic()
        if "audit" in self.jobs:
            audit.remember(self.settings, now["batch"])


# ---- the query


def alone(settings: "Settings") -> "contextlib.AbstractContextManager[None]":
    """One process works on these tables."""
    busy = f"{settings.checkpoints} is in use: another `mosq pipeline run` works on these tables; stop it first"
    return state.locked(settings.checkpoints / "lock", busy)


def source(spark: "SparkSession", settings: "Settings") -> "DataFrame":
    reader = spark.readStream.format("mosq").option("maxRecordsPerTrigger", str(settings.batch_rows))
    reader = reader.option("failOnDataLoss", str(settings.stop_on_loss).lower())
    if settings.streams:
        reader = reader.option("streams", ",".join(settings.streams))
    if settings.consumer:
        reader = reader.option("consumer", settings.consumer)
    return reader.load(str(settings.journal))


def start(spark: "SparkSession", settings: "Settings", work: Jobs, once: bool) -> "StreamingQuery":
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
    """The folders, and whether what is in them was made with the same settings."""
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
    say: "Say" = print,
    told: "Told | None" = None,
    stop: threading.Event | None = None,
) -> None:
    """Until all is read that is there now (`once`), or until `stop`."""
    with alone(settings), trouble.told_plainly(settings):
        prepare(settings, jobs)
        work = Jobs(spark, settings, jobs, say, told)
        query = start(spark, settings, work, once)
        try:
            while not query.awaitTermination(LOOK_S):
                if stop is not None and stop.is_set():
                    work.stop(query)
        except BaseException as error:
            query.stop()
            if work.error is not None:
                raise work.error from error
            if not work.stopping:  # else it ends with that it was ended
                raise
        work.remember(state.after(settings))


def rebuild(
    spark: "SparkSession",
    settings: "Settings",
    *,
    jobs: "Sequence[str]" = JOBS,
    say: "Say" = print,
    told: "Told | None" = None,
    stop: threading.Event | None = None,
) -> None:
    """Everything but bronze, computed anew from bronze, with the settings of now. Killed or stopped, it must be done
    again."""
    with alone(settings), compaction.alone(settings), trouble.told_plainly(settings):
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
        # tables belong to the query that goes on writing them
        spark.sparkContext.setLocalProperty("sql.streaming.queryId", query)
        try:
            work = Jobs(spark, settings, jobs, say, told)
            before = state.empty()
            for number in tables.batches(settings.table(BRONZE)):  # not all numbers: some were merged
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
    """SIGINT and SIGTERM set the event. Spark's own handler for SIGINT would end its jobs in the middle."""
    stop = threading.Event()

    def handler(number: int, frame: "FrameType | None") -> None:
        stop.set()

    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, old in before.items():
            signal.signal(number, old)
