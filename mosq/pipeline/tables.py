"""Tables: folders of Parquet files that any reader may trust, Spark or not.

A batch is written to `<table>/.tmp-N`, synced, and renamed to `<table>/batch_id=N`: it is there as a whole or not at
all, and a batch that is there is not written again. So a query that is killed and started again writes each batch once,
as long as its source gives a batch the same rows again, which journal streams do. `<table>/_table.json` says whose
table it is.

Files lie on this machine or on shared storage that is mounted: renames of folders must be atomic."""

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
# what Spark calls the types of Arrow that small tables have
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
    said = str(table)
    if said.startswith("file:"):
        said = said[5:].removeprefix("//")
    if "://" in said:
        raise MosqPipelineError(f"{table}: a table is a folder of this machine or of mounted storage, not a URL")
    return Path(said).absolute()


def sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def put(path: Path, text: str) -> None:
    """On the disk when this returns, as a whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    new.write_text(text)
    sync(new)
    new.replace(path)
    sync(path.parent)


def sync_tree(top: Path) -> None:
    for folder, _, files in os.walk(top):
        for name in files:
            sync(Path(folder, name))
        sync(Path(folder))


@contextmanager
def locked(table: Path) -> "Iterator[None]":
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


def put_about(table: Path, said: dict[str, Any]) -> None:
    put(table / ABOUT, json.dumps({"format": FORMAT} | said, indent=1))


def ddl(type: "DataType") -> str:
    """As Spark's SQL takes it, whatever fields are called; its own text does not quote their names."""
    if type.typeName() == "array":
        return f"array<{ddl(type.elementType)}>"
    if type.typeName() == "struct":
        return f"struct<{','.join(f'{quoted(field.name)}:{ddl(field.dataType)}' for field in type.fields)}>"
    return str(type.simpleString())


def quoted(name: str) -> str:
    """Where it must be."""
    return name if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) else "`" + name.replace("`", "``") + "`"


def _columns(df: "DataFrame") -> dict[str, str]:
    return {field.name: ddl(field.dataType) for field in df.schema.fields}


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


def query_of(spark: "SparkSession") -> str | None:
    """The streaming query that this thread works for."""
    # Spark sets it for the thread that foreachBatch is called in
    said: str | None = spark.sparkContext.getLocalProperty("sql.streaming.queryId")
    return said


def write_batch(df: "DataFrame", table: Path | str, batch_id: int, partition_by: "Sequence[str]" = ()) -> bool:
    """Writes a batch as a whole; False: it was there already. For foreachBatch; a table has one query."""
    now = {
        "query": query_of(df.sparkSession),
        "partition_by": list(partition_by),
        "columns": _columns(df),
        "compacted": -1,
    }
    return _put(table_path(table), batch_id, now, lambda tmp: df.write.partitionBy(*partition_by).parquet(str(tmp)))


def write_whole(df: "DataFrame", table: Path | str, batch_id: int) -> None:
    """Of a table that is made anew as a whole: the batch takes the place of the one before. For a moment both are
    there, so its view asks for the last one."""
    path = table_path(table)
    now: dict[str, Any] = {"query": None, "partition_by": [], "columns": _columns(df), "compacted": -1, "whole": True}
    _put(path, batch_id, now, lambda tmp: df.write.parquet(str(tmp)))
    keep_only(path, batch_id)


def keep_only(table: Path, batch_id: int) -> None:
    with locked(table):
        for number in batches(table):
            if number != batch_id:
                shutil.rmtree(table / f"batch_id={number}")
        sync(table)


def write_arrow(rows: Any, table: Path | str, batch_id: int, query: str | None, whole: bool = False) -> bool:
    """The same for a pyarrow.Table, which is written here, not by Spark: it is small. `query`: whose table it is."""
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


def files(table: Path | str, batch_id: int | None = None) -> list[Path]:
    """Of a table now, or of one of its batches."""
    return sorted(table_path(table).glob(GLOB if batch_id is None else f"batch_id={batch_id}/**/*.parquet"))


def batches(table: Path | str) -> list[int]:
    return sorted(batch_of(table, path) for path in table_path(table).glob("batch_id=*"))


def batch_of(table: Path | str, path: Path) -> int:
    """Of a file or folder in the table."""
    return int(path.relative_to(table_path(table)).parts[0].partition("=")[2])


def count(table: Path | str, batch_id: int | None = None) -> int:
    """Rows, by what the files say of themselves."""
    import pyarrow.parquet as pq

    return sum(pq.read_metadata(path).num_rows for path in files(table, batch_id))


def counts(table: Path | str, batch_id: int, column: str) -> dict[str, int]:
    """How often each value of a column is there in a batch; only that column is read."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    found: dict[str, int] = {}
    for path in files(table, batch_id):
        for one in pc.value_counts(pq.ParquetFile(path).read([column])[column]).to_pylist():
            found[one["values"]] = found.get(one["values"], 0) + one["counts"]
    return found


def read_batch(spark: "SparkSession", table: Path | str, batch_id: int) -> "DataFrame":
    """One batch of a table, without its number."""
    path = table_path(table)
    return spark.read.schema(_ddl(path)).parquet(str(path / f"batch_id={batch_id}"))


def append(
    stream: "DataFrame",
    table: Path | str,
    checkpoint: Path | str,
    trigger: str | None = None,
    partition_by: "Sequence[str]" = (),
) -> "StreamingQuery":
    """Starts a query that appends a stream to a table, every row once. `trigger`: "5 seconds"; None: what is there now,
    and the query ends."""
    table_path(table)

    def put(df: "DataFrame", batch_id: int) -> None:
        write_batch(df, table, batch_id, partition_by)

    writer = stream.writeStream.foreachBatch(put).option("checkpointLocation", str(checkpoint))
    timed = writer.trigger(availableNow=True) if trigger is None else writer.trigger(processingTime=trigger)
    query: StreamingQuery = timed.start()
    return query


def _ddl(path: Path) -> str:
    said = about(path)
    if not said:
        raise MosqPipelineError(f"there is no table in {path}: nothing was written to it yet, or the path is another")
    return ", ".join(f"`{name}` {kind}" for name, kind in said["columns"].items())


def read_table(spark: "SparkSession", table: Path | str) -> "DataFrame":
    """What is in a table now; `batch_id` is its last column."""
    path = table_path(table)
    return spark.read.schema(f"{_ddl(path)}, batch_id bigint").option("basePath", str(path)).parquet(str(path))
