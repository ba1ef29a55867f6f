"""Test `spark.readStream.format("mosq")` with the file sink of Spark, which writes each batch once."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import SparkSession

from mosq.journal import Stream
from tests.pipeline.journals import Journal


def numbers(spark: SparkSession, table: Path) -> list[int]:
    return sorted(int(row.payload) for row in spark.read.parquet(str(table)).collect())


def run(spark: SparkSession, journal: Path, tmp_path: Path, **options: str) -> int:
    """Read the current records; return how many batches ran."""
    stream = spark.readStream.format("mosq").options(**options).load(str(journal))
    writer = stream.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(availableNow=True).start(str(tmp_path / "table"))
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
    assert numbers(spark, tmp_path / "table") == list(range(300))
    journal.fill(200)
    assert run(spark, tmp_path / "streams", tmp_path, maxRecordsPerTrigger="80", consumer="spark") == 3
    assert numbers(spark, tmp_path / "table") == list(range(500))
    marks = Stream(journal.path).marks()
    assert Stream(journal.path).consumer("spark") == [mark.seq for mark in marks]       # not one batch late

    # killed before Spark wrote that the last batch is done: the sink has the batch already
    uncommit(tmp_path / "checkpoint")
    assert run(spark, tmp_path / "streams", tmp_path) == 0      # it is not even read
    assert numbers(spark, tmp_path / "table") == list(range(500))


def test_errors_are_reported_through_spark(spark: SparkSession, tmp_path: Path) -> None:
    journal = Journal(tmp_path / "streams", segment_bytes=8192, block_bytes=4096)
    journal.fill(100, size=500)
    (base, _), (end, _) = Stream(journal.path).sizes()[1:3]
    next(journal.path.glob(f"*-{base:020d}*.seg")).unlink()
    with pytest.raises(StreamingQueryException, match=rf"stream telemetry in .*shard 0: {base} to {end - 1} are missing. Restore the"):
        run(spark, tmp_path / "streams", tmp_path)
    assert not list((tmp_path / "table").glob("*.parquet"))
    assert run(spark, tmp_path / "streams", tmp_path, failOnDataLoss="false") == 1
    assert spark.read.parquet(str(tmp_path / "table")).filter("kind = 10").count() == 1
    reader = spark.read.format("mosq").option("stream", "a")
    with pytest.raises(AnalysisException, match="has no option stream; expected one of path, sources, streams"):
        reader.load(str(tmp_path / "streams"))
