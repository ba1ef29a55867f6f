"""Tables: folders of Parquet files that any reader may trust, Spark or not.

A batch is written to `<table>/.tmp-N`, synced, and renamed to `<table>/batch_id=N`: it is there as a whole or not at
all, and a batch that is there is not written again. So a query that is killed and started again writes each batch once,
as long as its source gives a batch the same rows again, which journal streams do. `<table>/_table.json` says whose
table it is.

Files lie on this machine or on shared storage that is mounted: renames of folders must be atomic."""

import fcntl
import json
import os
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mosq.pipeline import MosqPipelineError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

ABOUT = "_table.json"
FORMAT = 1
GLOB = "batch_id=*/**/*.parquet"


def table_path(table: Path | str) -> Path:
    said = str(table)
    if said.startswith("file:"):
        said = said[5:].removeprefix("//")
    if "://" in said:
        raise MosqPipelineError(f"{table}: a table is a folder of this machine or of mounted storage, not a URL")
    return Path(said).absolute()


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _sync_tree(top: Path) -> None:
    for folder, _, files in os.walk(top):
        for name in files:
            _sync(Path(folder, name))
        _sync(Path(folder))


@contextmanager
def _locked(table: Path) -> "Iterator[None]":
    """One writer at a time: batches and compaction."""
    with (table.parent / f".{table.name}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def about(table: Path | str) -> dict[str, Any]:
    """What is known of a table: query, partition_by, columns, compacted; {}: there is none."""
    path = table_path(table) / ABOUT
    try:
        said: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise MosqPipelineError(f"{path} is damaged ({error}): restore it, or begin with a new table") from error
    if said.get("format") != FORMAT:
        raise MosqPipelineError(f"{path} is of format {said.get('format')}: written by another version of mosq; update")
    return said


def _put_about(table: Path, said: dict[str, Any]) -> None:
    new = table / (ABOUT + ".new")
    new.write_text(json.dumps({"format": FORMAT} | said, indent=1))
    _sync(new)
    new.rename(table / ABOUT)
    _sync(table)


def _columns(df: "DataFrame") -> dict[str, str]:
    return {field.name: field.dataType.simpleString() for field in df.schema.fields}


def _check(table: Path, had: dict[str, Any], now: dict[str, Any]) -> None:
    if had["query"] != now["query"]:
        raise MosqPipelineError(
            f"{table} belongs to the query {had['query']}, not to {now['query']}: batches of two queries would be "
            "taken for one another. Give the query the checkpoint that it had, or a table of its own"
        )
    if had["partition_by"] != now["partition_by"]:
        raise MosqPipelineError(
            f"{table} is partitioned by {had['partition_by'] or 'nothing'}, not by {now['partition_by'] or 'nothing'}: "
            "take a new table"
        )
    if had["columns"] != now["columns"]:
        old, new = had["columns"].items(), now["columns"].items()
        gone = ", ".join(f"{name} {kind}" for name, kind in old - new) or "nothing"
        come = ", ".join(f"{name} {kind}" for name, kind in new - old) or "nothing"
        raise MosqPipelineError(
            f"{table}: its columns have changed; no more: {gone}; new: {come}. Readers would see two tables in one: "
            "write to a new table with a new checkpoint, or bring back the schema that it was made with"
        )


def _query(df: "DataFrame") -> str | None:
    # Spark sets it for the thread that foreachBatch is called in
    said: str | None = df.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    return said


def write_batch(df: "DataFrame", table: Path | str, batch_id: int, partition_by: "Sequence[str]" = ()) -> bool:
    """Writes a batch as a whole; False: it was there already. For foreachBatch; a table has one query."""
    path = table_path(table)
    path.mkdir(parents=True, exist_ok=True)
    final, tmp = path / f"batch_id={batch_id}", path / f".tmp-{batch_id}"
    with _locked(path):
        now = {"query": _query(df), "partition_by": list(partition_by), "columns": _columns(df), "compacted": -1}
        had = about(path)
        if had:
            _check(path, had, now)
        else:
            _put_about(path, now)
        if final.exists() or batch_id <= had.get("compacted", -1):
            return False
        shutil.rmtree(tmp, ignore_errors=True)
        df.write.partitionBy(*partition_by).parquet(str(tmp))
        _sync_tree(tmp)
        tmp.rename(final)
        _sync(path)
    return True


def append(stream: "DataFrame", table: Path | str, checkpoint: Path | str, trigger: str | None = None,
           partition_by: "Sequence[str]" = ()) -> "StreamingQuery":
    """Starts a query that appends a stream to a table, every row once. `trigger`: "5 seconds"; None: what is there now,
    and the query ends."""
    table_path(table)

    def put(df: "DataFrame", batch_id: int) -> None:
        write_batch(df, table, batch_id, partition_by)

    writer = stream.writeStream.foreachBatch(put).option("checkpointLocation", str(checkpoint))
    timed = writer.trigger(availableNow=True) if trigger is None else writer.trigger(processingTime=trigger)
    query: StreamingQuery = timed.start()
    return query


def read_table(spark: "SparkSession", table: Path | str) -> "DataFrame":
    """What is in a table now; `batch_id` is its last column."""
    path = table_path(table)
    said = about(path)
    if not said:
        raise MosqPipelineError(f"there is no table in {path}: nothing was written to it yet, or the path is another")
    schema = ", ".join(f"`{name}` {kind}" for name, kind in said["columns"].items())
    return spark.read.schema(f"{schema}, batch_id bigint").option("basePath", str(path)).parquet(str(path))
