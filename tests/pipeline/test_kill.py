"""The driver and the broker are killed at random moments, again and again: every record that is in the journal is in the table
once, for Spark and for who is not Spark, and all that was acknowledged is in the journal.

MOSQ_PIPELINE_KILLS=4 python -m pytest tests/pipeline/test_kill.py: as often (1 without it: each takes a start of Spark)."""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from pathlib import Path

import duckdb
from pyspark.sql import SparkSession

from mosq.journal import Stream
from mosq.pipeline.tables import GLOB, append, read_table
from tests.durable.test_restart import Kept
from tests.pipeline.processes import Killed
from tests.streams.journalled import folder, keeping
from tests.streams.test_kill import WINDOW, Sender

KILLS = int(os.environ.get("MOSQ_PIPELINE_KILLS", "1"))


class Load(threading.Thread):
    """Publishes to a broker, which it kills and starts again when it is told to."""

    def __init__(self, broker: Kept, dice: random.Random) -> None:
        super().__init__(daemon=True)
        self.broker, self.dice = broker, dice
        self.sender = Sender(broker, "load", dice)
        self.kill, self.over = threading.Event(), threading.Event()

    def run(self) -> None:
        self.sender.connect()
        while not self.over.is_set():
            self.sender.fill()
            for _ in range(self.dice.randrange(1, WINDOW)):
                self.sender.take()
            if self.kill.is_set():
                self.broker.die()
                while self.sender.take():
                    pass
                self.broker.start()
                self.sender.connect()
                self.kill.clear()
            time.sleep(0.03)        # some hundred messages a second: this is not about speed
        while self.sender.open:
            self.sender.take()


def wait_for_batches(driver: Killed, table: Path, more: int) -> None:
    """Until the driver has written so many more: then it is at work."""
    had = len(list(table.glob("batch_id=*")))
    while len(list(table.glob("batch_id=*"))) < had + more:
        assert driver.alive(), "the driver has ended by itself"
        time.sleep(0.02)


def test_every_record_is_there_once(spark: SparkSession, tmp_path: Path) -> None:
    seed = random.randrange(1 << 30)
    dice = random.Random(seed)
    table, checkpoint = tmp_path / "table", tmp_path / "checkpoint"
    with Kept(keeping("stream all # shards 2", "max_inflight_messages 0")) as broker:
        journal = folder(broker).parent
        load = Load(broker, random.Random(seed))
        driver = Killed("driver", journal, table, checkpoint)
        load.start()
        try:
            for _ in range(KILLS):
                driver.start()
                wait_for_batches(driver, table, 2)
                time.sleep(dice.random())
                load.kill.set()
                time.sleep(dice.random())
                driver.kill()
        finally:
            load.over.set()
            load.join()
            if driver.alive():
                driver.kill()
        assert broker.stop() == 0
        append(spark.readStream.format("mosq").load(str(journal)), table, checkpoint).awaitTermination()

        stream = Stream(folder(broker))
        there = {(shard, record.seq): record.payload for shard in range(2) for record in stream.read(shard=shard)}
        assert [mark.first_seq for mark in stream.marks()] == [0, 0]
    by_spark = read_table(spark, table).select("shard", "seq", "payload").collect()
    by_others = duckdb.sql(f"select shard, seq, payload from read_parquet('{table}/{GLOB}', hive_partitioning=true)").fetchall()
    for name, found in (("Spark", by_spark), ("DuckDB", by_others)):
        count = Counter((row[0], row[1]) for row in found)
        assert max(count.values()) == 1, f"twice through {name}, seed {seed}: {count.most_common(3)}"
        assert {(row[0], row[1]): bytes(row[2]) for row in found} == there, f"not the same through {name}, seed {seed}"
    count = Counter(there.values())
    assert {payload for payload in load.sender.done if count[payload] != 1} == set(), f"seed {seed}"
    assert len(load.sender.done) > 100
