"""Run batches of the pipeline without Spark's JVM: its source plans them, its jobs commit them, and the checkpoint has Spark's format.

It is fast enough for tests of many batches, and for repairs.
"""

from __future__ import annotations

import json
import types
import uuid
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from mosq.pipeline.rows.work import MANIFEST
from mosq.pipeline.runs import jobs, progress, rebuild
from mosq.pipeline.settings import read_options
from mosq.pipeline.source.options import Options
from mosq.pipeline.source.rows import SCHEMA, WITH_NODE
from mosq.pipeline.source.stream import JournalStreamReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mosq.pipeline.settings import Settings


class Frame:
    """Stand for the DataFrame of a batch."""

    def __init__(self, read: Callable[[], Iterator[Any]]) -> None:
        self.read = read

    def coalesce(self, n: int) -> Frame:
        return self

    def mapInArrow(self, work: Any, ddl: str) -> Frame:
        inner = self.read
        return Frame(lambda: work(inner()))

    def toArrow(self) -> pa.Table:
        return pa.Table.from_batches(list(self.read()), MANIFEST)


class Batches:
    """Do batches one by one."""

    def __init__(self, settings: Settings, **options: Any) -> None:
        self.settings = settings
        rebuild.finish(settings, lambda line: None)
        spark: Any = types.SimpleNamespace(sparkContext=types.SimpleNamespace(defaultParallelism=1))
        self.lines: list[str] = []
        self.jobs = jobs.Jobs(spark, settings, options.pop("jobs", progress.JOBS), self.lines.append)
        given = read_options(progress.by_age(settings)) | {"failOnDataLoss": str(settings.stop_on_loss).lower()} | options
        if settings.consumer:
            given["consumer"] = settings.consumer
        read = Options(given, batch=False)
        self.reader = JournalStreamReader(read, (WITH_NODE if read.with_node else SCHEMA).names)
        self.folder = settings.checkpoints / progress.QUERY
        for name in ("offsets", "commits"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        if not (self.folder / "metadata").exists():
            (self.folder / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}))

    def _offset(self, batch: int) -> dict[str, Any]:
        if batch < 0:
            return self.reader.initialOffset()
        found: dict[str, Any] = json.loads((self.folder / "offsets" / str(batch)).read_text().splitlines()[2])
        return found

    def plan(self, rows: int = 0) -> int | None:
        """Write the offsets of the next batch, as Spark does before it; an unfinished one is there already."""
        there = sorted(int(path.name) for path in (self.folder / "offsets").glob("[0-9]*"))
        done = sorted(int(path.name) for path in (self.folder / "commits").glob("[0-9]*"))
        last = done[-1] if done else -1
        if there and there[-1] > last:
            return there[-1]
        start = self._offset(last)
        end = self.reader.latestOffset(start, ReadMaxRows(rows) if rows else ReadAllAvailable())
        if (end == start and last >= 0) or not any(map(self._size, end["streams"].values())):
            return None
        text = "v1\n{}\n" + json.dumps(end)
        (self.folder / "offsets" / str(last + 1)).write_text(text)
        return last + 1

    @staticmethod
    def _size(entry: dict[str, Any]) -> int:
        return sum(entry["next"])

    def one(self, rows: int = 0) -> bool:
        """Do a batch; return whether there was one."""
        self.reader.options.trigger_records = rows
        batch = self.plan(rows)
        if batch is None:
            return False
        start, end = self._offset(batch - 1), self._offset(batch)
        parts = self.reader.partitions(start, end)

        def read() -> Iterator[Any]:
            for part in parts:
                yield from self.reader.read(part)

        self.jobs.batch(Frame(read), batch)         # type: ignore[arg-type]
        (self.folder / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')
        return True

    def all(self, rows: int = 0) -> int:
        """Do batches until nothing is left; return how many."""
        n = 0
        while self.one(rows):
            n += 1
        return n
