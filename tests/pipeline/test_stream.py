"""Test `spark.readStream.format("mosq")`, and the tables that it is appended to."""

from __future__ import annotations

import shutil
from pathlib import Path

import duckdb
import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import SparkSession

from mosq.journal import Stream
from mosq.pipeline.tables import GLOB, append, read_table
from tests.pipeline.journals import Journal


def numbers(table: Path) -> list[int]:
    """Return the payloads as a reader other than Spark sees them."""
    rows = duckdb.sql(f"select payload::varchar from read_parquet('{table}/{GLOB}', hive_partitioning=true)").fetchall()
    return sorted(int(row[0]) for row in rows)


def run(spark: SparkSession, journal: Path, tmp_path: Path, **options: str) -> int:
    """Read the current records; return how many batches ran."""
    stream = spark.readStream.format("mosq").options(**options).load(str(journal))
    query = append(stream, tmp_path / "table", tmp_path / "checkpoint")
    query.awaitTermination()
    return len([progress for progress in query.recentProgress if progress["numInputRows"]])


def uncommit(checkpoint: Path) -> int:
    """Remove the last commit, as if Spark was killed before it wrote it; return its number."""
    commits = checkpoint / "commits"
    last = max(int(path.name) for path in commits.glob("[0-9]*"))
    (commits / str(last)).unlink()
    (commits / f".{last}.crc").unlink()
    return last


def test_records_are_appended_once(spark: SparkSession, tmp_path: Path) -> None:
    journal = Journal(tmp_path / "streams", shards=2)
    journal.fill(300)
    assert run(spark, tmp_path / "streams", tmp_path) == 1
    assert numbers(tmp_path / "table") == list(range(300))
    journal.fill(200)
    assert run(spark, tmp_path / "streams", tmp_path, maxRecordsPerTrigger="80", consumer="spark") == 3
    assert numbers(tmp_path / "table") == list(range(500))
    marks = Stream(journal.path).marks()
    assert Stream(journal.path).consumer("spark") == [mark.seq for mark in marks]       # not one batch late

    # killed before Spark wrote that the last batch is done, and before it wrote the batch at all
    last = uncommit(tmp_path / "checkpoint")
    assert run(spark, tmp_path / "streams", tmp_path) == 0      # it is not even read
    assert numbers(tmp_path / "table") == list(range(500))
    assert uncommit(tmp_path / "checkpoint") == last
    shutil.rmtree(tmp_path / f"table/batch_id={last}")
    assert run(spark, tmp_path / "streams", tmp_path) == 1
    assert numbers(tmp_path / "table") == list(range(500))
    assert read_table(spark, tmp_path / "table").count() == 500


def test_errors_are_reported_through_spark(spark: SparkSession, tmp_path: Path) -> None:
    journal = Journal(tmp_path / "streams", segment_bytes=8192, block_bytes=4096)
    journal.fill(100, size=500)
    (base, _), (end, _) = Stream(journal.path).sizes()[1:3]
    next(journal.path.glob(f"*-{base:020d}*.seg")).unlink()
    with pytest.raises(StreamingQueryException, match=rf"stream telemetry in .*shard 0: {base} to {end - 1} are missing. Restore the"):
        run(spark, tmp_path / "streams", tmp_path)
    assert not list((tmp_path / "table").glob(GLOB))
    assert run(spark, tmp_path / "streams", tmp_path, failOnDataLoss="false") == 1
    assert read_table(spark, tmp_path / "table").filter("kind = 10").count() == 1
    shutil.rmtree(tmp_path / "checkpoint")
    with pytest.raises(StreamingQueryException, match=r"belongs to the query .* Give the query the checkpoint that it had"):
        run(spark, tmp_path / "streams", tmp_path, failOnDataLoss="false")
    reader = spark.read.format("mosq").option("stream", "a")
    with pytest.raises(AnalysisException, match="has no option stream; expected one of path, streams"):
        reader.load(str(tmp_path / "streams"))
