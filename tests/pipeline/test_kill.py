"""Driver and writer are killed at random moments, again and again: every record that is in the journal is in the table once, for
Spark and for who is not Spark, and all that was acknowledged is in the journal.

MOSQ_PIPELINE_KILLS=4 python -m pytest tests/pipeline/test_kill.py: as often (1 without it: each takes a start of Spark)."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from pathlib import Path

import duckdb
from pyspark.sql import SparkSession

from mosq.journal import Stream
from mosq.pipeline.tables import GLOB, append, read_table
from tests.pipeline.processes import Killed

KILLS = int(os.environ.get("MOSQ_PIPELINE_KILLS", "1"))


def wait_for_batches(driver: Killed, table: Path, more: int) -> None:
    """Until the driver has written so many more: then it is at work."""
    had = len(list(table.glob("batch_id=*")))
    while len(list(table.glob("batch_id=*"))) < had + more:
        assert driver.alive(), "the driver has ended by itself"
        time.sleep(0.02)


def test_every_record_is_there_once(spark: SparkSession, tmp_path: Path) -> None:
    seed = random.randrange(1 << 30)
    moments = random.Random(seed)
    journal, table, checkpoint, acknowledged = (tmp_path / name for name in ("streams", "table", "checkpoint", "acknowledged"))
    writer = Killed("writer", journal, acknowledged)
    driver = Killed("driver", journal, table, checkpoint)
    try:
        writer.start()
        while not (acknowledged.exists() and acknowledged.stat().st_size):
            assert writer.alive()
            time.sleep(0.02)
        for _ in range(KILLS):
            driver.start()
            wait_for_batches(driver, table, 2)
            time.sleep(moments.random())
            if moments.random() < 0.5:
                writer.kill()
                writer.start()
            time.sleep(moments.random())
            driver.kill()
    finally:
        for each in (writer, driver):
            if each.alive():
                each.kill()
    append(spark.readStream.format("mosq").load(str(journal)), table, checkpoint).awaitTermination()

    stream = Stream(journal / "telemetry")
    there = {(shard, record.seq): record.payload for shard in range(2) for record in stream.read(shard=shard)}
    assert [mark.first_seq for mark in stream.marks()] == [0, 0]
    by_spark = read_table(spark, table).select("shard", "seq", "payload").collect()
    by_others = duckdb.sql(f"select shard, seq, payload from read_parquet('{table}/{GLOB}', hive_partitioning=true)").fetchall()
    for name, found in (("Spark", by_spark), ("DuckDB", by_others)):
        count = Counter((row[0], row[1]) for row in found)
        assert max(count.values()) == 1, f"twice through {name}, seed {seed}: {count.most_common(3)}"
        assert {(row[0], row[1]): bytes(row[2]) for row in found} == there, f"not the same through {name}, seed {seed}"
    assert set(acknowledged.read_text().split("\n")[:-1]) <= {payload.decode() for payload in there.values()}
