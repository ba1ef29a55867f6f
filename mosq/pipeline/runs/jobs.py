"""Run the jobs as one streaming query.

Each micro-batch is one Spark job: its tasks write the files of bronze, silver and quarantine, and return a manifest
(rows/work.py). The driver compares the manifest with the offsets of Spark's checkpoint, and commits table by table with
Delta: bronze first, progress last.

Invariant: each commit carries the checkpoint's name and the batch's number, and is skipped if it is there already. A
batch that is done again has the same records. So each row is in each table once, wherever a program was killed.
"""

import contextlib
import dataclasses
import functools
import json
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mosq.pipeline import MosqPipelineError, audit, trouble
from mosq.pipeline.cluster import probe
from mosq.pipeline.cluster.watch import Watch
from mosq.pipeline.lake import lock as locks
from mosq.pipeline.rows.duplicates import Duplicates
from mosq.pipeline.rows.telemetry import joined
from mosq.pipeline.rows.work import MANIFEST_DDL, Manifest, Rule, Work, read_manifest
from mosq.pipeline.runs import progress, rebuild, removed, settling
from mosq.pipeline.runs.progress import BRONZE, JOBS, PROGRESS
from mosq.pipeline.runs.tableset import BACKLOG, QUARANTINE, TableSet, adds_values, rules
from mosq.pipeline.runs.tending import Tending
from mosq.pipeline.settings import read_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from types import FrameType

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from mosq.pipeline.lake.places import Place
    from mosq.pipeline.settings import Settings

    Log = Callable[[str], object]
    # gets the state before and after a batch, and the seconds that the batch took
    Report = Callable[[dict[str, Any], dict[str, Any], float], object]

LOOK_S = 0.2
LEAVE_S = 60.0
CLAIM_COMMITS = 100  # of bronze, among which the commit of an unfinished batch is
TASK_ROWS = 50_000  # a task of fewer rows costs more than it saves


