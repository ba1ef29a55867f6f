"""Test `mosq pipeline match` against an oracle without the broker's index: a join in SQL over levels."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mosq._core import Column, Matcher
from mosq.pipeline import MosqPipelineError, matching
from mosq.pipeline.matching_files import bad_topics, column, read_filters, read_topics
from mosq.pipeline.matching import BAD, DELIVERIES, TOPICS, UNMATCHED, Matching
from tests.harness.broker import Broker
from tests.harness.packets import Connack, Connect, Suback, Subscribe
from tests.harness.wire import Wire

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEVELS = ["a", "b", "c", "", "é", "$x"]
# every level of the filter matches: `#` all following levels and the parent, `+` one; `$` at the front only itself
ORACLE = r"""
    select topic, filter from topics join filters on
      (left(topic, 1) <> '$' or left(body, 1) = '$')
      and topic rlike concat('^', replace(replace(replace(replace(body, '$', '\\$'), '/#', '#'), '+', '[^/]*'), '#',
                             case when body = '#' then '.*' else '(/.*)?' end), '$')"""


def some_topics(chance: random.Random, n: int) -> list[str]:
    found = {"/".join(chance.choice(LEVELS) for _ in range(chance.randint(1, 5))) for _ in range(n)} | {"$SYS/a", "/", "//", "$x", "a/"}
    return sorted(found - {""})


def some_filters(chance: random.Random, n: int) -> list[str]:
    found = {"#", "+", "/#", "+/#", "$SYS/#", "$x/+", "/", "//", "+/+", "$share/g/a/#", "$share/g/#", "$share/h/+", "$share/g/$SYS/a"}
    for _ in range(n):
        levels = [chance.choice([*LEVELS, "+", "+"]) for _ in range(chance.randint(1, 5))]
        if chance.random() < 0.3:
            levels.append("#")
        found.add("/".join(levels))
    return sorted(found - {""})


def frame(spark: SparkSession, topics: list[str]):
    return spark.createDataFrame(pa.table({"topic": topics}))


def test_pairs_equal_those_of_a_join(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(7)
    topics, filters = some_topics(chance, 400), some_filters(chance, 300)
    frame(spark, topics).createOrReplaceTempView("topics")
    spark.createDataFrame(pa.table({"filter": filters})).selectExpr(
        "filter", "case when filter like '$share/%' then regexp_replace(filter, '^.share/[^/]*/', '') else filter end as body"
    ).createOrReplaceTempView("filters")
    expected = {(row.topic, row.filter) for row in spark.sql(ORACLE).collect()}
    match = Matching(spark, pa.table({"filter": filters}))
    found = match.pairs(frame(spark, topics)).collect()
    assert {(row.topic, row.filter) for row in found} == expected and len(found) == len(expected) > 1500
    assert {row.shared for row in found if row.filter.startswith("$share/")} == {True}
    # the counts are those of the pairs
    counts = {row.topic: row.deliveries for row in match.per_topic(frame(spark, topics)).collect()}
    assert counts == {topic: sum(one == topic for one, _ in expected) for topic in topics}
    summed = match.sums(frame(spark, topics)).cache()
    told = {row.filter: row.topics for row in match.per_filter(summed).collect()}
    assert told == {text: sum(one == text for _, one in expected) for text in filters}
    whole = {row.id: row.n for row in summed.where("id < 0").collect()}
    assert whole == {TOPICS: len(topics), DELIVERIES: len(expected), UNMATCHED: sum(not n for n in counts.values()), BAD: 0}


def test_small_chunks_give_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(8)
    index = matching.Indexed(pa.table({"filter": some_filters(chance, 200)}))
    batch = pa.record_batch({"topic": some_topics(chance, 100)})
    whole = pa.Table.from_batches(matching.pairs(iter([batch]), index, False, None))
    monkeypatch.setattr(matching, "MOST", 3)
    small = list(matching.pairs(iter([batch.slice(0, 40), batch.slice(40)]), index, False, None))
    assert max(len(one) for one in small) <= 3
    assert pa.Table.from_batches(small).to_pylist() == whole.to_pylist()


def test_receivers_of_topics(spark: SparkSession) -> None:
    rows = pa.table({"filter": ["a/#", "a/#", "a/+", "$share/g/a/+", "$share/g/a/+", "b"],
                     "client_id": ["ann", "bob", "ann", "cid", "dan", "bob"]})
    match = Matching(spark, rows)
    topics = frame(spark, ["a", "a/1", "c"])
    found = {(row.topic, row.client_id, row.filter, row.shared) for row in match.pairs(topics).collect()}
    assert found == {("a", "ann", "a/#", False), ("a", "bob", "a/#", False), ("a/1", "ann", "a/#", False), ("a/1", "bob", "a/#", False),
                     ("a/1", "ann", "a/+", False), ("a/1", "cid", "$share/g/a/+", True), ("a/1", "dan", "$share/g/a/+", True)}
    # a group receives a message once
    assert {row.topic: row.deliveries for row in match.per_topic(topics).collect()} == {"a": 2, "a/1": 4, "c": 0}
    told = {row.client_id: (row.filters, row.topics, row.shared) for row in match.per_client(match.sums(topics)).collect()}
    assert told == {"ann": (2, 3, 0), "bob": (2, 2, 0), "cid": (1, 0, 1), "dan": (1, 0, 1)}


def test_bad_input_is_reported_with_its_line(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "filters.txt").write_bytes(b"a/+\r\n\na+\nb/#/c\n\xff\xfe\n#\na/+\n" + b"x\x01y\n")
    read = read_filters(spark, str(tmp_path / "filters.txt"), False)
    assert sorted(read.rows["filter"].to_pylist()) == ["#", "a/+"]
    assert [(line, why) for line, _, why in read.bad.first] == [
        (3, "not a valid filter"), (4, "not a valid filter"), (5, "not UTF-8 without control characters"), (8, "not UTF-8 without control characters")]
    assert next(iter(read.bad.lines())) == f"{tmp_path / 'filters.txt'}:3: 'a+' is not a valid filter" and read.bad.count == 4
    # a file of several blocks, with bad lines in each
    lines = [b"site/%d" % i for i in range(30_000)]
    for at in (0, 9_999, 29_999):
        lines[at] = b"a/#"
    lines[20_000] = b""
    lines[12_345] = b"\xc3\x28"
    (tmp_path / "topics.txt").write_bytes(b"\n".join(lines) + b"\n")
    try:
        spark.conf.set("spark.sql.files.maxPartitionBytes", 50_000)
        topics = read_topics(spark, str(tmp_path / "topics.txt"))
        assert topics.count() == 29_999
        sums = {row.id: row.n for row in Matching(spark, read.rows).sums(topics).where("id < 0").collect()}
        assert sums == {TOPICS: 29_999, DELIVERIES: 29_995, UNMATCHED: 0, BAD: 4}
        bad = bad_topics(spark, str(tmp_path / "topics.txt"))
    finally:
        spark.conf.unset("spark.sql.files.maxPartitionBytes")
    assert bad.count == 4 and [(line, text) for line, text, _ in bad.first] == [(1, "a/#"), (10_000, "a/#"), (12_346, "\ufffd("), (30_000, "a/#")]


@pytest.mark.parametrize("kind", ["csv", "parquet", "txt"])
def test_files_of_clients(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    path, rows = tmp_path / f"clients.{kind}", {"client_id": ["ann", "bob", "ann", "ann"], "filter": ["a/#", 'b,"c"', "a/#", "+x"]}
    if kind == "parquet":
        pq.write_table(pa.table(rows), path)
    elif kind == "csv":
        path.write_text('client_id,filter\nann,a/#\nbob,"b,""c"""\nann,a/#\nann,+x\n')
    else:
        path.write_text("".join(f"{client}\t{text}\n" for client, text in zip(rows["client_id"], rows["filter"], strict=True)))
    read = read_filters(spark, str(path), True)
    assert sorted(map(tuple, (row.values() for row in read.rows.select(["client_id", "filter"]).to_pylist()))) == [("ann", "a/#"), ("bob", 'b,"c"')]
    assert [(line, text) for line, text, _ in read.bad.first] == [(4, "+x")]


