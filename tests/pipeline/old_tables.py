"""Write tables of the format before Delta, as an earlier mosq left them: bronze/batch_id=N, and the files beside Spark's checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from mosq.pipeline import settings
from mosq.pipeline.runs import progress
from mosq.pipeline.source.rows import read_range


class OldTables:
    """Write batches of all records of the journal."""

    def __init__(self, found: settings.Settings) -> None:
        self.settings = found
        self.tables, self.checkpoints = Path(found.tables), found.checkpoints
        self.batch = 0
        self.next: dict[str, list[int]] = {}

    def write(self) -> list[Path]:
        """Write a batch of the new records; return its files, one for each shard."""
        streams = progress.streams_of(self.settings, self.settings.sources[0])
        files, shards = [], {}
        for name, stream in streams.items():
            marks = stream.marks()
            had = self.next.get(name, [0] * len(marks))
            self.next[name] = [mark.seq for mark in marks]
            for shard, mark in enumerate(marks):
                shards[f"{name}/{shard}"] = {"next": mark.seq, "time_us": mark.time_us, "rows": mark.seq}
                rows = list(read_range(name, stream.path, shard, max(had[shard], mark.first_seq), mark.seq))
                if rows:
                    path = self.tables / "bronze" / f"batch_id={self.batch}" / f"part-{len(files):05}.snappy.parquet"
                    path.parent.mkdir(parents=True, exist_ok=True)
                    pq.write_table(pa.Table.from_batches(rows), path, compression="snappy")
                    files.append(path)
        self._about(streams, shards)
        self.batch += 1
        return files

    def _about(self, streams: dict[str, object], shards: dict[str, object]) -> None:
        query = "6c1d0e0e-0000-4000-8000-000000000000"
        self._put(self.tables / "bronze" / "_table.json", {"format": 1, "query": query, "partition_by": [], "columns": {}, "compacted": -1})
        # silver of the old format had integers as DOUBLE
        silver = self.tables / "silver" / "guessed" / f"batch_id={self.batch}"
        silver.mkdir(parents=True)
        pq.write_table(pa.table({"x": [1.0]}), silver / "part.parquet")
        (self.tables / "views.sql").write_text("CREATE VIEW bronze AS SELECT 1;")
        now = progress.setup(self.settings, progress.JOBS)
        now["streams"] = {name.partition("/")[2]: one for name, one in now["streams"].items()}
        self._put(self.checkpoints / "setup.json", now | {"format": 1, "tables": str(self.tables)})
        self._put(self.checkpoints / "batches" / f"{self.batch}.json", {"batch": self.batch, "shards": shards})
        (self.checkpoints / "compact.lock").touch()
        spark = self.checkpoints / "spark"
        self._put(spark / "metadata", {"id": query})
        ids = {name: one["id"] for name, one in now["streams"].items()}
        offset = {"version": 1, "streams": {name: {"id": ids[name], "next": ends} for name, ends in self.next.items()}}
        for folder, text in (("offsets", "v1\n{}\n" + json.dumps(offset)), ("commits", 'v1\n{"nextBatchWatermarkMs":0}')):
            (spark / folder).mkdir(exist_ok=True)
            (spark / folder / str(self.batch)).write_text(text)

    @staticmethod
    def _put(path: Path, content: object) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content))


def drop(path: Path, first: int, last: int) -> None:
    """Let a file lack some of its rows."""
    rows = pq.read_table(path, partitioning=None)
    pq.write_table(pa.concat_tables([rows.slice(0, first), rows.slice(last)]), path)
