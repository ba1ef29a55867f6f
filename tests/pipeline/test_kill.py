"""Test kills at random moments of `mosq pipeline run --follow`, alone and with its JVM, of `compact` beside it, and of the broker.

Acknowledged messages are in the journal, every record of the journal is in bronze once, for Spark and for other readers, and silver and gold add up
to it.

MOSQ_PIPELINE_KILLS=4 python -m pytest -s tests/pipeline/test_kill.py: number of kills (default 2: each needs a start of Spark).
MOSQ_PIPELINE_SEED=...: the same moments again, as far as a machine repeats itself.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from mosq.journal import Stream
from mosq.pipeline import frames, settings
from mosq.pipeline.duck import Duck
from mosq.pipeline.runs import jobs, progress, tending
from tests.durable.test_restart import Kept
from tests.pipeline.processes import Killed
from tests.streams.journalled import folder, keeping
from tests.streams.test_kill import WINDOW, Sender

KILLS = int(os.environ.get("MOSQ_PIPELINE_KILLS", "2"))
STREAMS = {"all": 2, "events": 1}       # number of shards
MESSAGE, START = 1, 11
NO_NUMBERS = "load/49"                  # the payloads of one topic in ten go to the quarantine
SETTINGS = """
[pipeline]
journal = "{journal}"
trigger = "100 ms"
batch_rows = 2000
master = "local[2]"
[spark]
"spark.sql.shuffle.partitions" = "1"
"spark.local.dir" = "{local}"
"spark.driver.extraJavaOptions" = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
[[silver]]
name = "numbers"
topic = "{no_numbers}"
format = "number"
[[silver]]
name = "texts"
topic = "load/#"
format = "csv"
schema = "said STRING"
"""


class Load(threading.Thread):
    """Publish to a broker, and kill and start the broker on request."""

    def __init__(self, broker: Kept, dice: random.Random) -> None:
        super().__init__(daemon=True)
        self.broker, self.dice = broker, dice
        self.sender = Sender(broker, "load", dice)
        self.kill, self.over = threading.Event(), threading.Event()
        self.kills = 0

    def run(self) -> None:
        self.sender.connect()
        while self.kill.is_set() or not self.over.is_set():
            self.sender.fill()
            for _ in range(self.dice.randrange(1, WINDOW)):
                self.sender.take()
            if self.kill.is_set():
                self.broker.die()
                while self.sender.take():
                    pass
                self.broker.start()
                self.sender.connect()
                self.kills += 1
                self.kill.clear()
            time.sleep(0.03)        # a few hundred messages a second: this test is not about speed
        while self.sender.open:
            self.sender.take()


def wait_for_batches(driver: Killed, found: settings.Settings, more: int) -> None:
    """Wait until so many more batches are done: then the driver is at work."""
    had = progress.after(found)["batch"]
    while progress.after(found)["batch"] < had + more:
        assert driver.alive(), f"the driver has ended by itself: {driver.stderr_text()}"
        time.sleep(0.02)


def orphaned(driver: Killed, found: settings.Settings, dice: random.Random) -> None:
    """Kill the driver only, while its JVM and workers are stopped; they go on beside the next driver, and end."""
    driver.start()
    wait_for_batches(driver, found, 2)
    time.sleep(dice.random())
    pids = driver.orphan()
    driver.start()
    deadline = time.monotonic() + 300
    while "waiting for the end of Spark's JVM" not in driver.stderr_text():
        assert driver.alive() and time.monotonic() < deadline, driver.stderr_text()
        time.sleep(0.02)
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    wait_for_batches(driver, found, 2)
    driver.kill()


def journalled(broker: Kept) -> dict[tuple[str, int, int], Any]:
    """Read every record with the journal's own reader."""
    found = {}
    for name, shards in STREAMS.items():
        stream = Stream(folder(broker, name))
        assert [mark.first_seq for mark in stream.marks()] == [0] * shards
        found |= {(name, shard, record.seq): record for shard in range(shards) for record in stream.read(shard=shard)}
    return found


