"""`spark.readStream.format("mosq")`, and tables that it is appended to."""

from __future__ import annotations

from pathlib import Path

import duckdb
from pyspark.sql import SparkSession

from mosq.pipeline.tables import GLOB, append, read_table
from tests.pipeline.journals import Journal


def numbers(table: Path) -> list[int]:
    """Payloads as a reader that is not Spark sees them."""
    rows = duckdb.sql(f"select payload::varchar from read_parquet('{table}/{GLOB}', hive_partitioning=true)").fetchall()
    return sorted(int(row[0]) for row in rows)


def run(spark: SparkSession, journal: Path, tmp_path: Path, **options: str) -> int:
    """Takes what is there -> how many batches have been run."""
    stream = spark.readStream.format("mosq").options(**options).load(str(journal))
    query = append(stream, tmp_path / "table", tmp_path / "checkpoint")
    query.awaitTermination()
    return len([progress for progress in query.recentProgress if progress["numInputRows"]])


def test_what_comes_is_appended_once(spark: SparkSession, tmp_path: Path) -> None:
    journal = Journal(tmp_path / "streams", shards=2)
    journal.fill(300)
    assert run(spark, tmp_path / "streams", tmp_path) == 1
    assert numbers(tmp_path / "table") == list(range(300))
    journal.fill(200)
    assert run(spark, tmp_path / "streams", tmp_path, maxRecordsPerTrigger="80") == 3
    assert numbers(tmp_path / "table") == list(range(500))
    assert run(spark, tmp_path / "streams", tmp_path) == 0
    assert read_table(spark, tmp_path / "table").count() == 500