class Jobs:
    """Process batches."""

    def __init__(
        self,
        spark: "SparkSession | Any",  # `take` and `declare` need none
        settings: "Settings",
        jobs: "Sequence[str]" = JOBS,
        log: "Log" = print,
        report: "Report | None" = None,
    ) -> None:
        self.spark, self.settings, self.log, self.report = spark, settings, log, report
        self.jobs = frozenset(jobs)  # beside bronze
        self.error: BaseException | None = None
        self.at_work = threading.Lock()
        self.stopping = False
        self.tables = prepare(settings, jobs)
        self.state = progress.of_table(self.tables.table(PROGRESS))
        self.samples: dict[str, list[str]] = {}
        self.tending = Tending(self.tables, log)
        self.schemas: dict[str, str] = {}  # those that the tables have all columns of
        self.rules: tuple[Rule, ...] = ()
        self.erased = removed.erased(settings)  # also of a batch that was not finished, and is done again
        with self._committing():
            self._ready()
        self.schemas = dict(self.state["schemas"])
        self.duplicates = Duplicates(self.rules, self._work(self.state, {}), self.tables.open)

    def batch(self, df: "DataFrame", batch_id: int) -> None:
        """Process a batch, as foreachBatch calls it."""
        with self.at_work:
            if self.stopping:
                raise MosqPipelineError("the query is stopping: no further batch begins")
            try:
                self._batch(df, batch_id)
            except BaseException as error:
                self.error = error  # Spark passes on only a text of it
                raise

    def take(self, rows: "Iterable[Any]", ranges: dict[str, tuple[int, int]], node: str) -> None:
        """Process a batch of rows that this process has, without Spark; `node` is that of rows without the column.

        No row is late. The ranges are the numbers that the rows must have.
        """
        before, batch_id = self.state, self.state["batch"] + 1
        _check_begin(before, batch_id, ranges)
        work = dataclasses.replace(self._work(before, ranges), node=node, watermarks={})
        manifest = read_manifest(work(rows))
        check_manifest(manifest, ranges, batch_id)
        with self._committing():
            self._commit_once(before, manifest, batch_id)
            if self.state["schemas"] != self.schemas:
                self._settle([])

    def declare(self, schemas: dict[str, str]) -> None:
        """Settle the schemas of rules before the first batch."""
        now = progress.copied(self.state)
        now["schemas"] |= schemas
        with self._committing():
            self._put(now)
            self._settle([])

    def stop(self, query: "StreamingQuery") -> None:
        """Stop the query after the current batch. Spark would otherwise abort its jobs in the middle and log errors."""
        with self.at_work:
            self.stopping = True
        query.stop()

    def wait(self) -> None:
        """Wait until no batch is at work, at most LEAVE_S.

        A batch of a dead JVM ends by itself. The caller's lock must outlast its commits; and if Python ended while a
        thread is within pyarrow, the thread would abort the process.
        """
        if self.at_work.acquire(timeout=LEAVE_S):
            self.stopping = True
            self.at_work.release()

    def _batch(self, df: "DataFrame", batch_id: int) -> None:
        before, began = self.state, time.monotonic()
        ranges = progress.ranges(self.settings, batch_id)
        if before["batch"] >= batch_id:
            self._check_done(before, batch_id)
            return
        _check_begin(before, batch_id, ranges)
        work = self._work(before, ranges)
        n = sum(hi - lo for lo, hi in ranges.values())
        few = df.coalesce(max(1, min(self.spark.sparkContext.defaultParallelism, -(-n // TASK_ROWS))))
        manifest = read_manifest(few.mapInArrow(work, MANIFEST_DDL).toArrow().to_batches())
        check_manifest(manifest, ranges, batch_id)
        check_files(self.tables.place, manifest, batch_id)
        with self._committing():
            self._commit_once(before, manifest, batch_id)
            self._settle(settling.due(self.state))
        if self.report is not None:
            self.report(before, self.state, time.monotonic() - began)

    def _work(self, before: dict[str, Any], ranges: dict[str, tuple[int, int]]) -> Work:
        behind_us = self.settings.watermark_us
        erased = {
            place: [one for one in self.erased.get(place, ()) if one[0] < hi and lo < one[1]]
            for place, (lo, hi) in ranges.items()
        }
        return Work(
            place=self.tables.place,
            node=self.settings.sources[0].node,  # of rows that have no column `node`
            rules=self.rules,
            jobs=self.jobs,
            window_us=self.settings.window_us,
            prefix_levels=self.settings.prefix_levels,
            late_us=behind_us,
            erased={place: numbers for place, numbers in erased.items() if numbers},
            salt=self.tables.identity,
            telemetry=adds_values(self.jobs),
            devices="gold" in self.jobs,
            watermarks={place: at["time_us"] - behind_us for place, at in before["shards"].items() if at["time_us"]},
        )

    def _check_done(self, before: dict[str, Any], batch_id: int) -> None:
        """Check that a finished batch, which Spark does again after a kill, ends where it ended then."""
        for place, end in progress.nexts(self.settings, batch_id).items():
            ours = before["shards"].get(place, {"next": 0})["next"]
            if before["batch"] == batch_id and ours != end and ours:
                raise MosqPipelineError(
                    f"batch {batch_id} ended at {ours:,} of {place} when it was committed, and ends at {end:,} by"
                    f" Spark's checkpoint in {self.settings.checkpoints}: the checkpoint is an older copy, or a power"
                    f" failure took its end. Nothing was committed; restore it; or {progress.ADOPT}"
                )

    # ---- commits

    def _committing(self) -> "contextlib.AbstractContextManager[None]":
        """Keep erasures away during the block, and wait for one that is at work."""
        path = self.settings.checkpoints / locks.COMMITS
        return locks.awaited(path, functools.partial(self.log, "waiting until `erase` has erased its rows"))

    def _commit_once(self, before: dict[str, Any], manifest: Manifest, batch: int) -> None:
        """Commit a checked batch without the rows of silver whose keys are there already."""
        self.duplicates.settle(manifest, before["shards"])
        self._commit(before, manifest, batch)
        self.duplicates.committed()

    def _commit(self, before: dict[str, Any], manifest: Manifest, batch: int) -> None:
        """Commit a checked batch to all tables."""
        now = next_state(before, manifest, batch)
        quarantine = list(manifest.parts.get(QUARANTINE, ()))
        backlog: list[Any] = []
        if "audit" in self.jobs and manifest.accounts is not None:
            rows, unreadable, lost = audit.accounts(manifest.accounts)
            _audited(now, rows, unreadable, lost)
            backlog = self.tables.rows_as_parts(BACKLOG, rows)
            quarantine += self.tables.rows_as_parts(QUARANTINE, unreadable)
        spans = {place: [at["min_seq"], now["shards"][place]["next"]] for place, at in manifest.places.items()}
        about = {"batch": batch, "rows": sum(at["n"] for at in manifest.places.values()), "ranges": spans}
        if not self.tables.append(BRONZE, manifest.parts.get(BRONZE, ()), batch, about):
            _check_claim(self.tables, batch, spans)
        for name, parts in manifest.parts.items():
            if name.startswith("silver/"):
                self.tables.append(name, parts, batch, {"batch": batch, "rows": manifest.rows[name]})
        self.tables.append(QUARANTINE, quarantine, batch, {"batch": batch})
        if "gold" in self.jobs:
            for name, rows in manifest.sums.items():
                self.tables.merge(f"gold/{name}", rows, batch)
            self.tables.merge_values(joined(values.rows for values in manifest.telemetry.values()), batch)
            self.tables.fold(manifest.devices, self.tables.app, batch)
        self.tables.append(BACKLOG, backlog, batch, {"batch": batch})
        settling.gather(now, manifest, self.samples, self.log)
        self._put(now)

    def _put(self, now: dict[str, Any]) -> None:
        now["step"] += 1
        now["at"] = time.time()
        now["setup"] = self.tables.setup
        progress.put_after(self.tables.table(PROGRESS), self.tables.app, now)
        self.state = now

    def _ready(self) -> None:
        """Let the tables have all columns that the state names, and finish the backfills that it names."""
        self.rules = rules(self.settings, self.state["schemas"]) if "silver" in self.jobs else ()
        self.tables.create(self.jobs, self.rules)
        for name in sorted(self.state["backfill"]):
            now = progress.copied(self.state)
            settling.backfill(self.spark, self.settings, self.tables, now, name, self.log)
            self._put(now)

    def _settle(self, names: list[str]) -> None:
        """Settle the schemas of these rules, and add the columns of new fields."""
        if names:
            now = progress.copied(self.state)
            if settling.settle(self.spark, self.settings, self.tables, now, names, self.samples, self.log):
                self._put(now)
        if self.state["schemas"] != self.schemas or self.state["backfill"]:
            self._ready()
        self.schemas = dict(self.state["schemas"])

    def end(self) -> None:
        """Settle all schemas with the messages there are: no further ones come."""
        with self._committing():
            self._settle(sorted(self.state["pending"]))
            now = progress.copied(self.state)
            # a backfill may have found new fields too
            if settling.grow(now, self.log, whole=True) or now["new"] != self.state["new"]:
                self._put(now)
            self._settle([])

    def tend(self) -> None:
        """Do a part of the upkeep, unless a batch is at work."""
        if self.tending.is_due() and self.at_work.acquire(blocking=False):
            try:
                self.tending.step(self.state)
            finally:
                self.at_work.release()


def _check_begin(before: dict[str, Any], batch: int, ranges: dict[str, tuple[int, int]]) -> None:
    """Check that a batch begins where the tables end."""
    for place, (lo, _) in ranges.items():
        at = before["shards"].get(place)
        if at is not None and at["next"] != lo:
            raise MosqPipelineError(
                f"batch {batch} begins at {lo:,} of {place}, but the tables end at {at['next']:,}: nothing was"
                " committed. Tables and checkpoints are not of the same time: restore both from one copy; or"
                f" {progress.ADOPT}"
            )


def _check_claim(tables: TableSet, batch: int, spans: dict[str, list[int]]) -> None:
    """Check that the commit of this batch in bronze has the same records.

    Bronze is the first commit of a batch, so only one of two programs with copies of one checkpoint makes it. The other
    one goes on only if its rows are the same, and so are all its commits.
    """
    bronze = tables.open.get(BRONZE)
    for commit in bronze.metadata(CLAIM_COMMITS) if bronze is not None else ():
        if commit.get("batch") == str(batch) and "ranges" in commit:
            theirs = json.loads(commit["ranges"])
            if theirs != spans:
                raise MosqPipelineError(
                    f"{tables.place.uri}: batch {batch} was committed with other records ({_spans(theirs)}) than those"
                    f" of this checkpoint ({_spans(spans)}): another program writes these tables with a copy of"
                    f" {tables.settings.checkpoints}. This one has committed nothing: let one machine run; or"
                    f" {progress.ADOPT}"
                )
            return


def _spans(spans: dict[str, list[int]]) -> str:
    return ", ".join(f"{place}: {lo:,} to {hi - 1:,}" for place, (lo, hi) in sorted(spans.items()))


def check_manifest(manifest: Manifest, ranges: dict[str, tuple[int, int]], batch: int) -> None:
    """Check that the files of a batch have each record of its ranges once. Raises MosqPipelineError otherwise."""
    for place in sorted(ranges.keys() | manifest.places.keys()):
        lo, hi = ranges.get(place, (0, 0))
        at = manifest.places.get(place, {"covered": 0, "min_seq": lo, "max_seq": hi - 1, "n": 0})
        if at["covered"] != hi - lo or at["min_seq"] != lo or at["max_seq"] >= hi:
            raise MosqPipelineError(
                f"batch {batch} has {at['covered']:,} records of {place} ({at['min_seq']:,} to {at['max_seq']:,}), but"
                f" Spark's checkpoint says {hi - lo:,} ({lo:,} to {hi - 1:,}): nothing was committed; run again"
            )
    n = sum(at["n"] for at in manifest.places.values())
    if manifest.rows[BRONZE] != n:
        raise MosqPipelineError(
            f"batch {batch}: the tasks read {n:,} rows, but their files of bronze have {manifest.rows[BRONZE]:,}:"
            " nothing was committed; run again"
        )


def check_files(place: "Place", manifest: Manifest, batch: int) -> None:
    """Check that the driver sees the files that the tasks wrote: a machine may have another folder of that name."""
    if not place.is_local:
        return
    for table, parts in manifest.parts.items():
        for part in parts:
            path = place.child(table).path / part.path
            size = path.stat().st_size if path.exists() else -1
            if size != part.size:
                raise MosqPipelineError(
                    f"batch {batch}: a task wrote {path} with {part.size:,} bytes, but here"
                    f" {'it is not there' if size < 0 else f'it has {size:,}'}: nothing was committed. Mount one"
                    f" shared folder at {place.uri} on the driver and on every machine of the cluster, or use object"
                    f" storage ({probe.PAGE})"
                )


def next_state(before: dict[str, Any], manifest: Manifest, batch: int) -> dict[str, Any]:
    """Return the state after a batch."""
    now = progress.copied(before)
    now["batch"] = batch
    for place, at in manifest.places.items():
        had = now["shards"].get(place, {"first": at["min_seq"], "next": 0, "time_us": 0, "rows": 0})
        now["shards"][place] = had | {
            "next": at["min_seq"] + at["covered"],
            "time_us": max(had["time_us"], at["time_us"] or 0),
            "rows": had["rows"] + at["n"],
        }
    rows = dict(manifest.rows) | {f"gold/{name}": table.num_rows for name, table in manifest.sums.items()}
    rows.pop(QUARANTINE, None)
    for name, n in rows.items():
        if not name.startswith("gold/"):
            _counted(now["rows"], name, n)
    for reason, n in manifest.bad.items():
        _counted(now["quarantine"], reason, n)
        _counted(now["rows"], QUARANTINE, n)
    settling.add_events(now, manifest)
    late = manifest.sums.get("late")
    now["late"] += 0 if late is None else sum(late["rows"].to_pylist())
    return now


def _counted(counts: dict[str, int], key: str, n: int) -> None:
    counts[key] = counts.get(key, 0) + n


def _audited(now: dict[str, Any], rows: pa.Table, unreadable: pa.Table, lost: int) -> None:
    bad = audit.wrong(rows)
    summary = now["audit"]
    summary["rows"] += rows.num_rows
    summary["wrong"] += bad.num_rows
    summary["lost_events"] += lost
    summary["examples"] = []  # of an earlier version, with names of clients, which an erasure did not reach
    _counted(now["rows"], BACKLOG, rows.num_rows)
    for reason in unreadable["reason"].to_pylist():
        _counted(now["quarantine"], reason, 1)
        _counted(now["rows"], QUARANTINE, 1)


# ---- the query


def alone(settings: "Settings", log: "Log | None" = None) -> "contextlib.AbstractContextManager[locks.Lock]":
    """Lock the tables for this process and the JVM that it starts."""
    busy = f"{settings.checkpoints} is in use: another `mosq pipeline run` works on these tables; stop it first"
    return locks.held(settings.checkpoints / locks.LOCK, busy, log)


def check_cluster(spark: "SparkSession", settings: "Settings", log: "Log") -> None:
    """Check the executors, if the master of the session is a cluster."""
    if probe.is_cluster(spark.sparkContext.master):
        with trouble.plain_errors(settings):
            seen = probe.check(spark, settings)
        log(f"{spark.sparkContext.master}: executors on {', '.join(one['host'] for one in seen)}")


def source(spark: "SparkSession", settings: "Settings") -> "DataFrame":
    """Return the streaming DataFrame of the journals, with the options of the settings."""
    reader = spark.readStream.format("mosq").option("maxRecordsPerTrigger", str(settings.batch_rows))
    reader = reader.option("failOnDataLoss", str(settings.stop_on_loss).lower())
    if settings.consumer:
        reader = reader.option("consumer", settings.consumer)
    return reader.options(**read_options(progress.by_age(settings))).load()


def start(spark: "SparkSession", settings: "Settings", work: Jobs, once: bool) -> "StreamingQuery":
    """Start the query that passes each micro-batch to `work.batch`."""
    writer = source(spark, settings).writeStream.queryName("mosq").foreachBatch(work.batch)
    writer = writer.option("checkpointLocation", str(settings.checkpoints / progress.QUERY))
    writer = (
        writer.trigger(availableNow=True)
        if once
        else writer.trigger(processingTime=f"{settings.trigger_us // 1000} milliseconds")
    )
    query: StreamingQuery = writer.start()
    return query


def prepare(settings: "Settings", jobs: "Sequence[str]") -> TableSet:
    """Check that settings, checkpoints and tables belong together, and create what there is not yet."""
    now = progress.setup(settings, jobs)
    progress.check(settings, now)
    about = progress.begun(settings, now)
    tables = TableSet(settings, about)
    tables.create(jobs, ())
    progress.made(settings, about)
    return tables


def run(  # parameters: one for each option of `mosq pipeline run`
    spark: "SparkSession",
    settings: "Settings",
    *,
    once: bool = False,
    jobs: "Sequence[str]" = JOBS,
    log: "Log" = print,
    report: "Report | None" = None,
    stop: threading.Event | None = None,
    lock: locks.Lock | None = None,
) -> None:
    """Run until all current records are read (`once`), or until `stop` is set.

    `lock` is what the caller holds by `alone`, so that the JVM of its session has it too.
    """
    with contextlib.nullcontext() if lock is not None else alone(settings, log), trouble.plain_errors(settings):
        rebuild.finish(settings, log)
        work = Jobs(spark, settings, jobs, log, report)
        progress.clear_begun_query(settings, work.state)
        query = start(spark, settings, work, once)
        watch = Watch(spark, log)
        try:
            while not query.awaitTermination(LOOK_S):
                watch.look()
                if stop is not None and stop.is_set():
                    work.stop(query)
                else:
                    work.tend()
        except BaseException as error:
            with contextlib.suppress(Exception):  # the JVM may be dead
                query.stop()
            if work.error is not None:
                raise work.error from error
            if not work.stopping:  # else the error only reports the stop
                raise
        finally:
            work.wait()
        if once:
            work.end()
        work.tend()


def run_rebuild(
    spark: "SparkSession",
    settings: "Settings",
    *,
    jobs: "Sequence[str]" = JOBS,
    log: "Log" = print,
    stop: threading.Event | None = None,
    lock: locks.Lock | None = None,
) -> None:
    """Compute tables again from bronze, with the current settings, and switch to them."""
    with contextlib.nullcontext() if lock is not None else alone(settings, log), trouble.plain_errors(settings):
        rebuild.rebuild(spark, settings, jobs, log, stop)


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