@pytest.mark.part("spark")
def test_every_record_is_in_the_tables_once(spark: SparkSession, tmp_path: Path) -> None:
    seed = int(os.environ.get("MOSQ_PIPELINE_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    with Kept(keeping("stream all # shards 2", "stream_events true", "max_inflight_messages 0")) as broker:
        (tmp_path / "pipeline.toml").write_text(SETTINGS.format(journal=folder(broker).parent, local=tmp_path / "local", no_numbers=NO_NUMBERS))
        found = settings.load(tmp_path)
        load = Load(broker, random.Random(seed))
        driver = Killed("mosq", "pipeline", "run", "--follow", "-s", found.file)
        compacting = Killed("tests.pipeline.processes", "compacting", found.file)
        load.start()
        try:
            for _ in range(KILLS):
                driver.start()
                compacting.start()
                wait_for_batches(driver, found, 2)
                steps = [load.kill.set, driver.kill, compacting.kill]
                dice.shuffle(steps)
                for step in steps:
                    time.sleep(dice.random())
                    step()
            orphaned(driver, found, dice)
        finally:
            load.over.set()
            load.join()
            driver.close()
            compacting.close()
        assert broker.stop() == 0
        jobs.run(spark, found, once=True, log=lambda line: None)
        there = journalled(broker)
    check_journal(there, load, seed)
    check_tables(spark, found, there, seed)
    assert any("merged" in line for line in tending.compact_all(found, 2))
    check_tables(spark, found, there, seed)


def check_journal(there: dict[tuple[str, int, int], Any], load: Load, seed: int) -> None:
    count = Counter(record.payload for record in there.values() if record.kind == MESSAGE)
    assert {payload for payload in load.sender.done if count[payload] != 1} == set(), f"seed {seed}"
    assert set(count) <= load.sender.sent and set(count.values()) == {1}, f"seed {seed}"
    assert len(load.sender.done) > 100 and load.kills == KILLS
    assert sum(record.kind == START for record in there.values()) == KILLS + 1


def check_tables(spark: SparkSession | None, found: settings.Settings, there: dict[tuple[str, int, int], Any], seed: int) -> None:
    duck = Duck(found)
    with contextlib.closing(duck):

        def asked(query: str) -> list[tuple[Any, ...]]:
            return duck.base.execute(query).fetchall()

        columns = ("stream", "shard", "seq", "kind", "topic", "payload")
        listed = ", ".join(columns)
        by_spark = None if spark is None else [tuple(row) for row in frames.frame(spark, found, "bronze").select(*columns).collect()]
        by_deltalake = [tuple(row.values()) for row in DeltaTable(f"{found.tables}/bronze").to_pyarrow_table(columns=list(columns)).to_pylist()]
        by_duckdb = asked(f"SELECT {listed} FROM bronze")
        for name, rows in (("Spark", by_spark), ("deltalake", by_deltalake), ("DuckDB", by_duckdb)):
            if rows is None:
                continue
            count = Counter(row[:3] for row in rows)
            assert max(count.values()) == 1, f"twice through {name}, seed {seed}: {count.most_common(3)}"
            read = {row[:3]: (row[3], row[4] or "", bytes(row[5] or b"")) for row in rows}
            assert read == {key: (one.kind, one.topic or "", one.payload or b"") for key, one in there.items()}, f"through {name}, seed {seed}"
        messages = {key: one.topic for key, one in there.items() if one.kind == MESSAGE}
        bad = {key for key, topic in messages.items() if topic == NO_NUMBERS}
        key = "stream, shard, seq"
        assert sorted(asked(f"SELECT {key} FROM silver_texts")) == sorted(messages.keys() - bad), f"seed {seed}"
        assert sorted(asked(f"SELECT {key} FROM quarantine")) == sorted(bad), f"seed {seed}"
        assert Counter(dict(asked("SELECT topic, sum(messages) FROM topics GROUP BY topic"))) == Counter(messages.values()), f"seed {seed}"
        for view in ("clients", "prefixes", "latency"):
            assert asked(f"SELECT sum(messages) FROM {view}") == [(len(messages),)], f"{view}, seed {seed}"
        assert asked("SELECT count(*) FROM late") == [(0,)]
    stands = progress.after(found)
    assert stands["rows"]["bronze"] == len(there) and stands["rows"]["silver/texts"] == len(messages) - len(bad), f"seed {seed}"
