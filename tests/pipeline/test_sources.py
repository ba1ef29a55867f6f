"""Test several brokers that write one set of tables: offsets, checks of the settings, and real brokers with streams of equal names."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable

from mosq.journal import Stream
from mosq.pipeline import MosqPipelineError, settings
from mosq.pipeline.duck import Duck
from mosq.pipeline.runs import doctor, first, jobs, progress, status
from mosq.pipeline.source.options import Options
from mosq.pipeline.source.rows import SCHEMA, WITH_NODE
from mosq.pipeline.source.stream import JournalStreamReader
from tests.durable.test_restart import Kept
from tests.pipeline.journals import Journal
from tests.pipeline.kills import Load, wait_for_batches
from tests.pipeline.processes import Killed
from tests.streams.journalled import folder, keeping

ALL = ReadAllAvailable()
SOURCE = '[[source]]\nnode = "{node}"\njournal = "{journal}"\n'
FAST = """
[spark]
"spark.sql.shuffle.partitions" = "1"
"spark.driver.extraJavaOptions" = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""


def load(at: Path, more: str = "", **journals: Path) -> settings.Settings:
    """Return settings with a source for each journal; `more` is a part of [pipeline]."""
    entries = "".join(SOURCE.format(node=node, journal=journal) for node, journal in journals.items())
    (at / "pipeline.toml").write_text(f"[pipeline]\n{more}\n{entries}{FAST}")
    return settings.load(at)


def reader(*nodes: str, at: Path) -> JournalStreamReader:
    """Return a reader of one folder, or of one for each node."""
    if not nodes:
        return JournalStreamReader(Options({"path": str(at)}, batch=False), SCHEMA.names)
    sources = json.dumps({node: {"path": str(at / node)} for node in nodes})
    return JournalStreamReader(Options({"sources": sources}, batch=False), WITH_NODE.names)


def rows(reader: JournalStreamReader, *offsets: Any) -> list[dict[str, Any]]:
    return [row for part in reader.partitions(*offsets) for batch in reader.read(part) for row in batch.to_pylist()]


def test_streams_of_equal_names_have_offsets_of_their_own(tmp_path: Path) -> None:
    one, two = Journal(tmp_path / "n1", "tele", shards=2), Journal(tmp_path / "n2", "tele")
    one.fill(20)
    two.fill(5)
    reading = reader("n1", "n2", at=tmp_path)
    start = reading.initialOffset()
    assert sorted(start["streams"]) == ["n1/tele", "n2/tele"]
    end = reading.latestOffset(start, ALL)
    found = rows(reading, start, end)
    assert Counter((row["node"], row["stream"]) for row in found) == {("n1", "tele"): 20, ("n2", "tele"): 5}
    two.fill(3)
    later = reading.latestOffset(end, ALL)
    assert [(row["node"], int(row["payload"])) for row in rows(reading, end, later)] == [("n2", 5), ("n2", 6), ("n2", 7)]
    one.close()
    two.close()


def test_a_second_source_goes_on_from_the_offsets_of_one(tmp_path: Path) -> None:
    one, two = Journal(tmp_path / "n1", "tele"), Journal(tmp_path / "n2", "tele")
    one.fill(4)
    two.fill(2)
    alone = reader(at=tmp_path / "n1")
    had = alone.latestOffset(alone.initialOffset(), ALL)
    assert list(had["streams"]) == ["tele"]
    both = reader("n1", "n2", at=tmp_path)
    one.fill(1)
    end = both.latestOffset(had, ALL)
    assert sorted((row["node"], int(row["payload"])) for row in rows(both, had, end)) == [("n1", 4), ("n2", 0), ("n2", 1)]
    assert end["streams"]["n2/tele"]["from"] == [0]
    with pytest.raises(MosqPipelineError, match="the broker n2, whose stream n2/tele was read before, is not among the sources"):
        reader("n1", at=tmp_path).latestOffset(end, ALL)
    one.close()
    two.close()


def test_a_gap_of_one_broker_is_a_row_of_its_node(tmp_path: Path) -> None:
    two = Journal(tmp_path / "n2", "tele", segment_bytes=8192, block_bytes=4096)
    two.fill(500, size=100)
    two.close()
    segments = sorted(two.path.glob("*.seg"))
    segments[1].unlink()
    sources = json.dumps({"n2": {"path": str(tmp_path / "n2")}})
    reading = JournalStreamReader(Options({"sources": sources, "failOnDataLoss": "false"}, batch=False), WITH_NODE.names)
    start = reading.initialOffset()
    found = rows(reading, start, reading.latestOffset(start, ALL))
    gaps = [row for row in found if row["kind"] == 10]
    assert len(gaps) == 1 and gaps[0]["node"] == "n2" and {row["node"] for row in found} == {"n2"}


@pytest.mark.parametrize("text", ["[]", "{", "{}", '{"a/b": {"path": "x"}}', '{"a": {"streams": "x"}}', '{"a": 5}'])
def test_wrong_sources_are_refused(text: str) -> None:
    with pytest.raises(MosqPipelineError, match=r"option sources is .*: expected JSON: .*NODE"):
        Options({"sources": text})


def test_sources_and_a_path_are_refused(tmp_path: Path) -> None:
    with pytest.raises(MosqPipelineError, match="no options path and streams"):
        Options({"sources": '{"a": {"path": "x"}}', "path": "y"})


# ---- settings against tables