@pytest.mark.parametrize(("name", "text", "said"), [
    ("none.txt", None, "No such file"), ("x.csv", "topic\na\n", "expected a column 'filter'; its columns are topic"),
    ("x.parquet", "no parquet", "cannot read"), ("x.txt", "ann a/#\n", "x.txt:1: expected a client id, a tab, and a filter")])
def test_invalid_files(spark: SparkSession, tmp_path: Path, name: str, text: str | None, said: str) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(MosqPipelineError, match=said):
        read_filters(spark, str(tmp_path / name), True)


def test_filters_of_a_running_broker(spark: SparkSession) -> None:
    with Broker("enable_control_api true\ncontrol_loopback true\n") as broker:
        wires = [Wire(broker.port) for _ in range(3)]
        for i, wire in enumerate(wires):
            wire.send(Connect(f"c{i}"), *([Subscribe(1, tuple((f"a/{n}/+", 0) for n in range(1500 if i else 1)))] if i < 2 else []))
            assert [type(wire.read_packet()) for _ in range(2 if i < 2 else 1)] == [Connack, Suback][:2 if i < 2 else 1]
        rows = read_filters(spark, f"mqtt://127.0.0.1:{broker.port}", True).rows
        assert sorted(zip(rows["client_id"].to_pylist(), rows["filter"].to_pylist(), strict=True)) == [("c0", "a/0/+"), *sorted(
            ("c1", f"a/{n}/+") for n in range(1500))]
        assert len(read_filters(spark, f"mqtt://127.0.0.1:{broker.port}", False).rows) == 1500
        for wire in wires:
            wire.close()
    with pytest.raises(MosqPipelineError, match="Is there a broker at"):
        read_filters(spark, f"mqtt://ann:secret@127.0.0.1:{broker.port}", False)


def test_hostile_columns_are_refused() -> None:
    for offsets, text, rows in (([0, 5], b"abc", 1), ([0, -1], b"abc", 1), ([2, 1], b"abc", 1), ([0, 1], b"abc", 2), ([-1, 1], b"abc", 1)):
        with pytest.raises(ValueError):
            Column(np.array(offsets, np.int32).tobytes(), text, 0, rows)
    index = Matcher(column(pa.array(["a"])))
    with pytest.raises(ValueError, match="fewer places"):
        index.count(column(pa.array(["a"])), bytearray(7))
    with pytest.raises(IndexError):
        index.match(column(pa.array(["a"])), 2)
    assert Matcher(column(pa.array([], pa.string()))).match(column(pa.array(["a"]))) == (bytes(8), b"", 0)
    assert index.match(column(pa.array(["a"])))[0] == bytes([0, 0, 0, 0, 1, 0, 0, 0])
