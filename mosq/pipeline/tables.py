"""Write and read tables: folders of Parquet files that any reader may trust, Spark or not.

A batch is written to `<table>/.tmp-N`, synced, and renamed to `<table>/batch_id=N`. So it exists as a whole or not at
all, and an existing batch is not written again. A query that is killed and started again writes each batch once, if its
source gives the batch the same rows again; journal streams do. `<table>/_table.json` names the query that the table
belongs to.

Files lie on this machine or on mounted shared storage; renames of folders must be atomic there.
"""

import fcntl
import json
import os
import re
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mosq.pipeline import MosqPipelineError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.types import DataType

ABOUT = "_table.json"
FORMAT = 1
GLOB = "batch_id=*/**/*.parquet"
# Spark's names for the Arrow types of small tables
ARROW = {
    "string": "string",
    "int8": "tinyint",
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "double": "double",
    "bool": "boolean",
    "binary": "binary",
    "timestamp[us, tz=UTC]": "timestamp",
}


def table_path(table: Path | str) -> Path:
    """Return the absolute path of a table. Raises MosqPipelineError for a URL."""
    text = str(table)
    if text.startswith("file:"):
        text = text[5:].removeprefix("//")
    if "://" in text:
        raise MosqPipelineError(f"{table}: a table is a folder of this machine or of mounted storage, not a URL")
    return Path(text).absolute()


def sync(path: Path) -> None:
    """Sync a file or folder to the disk."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def put(path: Path, text: str) -> None:
    """Write a file; it is on the disk when this returns, as a whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    new.write_text(text)
    sync(new)
    new.replace(path)
    sync(path.parent)


def sync_tree(top: Path) -> None:
    """Sync a folder and everything below it."""
    for folder, _, files in os.walk(top):
        for name in files:
            sync(Path(folder, name))
        sync(Path(folder))


@contextmanager
def locked(table: Path) -> "Iterator[None]":
    """Lock the table for one writer at a time: batches and compaction."""
    with (table.parent / f".{table.name}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def about(table: Path | str) -> dict[str, Any]:
    """Return the table's query, partition_by, columns and compacted; {} if there is no table."""
    path = table_path(table) / ABOUT
    try:
        content: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise MosqPipelineError(f"{path} is damaged ({error}): restore it, or begin with a new table") from error
    if content.get("format") != FORMAT:
        format = content.get("format")
        raise MosqPipelineError(f"{path} is of format {format}: written by another version of mosq; update")
    return content


def put_about(table: Path, content: dict[str, Any]) -> None:
    """Write the description of a table."""
    put(table / ABOUT, json.dumps({"format": FORMAT} | content, indent=1))


def ddl(type: "DataType") -> str:
    """Return a type in the form that Spark's SQL accepts for any names of fields; Spark's own text does not quote them.
    """
    if type.typeName() == "array":
        return f"array<{ddl(type.elementType)}>"
    if type.typeName() == "struct":
        return f"struct<{','.join(f'{quoted(field.name)}:{ddl(field.dataType)}' for field in type.fields)}>"
    return str(type.simpleString())


def quoted(name: str) -> str:
    """Quote a name if it needs quotes."""
    return name if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) else "`" + name.replace("`", "``") + "`"


def _columns(df: "DataFrame") -> dict[str, str]:
    return {field.name: ddl(field.dataType) for field in df.schema.fields}


def _check(table: Path, had: dict[str, Any], now: dict[str, Any]) -> None:
    if had["query"] != now["query"]:
        raise MosqPipelineError(
            f"{table} belongs to the query {had['query']}, not to {now['query']}: batches of two queries would be "
            "confused. Give the query the checkpoint that it had, or a table of its own"
        )
    if had["partition_by"] != now["partition_by"]:
        raise MosqPipelineError(
            f"{table} is partitioned by {had['partition_by'] or 'nothing'}, not by {now['partition_by'] or 'nothing'}: "
            "use a new table"
        )
    if had["columns"] != now["columns"]:
        old, new = had["columns"].items(), now["columns"].items()
        gone = ", ".join(f"{name} {kind}" for name, kind in old - new) or "none"
        come = ", ".join(f"{name} {kind}" for name, kind in new - old) or "none"
        raise MosqPipelineError(
            f"{table}: its columns have changed; removed: {gone}; new: {come}. Readers would see two tables in one: "
            "write to a new table with a new checkpoint, or restore the schema that it was created with"
        )


def query_of(spark: "SparkSession") -> str | None:
    """Return the id of the streaming query that this thread works for, or None."""
    # Spark sets it for the thread that foreachBatch is called in
    query: str | None = spark.sparkContext.getLocalProperty("sql.streaming.queryId")
    return query


def write_batch(df: "DataFrame", table: Path | str, batch_id: int, partition_by: "Sequence[str]" = ()) -> bool:
    """Write a batch as a whole; return False if it exists already. For foreachBatch; a table has one query."""
    now = {
        "query": query_of(df.sparkSession),
        "partition_by": list(partition_by),
        "columns": _columns(df),
        "compacted": -1,
    }
    return _put(table_path(table), batch_id, now, lambda tmp: df.write.partitionBy(*partition_by).parquet(str(tmp)))


