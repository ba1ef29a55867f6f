"""Read tables with Spark, without Delta's jars.

`deltalake` reads the log of a table and names the files of its newest version. Spark reads those files; tasks read them
with pyarrow if they are in object storage. So a frame is a snapshot: later commits do not change it. It can be read for
as long as the table keeps replaced files (VACUUM).
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from mosq.pipeline import MosqPipelineError, views
from mosq.pipeline.lake.parts import DATE
from mosq.pipeline.lake.places import Place, absolute, are_made, lost, place_of
from mosq.pipeline.lake.table import Table, plain

if TYPE_CHECKING:
    import datetime
    from collections.abc import Iterable, Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from mosq.pipeline.settings import Settings

GOLD = ("traffic", "latency", "drops", "churn", "late", "devices", "backlog", "fanout", "telemetry")
FILES_DDL = "path string, date date, size bigint"
TASKS_OF_A_CORE = 4
ROWS_AT_ONCE, BYTES_AT_ONCE = 65_536, 32 << 20
GLOB = re.compile(r"([\\*?\[\]{}])")  # Spark takes a path for a pattern


def names(settings: "Settings") -> tuple[str, ...]:
    """Return the names of all tables that these settings may have."""
    silver = (f"silver/{rule.name}" for rule in settings.silver)
    return ("bronze", *silver, "quarantine", *(f"gold/{name}" for name in GOLD), "progress")


def snapshots(settings: "Settings", wanted: "Iterable[str] | None" = None) -> dict[str, Table]:
    """Return the existing tables, each at its newest version."""
    place = place_of(settings)
    found = {name: Table.open(place, name) for name in (names(settings) if wanted is None else wanted)}
    return {name: table for name, table in found.items() if table is not None}


def missing(settings: "Settings", name: str = "bronze") -> MosqPipelineError:
    """Return the error for a table that does not exist."""
    if are_made(settings) and Table.open(place_of(settings), "bronze") is None:
        return lost(settings, "bronze")
    return MosqPipelineError(
        f"there is no table in {place_of(settings).child(name).uri} yet: `mosq pipeline run --once` creates it"
    )


def frame(spark: "SparkSession", settings: "Settings", name: str) -> "DataFrame":
    """Return the rows of a table: bronze, quarantine, silver/NAME, gold/NAME, progress."""
    table = Table.open(place_of(settings), name)
    if table is None:
        raise missing(settings, name)
    return of_snapshot(spark, place_of(settings).child(name), table)


def of_snapshot(
    spark: "SparkSession", place: "Place", table: Table, date: "datetime.date | None" = None
) -> "DataFrame":
    """Return the rows of an open table, which lies in `place`; with a date only those of its files."""
    from pyspark.sql.pandas.types import from_arrow_schema

    schema = from_arrow_schema(table.schema)
    adds = [add for add in table.adds().to_pylist() if date is None or add[f"partition.{DATE}"] == date]
    if not adds:
        return spark.createDataFrame([], schema)
    if not place.is_local:
        # Spark would need a jar for each kind of storage, and access options of its own
        rows = [(add["path"], add.get(f"partition.{DATE}"), add["size_bytes"]) for add in adds]
        tasks = min(len(rows), TASKS_OF_A_CORE * spark.sparkContext.defaultParallelism)
        return spark.createDataFrame(rows, FILES_DDL).repartition(tasks).mapInArrow(Files(place, table.schema), schema)
    files = [f"{place.uri}/{add['path']}" for add in adds]
    base = f"file:{place.path}" if place.is_local else place.spark
    # only the paths are patterns for Spark, basePath is not
    paths = (_escaped(base + file.removeprefix(place.uri)) for file in files)
    rows = spark.read.schema(schema).option("basePath", base).parquet(*paths)
    return rows.select(*_quoted(table.schema.names))


@dataclass(frozen=True)
class Files:
    """Read files of a table in a task, with the access of the place; a batch of the input has FILES_DDL."""

    place: "Place"
    schema: pa.Schema

    def __call__(self, batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        from pyarrow import parquet

        files, base = self.place.filesystem()
        for batch in batches:
            for one in batch.to_pylist():
                path = f"{base}/{one['path']}" if base else one["path"]
                with plain(self.place.uri), files.open_input_file(path) as opened:
                    found = parquet.ParquetFile(opened)
                    a_row = max(1, one["size"] // max(1, found.metadata.num_rows))
                    most = max(1, min(ROWS_AT_ONCE, BYTES_AT_ONCE // a_row))
                    for rows in found.iter_batches(most):
                        yield self._whole(rows, one["date"])

    def _whole(self, rows: pa.RecordBatch, date: "datetime.date | None") -> pa.RecordBatch:
        """Return rows with all columns of the table: those that the file lacks are null."""
        columns = [
            pa.repeat(pa.scalar(date, field.type), rows.num_rows)
            if field.name == DATE and DATE not in rows.schema.names
            else rows[field.name].cast(field.type)
            if field.name in rows.schema.names
            else pa.nulls(rows.num_rows, field.type)
            for field in self.schema
        ]
        return pa.record_batch(columns, schema=self.schema)


def of_path(spark: "SparkSession", path: str) -> "DataFrame | None":
    """Return the rows of the table in a folder or at a URI, or None if there is no table."""
    place = Place(absolute(path, Path.cwd()))
    folder, _, name = place.uri.rstrip("/").rpartition("/")
    table = Table.open(Place(folder), name) if name else None
    return None if table is None else of_snapshot(spark, place, table)


def _escaped(path: str) -> str:
    return GLOB.sub(r"\\\1", path)


def _quoted(names: "Iterable[str]") -> list[str]:
    return [f"`{name.replace('`', '``')}`" for name in names]


def view(spark: "SparkSession", settings: "Settings", name: str) -> "DataFrame":
    """Return a view (views.VIEWS) over the newest versions of its tables."""
    source = views.source(name)
    frame(spark, settings, source).createOrReplaceTempView(views.flat(source))
    return spark.sql(views.sql(name, views.SPARK))


def register(spark: "SparkSession", settings: "Settings") -> list[str]:
    """Make temporary views of all tables and views in a session, and return their names.

    They show the versions of this moment: register them again to see later rows.
    """
    found = snapshots(settings)
    for name, table in found.items():
        rows = of_snapshot(spark, place_of(settings).child(name), table)
        rows.createOrReplaceTempView(f"`{views.flat(name)}`")
    there = views.possible(found)
    for name in there:
        spark.sql(views.sql(name, views.SPARK)).createOrReplaceTempView(name)
    more = of_rules(settings, found)
    for name, sql in more.items():
        spark.sql(sql.replace(views.QUOTE, "`")).createOrReplaceTempView(f"`{name}`")
    return [*map(views.flat, found), *there, *more]


def of_rules(settings: "Settings", found: "Mapping[str, Table]") -> dict[str, str]:
    """Return the views of the rules with format sparkplug, and their SQL."""
    names = [rule.name for rule in settings.silver if rule.format == "sparkplug"]
    return views.of_rules({name: table.schema.names for name, table in found.items()}, names)
