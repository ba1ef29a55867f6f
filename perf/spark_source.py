"""Measure how fast Spark reads a journal stream: into nothing, and into Parquet.

The decoder alone, and a Python source that returns the same batch repeatedly, are measured in the same run. On a shared
machine wall time means little: the CPU time of all processes counts, and the rate that two otherwise idle cores would
reach.

    python -m perf.spark_source [rows in millions] [directory]
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from cext.testing.journal_bench import run
from mosq.pipeline.session import spark_session
from mosq.pipeline.source.rows import DDL, read_range
from perf.lock import bench_lock
from perf.spark_cpu import cpu_s

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

CORES = 2
SHARDS = 4
PAYLOAD = 64
REPEAT = 2
FOUR = "seq bigint, time timestamp, topic string, payload binary"


class Again(DataSource):
    """Return a stream's first batch, as often as rows are wanted: the upper bound of a Python source."""

    @classmethod
    def name(cls) -> str:
        return "again"

    def schema(self) -> str:
        return DDL

    def reader(self, schema: Any) -> AgainReader:
        return AgainReader(self.options["path"], int(self.options["rows"]))


class AgainReader(DataSourceReader):
    def __init__(self, path: str, rows: int) -> None:
        self.path = path
        self.rows = rows

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(self.rows // 8)] * 8

    def read(self, partition: InputPartition) -> Iterator[Any]:
        batch = next(read_range("bench", Path(self.path), 0, 0, self.rows // SHARDS))
        for _ in range(partition.value // batch.num_rows):
            yield batch


def decode(path: Path, rows: int) -> None:
    """Decode all rows in this process, on one core."""
    for shard in range(SHARDS):
        for _ in read_range("bench", path, shard, 0, rows // SHARDS):
            pass


def streamed(spark: SparkSession, path: Path, folder: Path, into_table: bool) -> None:
    """Run a streaming query over all rows, into a table or into nothing."""
    stream = spark.readStream.format("mosq").option("maxRecordsPerTrigger", "2m").load(str(path))
    where = Path(tempfile.mkdtemp(dir=folder))
    if into_table:
        files = stream.writeStream.format("parquet").option("checkpointLocation", str(where / "checkpoint"))
        files.trigger(availableNow=True).start(str(where / "table")).awaitTermination()
    else:
        writer = stream.writeStream.format("noop").option("checkpointLocation", str(where / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()


def measure(rows: int, run_once: Callable[[], object]) -> tuple[float, float]:
    """Return rows per second, and rows per second of CPU time, as medians; the first run is for the JVM's compiler."""
    took, used = [], []
    for _ in range(REPEAT + 1):
        cpu, start = cpu_s(os.getpid()), time.monotonic()
        run_once()
        took.append(time.monotonic() - start)
        used.append(cpu_s(os.getpid()) - cpu)
    return rows / statistics.median(took[1:]), rows / statistics.median(used[1:])


def table(rows: int, folder: Path) -> None:
    """Measure everything and print the table."""
    path = folder / "bench"
    run(os.fsencode(path), rows, PAYLOAD, 500, SHARDS)
    spark = spark_session("perf", master=f"local[{CORES}]", conf={"spark.driver.memory": "2g"})
    spark.dataSource.register(Again)

    def noop(df: DataFrame) -> None:
        df.write.format("noop").mode("overwrite").save()

    def parquet(df: DataFrame) -> None:
        df.write.parquet(str(Path(tempfile.mkdtemp(dir=folder)) / "out"))

    batch = spark.read.format("mosq").load(str(path))
    again = spark.read.format("again").option("rows", str(rows)).load(str(path))
    floor = measure(rows, lambda: noop(again))
    print("| | rows/s now | ns of CPU per row | rows/s of two free cores | to the first line |\n|---|---|---|---|---|")
    for name, run_once in (
        ("a Python source that returns the same batch repeatedly, into nothing", None),
        ("the decoder alone, one core", lambda: decode(path, rows)),
        ("journal, batch, into nothing", lambda: noop(batch)),
        ("the same, 4 of 15 columns", lambda: noop(spark.read.format("mosq").schema(FOUR).load(str(path)))),
        ("journal, batch, into Parquet", lambda: parquet(batch)),
        ("spark.range into Parquet, as many rows of one number", lambda: parquet(spark.range(rows).toDF("id"))),
        ("journal, stream, into nothing", lambda: streamed(spark, path, folder, False)),
        ("journal, stream, into Parquet files", lambda: streamed(spark, path, folder, True)),
    ):
        speed, of_cpu = measure(rows, run_once) if run_once is not None else floor
        cells = f"{speed:,.0f} | {1e9 / of_cpu:,.0f} | {CORES * of_cpu:,.0f} | {of_cpu / floor[1]:.2f}"
        print(f"| {name} | {cells} |", flush=True)
    spark.stop()


def main() -> None:
    rows = int(float(sys.argv[1]) * 1e6) if len(sys.argv) > 1 else 4_000_000
    with bench_lock(), tempfile.TemporaryDirectory(dir=sys.argv[2] if len(sys.argv) > 2 else None) as folder:
        table(rows, Path(folder))


if __name__ == "__main__":
    main()