def write_whole(df: "DataFrame", table: Path | str, batch_id: int) -> None:
    """Replace the content of a table by one batch. For a moment both batches exist, so the view reads the last one."""
    path = table_path(table)
    now: dict[str, Any] = {"query": None, "partition_by": [], "columns": _columns(df), "compacted": -1, "whole": True}
    _put(path, batch_id, now, lambda tmp: df.write.parquet(str(tmp)))
    keep_only(path, batch_id)


def keep_only(table: Path, batch_id: int) -> None:
    """Remove all batches but one."""
    with locked(table):
        for number in batches(table):
            if number != batch_id:
                shutil.rmtree(table / f"batch_id={number}")
        sync(table)


def write_arrow(rows: Any, table: Path | str, batch_id: int, query: str | None, whole: bool = False) -> bool:
    """Write a pyarrow.Table as a batch without Spark, because it is small. `query` is the query that owns the table."""
    import pyarrow.parquet as pq

    columns = {field.name: ARROW[str(field.type)] for field in rows.schema}
    now: dict[str, Any] = {"query": query, "partition_by": [], "columns": columns, "compacted": -1, "whole": whole}

    def write(tmp: Path) -> None:
        tmp.mkdir()
        pq.write_table(rows, tmp / "part.parquet", compression="snappy")

    return _put(table_path(table), batch_id, now, write)


def _put(path: Path, batch_id: int, now: dict[str, Any], write: "Callable[[Path], None]") -> bool:
    path.mkdir(parents=True, exist_ok=True)
    final, tmp = path / f"batch_id={batch_id}", path / f".tmp-{batch_id}"
    with locked(path):
        had = about(path)
        if had:
            _check(path, had, now)
        else:
            put_about(path, now)
        if final.exists() or batch_id <= had.get("compacted", -1):
            return False
        shutil.rmtree(tmp, ignore_errors=True)
        write(tmp)
        sync_tree(tmp)
        tmp.rename(final)
        sync(path)
    return True


def tables_in(folder: Path) -> list[Path]:
    """Return the folders of all tables in `folder`, in order; without copies that a compaction prepares.

    Does not look into batches, also not into those that a writer has begun and renames or removes at any time.
    """
    found = []
    for path, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "batch_id=")))
        if ABOUT in names:
            found.append(Path(path))
    return found


def files(table: Path | str, batch_id: int | None = None) -> list[Path]:
    """Return the files of a table, or of one of its batches."""
    return sorted(table_path(table).glob(GLOB if batch_id is None else f"batch_id={batch_id}/**/*.parquet"))


def batches(table: Path | str) -> list[int]:
    """Return the numbers of a table's batches in increasing order."""
    return sorted(batch_of(table, path) for path in table_path(table).glob("batch_id=*"))


def batch_of(table: Path | str, path: Path) -> int:
    """Return the batch of a file or folder in the table."""
    return int(path.relative_to(table_path(table)).parts[0].partition("=")[2])


def count(table: Path | str, batch_id: int | None = None) -> int:
    """Return the number of rows from the metadata of the files."""
    import pyarrow.parquet as pq

    return sum(pq.read_metadata(path).num_rows for path in files(table, batch_id))


def counts(table: Path | str, batch_id: int, column: str) -> dict[str, int]:
    """Return how often each value of a column occurs in a batch; only that column is read."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    found: dict[str, int] = {}
    for path in files(table, batch_id):
        for one in pc.value_counts(pq.ParquetFile(path).read([column])[column]).to_pylist():
            found[one["values"]] = found.get(one["values"], 0) + one["counts"]
    return found


def read_batch(spark: "SparkSession", table: Path | str, batch_id: int) -> "DataFrame":
    """Read one batch of a table, without its number."""
    path = table_path(table)
    return spark.read.schema(_ddl(path)).parquet(str(path / f"batch_id={batch_id}"))


def append(
    stream: "DataFrame",
    table: Path | str,
    checkpoint: Path | str,
    trigger: str | None = None,
    partition_by: "Sequence[str]" = (),
) -> "StreamingQuery":
    """Start a query that appends a stream to a table, every row once.

    `trigger` is a text such as "5 seconds"; with None the query reads the current records and ends.
    """
    table_path(table)

    def put(df: "DataFrame", batch_id: int) -> None:
        write_batch(df, table, batch_id, partition_by)

    writer = stream.writeStream.foreachBatch(put).option("checkpointLocation", str(checkpoint))
    timed = writer.trigger(availableNow=True) if trigger is None else writer.trigger(processingTime=trigger)
    query: StreamingQuery = timed.start()
    return query


def _ddl(path: Path) -> str:
    content = about(path)
    if not content:
        raise MosqPipelineError(f"there is no table in {path}: nothing was written to it yet, or the path is another")
    return ", ".join(f"`{name}` {kind}" for name, kind in content["columns"].items())


def read_table(spark: "SparkSession", table: Path | str) -> "DataFrame":
    """Read the current content of a table; `batch_id` is its last column."""
    path = table_path(table)
    return spark.read.schema(f"{_ddl(path)}, batch_id bigint").option("basePath", str(path)).parquet(str(path))