def test_a_source_may_be_added_and_must_not_vanish(tmp_path: Path) -> None:
    streams = [Journal(tmp_path / name, "tele") for name in ("n1", "n2", "n3")]
    for stream in streams:
        stream.commit()
    one = load(tmp_path, n1=tmp_path / "n1")
    jobs.prepare(one, progress.JOBS)
    both = load(tmp_path, n2=tmp_path / "n2", n1=tmp_path / "n1")
    jobs.prepare(both, progress.JOBS)
    assert [source.node for source in progress.by_age(both)] == ["n1", "n2"]        # bare names in old offsets are of n1
    said = r"the broker n2 was read before, but no \[\[source\]\] has this node: restore the entry"
    for changed in ({"n1": "n1"}, {"n1": "n1", "n3": "n3"}, {"n1": "n1", "other": "n2"}):
        with pytest.raises(MosqPipelineError, match=said):
            jobs.prepare(load(tmp_path, **{node: tmp_path / name for node, name in changed.items()}), progress.JOBS)
    with pytest.raises(MosqPipelineError, match="n3/tele is not the stream that was read before"):
        jobs.prepare(load(tmp_path, n1=tmp_path / "n1", n2=tmp_path / "n3"), progress.JOBS)
    jobs.prepare(load(tmp_path, n1=tmp_path / "n1", n2=tmp_path / "n2", n3=tmp_path / "n3"), progress.JOBS)
    for stream in streams:
        stream.close()


def test_one_folder_under_two_names_is_refused(tmp_path: Path) -> None:
    stream = Journal(tmp_path / "n1", "tele")
    stream.commit()
    stream.close()
    shutil.copytree(tmp_path / "n1", tmp_path / "n2")
    with pytest.raises(MosqPipelineError, match="n1/tele and n2/tele are one stream, or copies of it"):
        jobs.prepare(load(tmp_path, n1=tmp_path / "n1", n2=tmp_path / "n2"), progress.JOBS)


def test_doctor_examines_each_journal(tmp_path: Path) -> None:
    Journal(tmp_path / "n1", "tele").close()
    found = load(tmp_path, n1=tmp_path / "n1", n2=tmp_path / "n2")
    said = {one.what: one for one in doctor.examine(found.file)}
    assert said["journal of n1"].ok and "tele (1 shard" in said["journal of n1"].found
    assert not said["journal of n2"].ok and "expected the streams of the broker n2 there" in said["journal of n2"].found


def test_init_takes_the_node_from_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "mosquitto.conf").write_text(f"persistence true\npersistence_location {tmp_path}/\nstream tele #\nnode_name hall-7\n")
    first.init(str(tmp_path / "new"), str(tmp_path / "mosquitto.conf"), None)
    assert settings.load(tmp_path / "new").sources[0].node == "hall-7"


# ---- real brokers

def journalled(broker: Kept, node: str) -> dict[tuple[str, str, int, int], bytes]:
    found = {}
    for name, shards in (("all", 2), ("events", 1)):
        stream = Stream(folder(broker, name))
        found |= {(node, name, shard, one.seq): one.payload or b"" for shard in range(shards) for one in stream.read(shard=shard)}
    return found


@pytest.mark.part("spark")
def test_two_brokers_at_the_same_time_are_in_the_tables_once(spark: SparkSession, tmp_path: Path) -> None:
    dice = random.Random(7)
    config = keeping("stream all # shards 2", "stream_events true", "max_inflight_messages 0")
    with Kept(config) as a, Kept(config) as b:
        nodes = {"a": a, "b": b}
        more = 'trigger = "100 ms"\nbatch_rows = 2000\nmaster = "local[2]"'
        found = load(tmp_path, more, a=folder(a).parent)
        loads = {node: Load(broker, random.Random(node)) for node, broker in nodes.items()}
        driver = Killed("mosq", "pipeline", "run", "--follow", "-s", found.file)
        for one in loads.values():
            one.start()
        try:
            driver.start()
            wait_for_batches(driver, found, 2)
            driver.kill()
            found = load(tmp_path, more, b=folder(b).parent, a=folder(a).parent)      # added later, and named first
            driver.start()
            wait_for_batches(driver, found, 3)
            time.sleep(dice.random())
            driver.kill()
            loads["b"].kill.set()       # the broker, too
        finally:
            for one in loads.values():
                one.over.set()
                one.join()
            driver.close()
        assert a.stop() == b.stop() == 0
        jobs.run(spark, found, once=True, log=lambda line: None)
        there = journalled(a, "a") | journalled(b, "b")
        behind = {name: one["behind"] for name, one in status.status(found)["streams"].items()}
        for broker in (a, b):
            assert (folder(broker) / "consumers").exists()
    assert behind == {f"{node}/{name}": 0 for node in nodes for name in ("all", "events")}
    with contextlib.closing(Duck(found)) as duck:
        got = duck.base.execute("SELECT node, stream, shard, seq, payload FROM bronze").fetchall()
        assert len(got) == len(there) and {tuple(row[:4]): bytes(row[4] or b"") for row in got} == there
        by_node = dict(duck.base.execute("SELECT node, sum(messages) FROM traffic GROUP BY node").fetchall())
        messages = Counter(key[0] for key in there if key[1] == "all")
        assert by_node == dict(messages) and all(len(one.sender.done) > 10 for one in loads.values())
    for node, one in loads.items():
        count = Counter(payload for key, payload in there.items() if key[0] == node and key[1] == "all")
        assert {payload for payload in one.sender.done if count[payload] != 1} == set()
