"""Test the source and the pipeline with the streams of a broker that has several workers."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable

from mosq.journal import Stream
from mosq.pipeline.runs import jobs, status
from mosq.pipeline.source.options import Options
from mosq.pipeline.source.rows import SCHEMA
from mosq.pipeline.source.stream import JournalStreamReader
from tests.pipeline.journals import Journal
from tests.pipeline.test_sources import load
from tests.workers.case import Workers, until
from tests.workers.test_streams import STREAM, folder, payloads, publish, records

ALL = ReadAllAvailable()


def rows(reading: JournalStreamReader, *offsets: Any) -> list[dict[str, Any]]:
    return [row for part in reading.partitions(*offsets) for batch in reading.read(part) for row in batch.to_pylist()]


def test_offsets_go_on_when_a_part_comes(tmp_path: Path) -> None:
    one = Journal(tmp_path, "tele", shards=2)
    one.fill(10)
    reading = JournalStreamReader(Options({"path": str(tmp_path), "consumer": "spark"}, batch=False), SCHEMA.names)
    start = reading.initialOffset()
    end = reading.latestOffset(start, ALL)
    assert len(rows(reading, start, end)) == 10
    stream_id = end["streams"]["tele"]["id"]
    two = Journal(tmp_path / "tele", "worker.2")        # as when workers begin; its id is another one here
    two.fill(4)
    later = reading.latestOffset(end, ALL)
    found = rows(reading, end, later)
    assert Counter((row["stream"], row["shard"]) for row in found) == {("tele", 128): 4}
    assert len(later["streams"]["tele"]["next"]) == 129 and stream_id
    one.fill(5)
    last = reading.latestOffset(later, ALL)
    assert sum(row["shard"] < 64 for row in rows(reading, later, last)) == 5
    assert reading.latestOffset(last, ALL) == last
    assert Stream(tmp_path / "tele").consumer("spark") == last["streams"]["tele"]["next"]
    one.close()
    two.close()


def test_spark_reads_the_shards_of_all_workers_once(spark: SparkSession, tmp_path: Path) -> None:
    with Workers(2, STREAM) as broker:
        sent = 0

        def send(n: int) -> None:
            nonlocal sent
            for number in (1, 2):
                client = broker.connect(names[number])
                for _ in range(n):
                    sent += 1
                    publish(client, f"a/{sent % 9}", b"%d" % sent, 1, sent)
                client.close()

        names = {number: broker.id_on(number) for number in (1, 2)}
        send(30)
        records(broker, sent)
        found = spark.read.format("mosq").load(str(folder(broker).parent)).collect()
        assert sorted(int(row["payload"]) for row in found) == list(range(1, sent + 1))
        assert {row["shard"] for row in found} == {64, 65, 128, 129} and {row["stream"] for row in found} == {"all"}
        settings = load(tmp_path, a=folder(broker).parent)
        jobs.run(spark, settings, once=True, log=lambda line: None)
        pid = broker.kill(2)
        until(lambda: broker.pids().get(2, pid) != pid, broker.log)
        send(20)
        there = records(broker, sent)
        jobs.run(spark, settings, once=True, log=lambda line: None)
        assert {name: one["behind"] for name, one in status.status(settings)["streams"].items()} == {"a/all": 0}
        assert payloads(there) == sorted(b"%d" % i for i in range(1, sent + 1))
    from contextlib import closing

    from mosq.pipeline.duck import Duck

    with closing(Duck(settings)) as duck:
        got = duck.base.execute("SELECT shard, seq, payload FROM bronze").fetchall()
    assert sorted((shard, seq, bytes(payload)) for shard, seq, payload in got) == sorted(
        (shard, record.seq, record.payload) for shard, one in there.items() for record in one)
