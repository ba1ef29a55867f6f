"""Test `format("mosq")` without Spark: the calls that Spark would make."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows
from pyspark.sql.types import IntegerType, LongType, StringType, StructType

from mosq.journal import Stream
from mosq.pipeline import MosqPipelineError
from mosq.pipeline.source import JournalSource
from mosq.pipeline.source.batch import JournalReader
from mosq.pipeline.source.options import Options
from mosq.pipeline.source.rows import SCHEMA
from mosq.pipeline.source.stream import JournalStreamReader
from tests.pipeline.journals import T0_US, Journal

SMALL = {"segment_bytes": 8192, "block_bytes": 4096}
ALL = ReadAllAvailable()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "streams"


def streaming(folder: Path, **options: object) -> JournalStreamReader:
    said = {name: str(value) for name, value in options.items()}
    return JournalStreamReader(Options({"path": str(folder), **said}, batch=False), SCHEMA.names)


def batch(folder: Path, **options: object) -> JournalReader:
    said = {name: str(value) for name, value in options.items()}
    return JournalReader(Options({"path": str(folder), **said}, batch=True), SCHEMA.names)


def rows(reader: JournalReader | JournalStreamReader, *offsets: Any) -> list[dict[str, Any]]:
    batches = [batch for part in reader.partitions(*offsets) for batch in reader.read(part)]
    return pa.Table.from_batches(batches, schema=SCHEMA).to_pylist()


def numbers(found: list[dict[str, Any]]) -> list[int]:
    return [int(row["payload"]) for row in found if row["kind"] == 1]


def nexts(offset: dict[str, Any]) -> dict[str, list[int]]:
    return {name: said["next"] for name, said in offset["streams"].items()}


# ---- options

@pytest.mark.parametrize(("options", "said"), [
    ({}, "needs a path"),
    ({"path": "s3://a/b"}, "of this machine or of mounted storage"),
    ({"path": "/x", "stream": "a"}, "has no option stream; expected one of path, sources, streams"),
    ({"path": "/x", "streams": "a, b/c"}, "option streams is 'b/c'"),
    ({"path": "/x", "failOnDataLoss": "no"}, "option failOnDataLoss is 'no': expected true or false"),
    ({"path": "/x", "maxRecordsPerPartition": "0"}, "option maxRecordsPerPartition is '0': expected a number above 0"),
    ({"path": "/x", "maxRecordsPerPartition": "-5"}, "option maxRecordsPerPartition is '-5'"),
    ({"path": "/x", "startingOffsets": "yesterday"}, "option startingOffsets is 'yesterday': expected earliest, latest, an ISO time"),
    ({"path": "/x", "startingOffsets": '{"a": -1}'}, "option startingOffsets"),
    ({"path": "/x", "startingOffsets": '{"a": [1, "2"]}'}, "option startingOffsets"),
    ({"path": "/x", "startingOffsets": '{"a": '}, "expected JSON"),
    ({"path": "/x", "maxRecordsPerTrigger": "5"}, "maxRecordsPerTrigger is for readStream, not for read"),
])
def test_a_wrong_option_is_reported(options: dict[str, str], said: str) -> None:
    with pytest.raises(MosqPipelineError, match=said):
        Options(options, batch=True)


def test_options_are_known_in_any_case_and_with_units() -> None:
    options = Options({"PATH": "file:///x", "maxbytespertrigger": "64m", "MAXRECORDSPERTRIGGER": "2 k"}, batch=False)
    assert (options.sources[0].path, options.trigger_bytes, options.trigger_records) == (Path("/x"), 64 << 20, 2048)
    with pytest.raises(MosqPipelineError, match="option consumer is 'a b'"):
        Options({"path": "/x", "consumer": "a b"}, batch=False)
    with pytest.raises(MosqPipelineError, match="endingOffsets is for read, not for readStream"):
        Options({"path": "/x", "endingOffsets": "latest"}, batch=False)


def test_a_schema_picks_columns(folder: Path) -> None:
    source = JournalSource({"path": str(folder)})
    picked = StructType().add("topic", StringType()).add("seq", LongType())
    Journal(folder).fill(3)
    reader = source.reader(picked)
    assert [batch.schema.names for part in reader.partitions() for batch in reader.read(part)] == [["topic", "seq"]]
    with pytest.raises(MosqPipelineError, match=r"has no column seq int: .schema.. may select from: stream string"):
        source.reader(StructType().add("seq", IntegerType()))


# ---- which streams

def test_a_missing_stream_is_reported(folder: Path) -> None:
    with pytest.raises(MosqPipelineError, match="there is no folder"):
        batch(folder).partitions()
    folder.mkdir()
    (folder / "other").mkdir()
    with pytest.raises(MosqPipelineError, match=r"there is no stream in .* yet: configure one"):
        batch(folder).partitions()
    Journal(folder, "a").fill(1)
    with pytest.raises(MosqPipelineError, match=r"there is no stream b in .*; there are: a"):
        batch(folder, streams="a,b").partitions()
    with pytest.raises(MosqPipelineError, match="option startingOffsets names the stream b, which is not read; this read has: a"):
        batch(folder, startingOffsets='{"b": [1]}').partitions()


def test_the_folder_of_a_stream_itself_may_be_read(folder: Path) -> None:
    Journal(folder, "a").fill(5)
    found = rows(batch(folder / "a"))
    assert numbers(found) == list(range(5)) and {row["stream"] for row in found} == {"a"}


def test_a_missing_or_newer_mark_is_reported(folder: Path) -> None:
    journal = Journal(folder, "a")
    journal.fill(5)
    reader = streaming(folder)
    for mark in ("mark.a", "mark.b"):
        path = journal.path / mark
        if path.exists():
            path.write_bytes(b"damaged" + path.read_bytes()[7:])
    with pytest.raises(MosqPipelineError, match=r"stream in .* cannot be read|there is no stream in"):
        reader.initialOffset()


# ---- where to begin and end

def test_positions(folder: Path) -> None:
    journal = Journal(folder, "a", shards=2)
    for i in range(20):
        journal.put("t", b"%d" % i, shard=i % 2)        # the times are T0 + 1 ms, T0 + 2 ms, ...
    journal.commit()

    def begins(said: str) -> list[int]:
        return nexts(streaming(folder, startingOffsets=said).initialOffset())["a"]

    assert begins("earliest") == [0, 0] and begins("latest") == [10, 10]
    assert begins('{"a": [3, 10]}') == [3, 10] and begins('{"a": "latest"}') == [10, 10] and begins('{}') == [0, 0]
    assert begins("2026-09-21T14:13:20.006") == [3, 2] == begins("2026-09-21T16:13:20.006+02:00")
    assert begins('{"a": "2030-01-01"}') == [10, 10]
    with pytest.raises(MosqPipelineError, match="stream a, shard 1: 11 does not exist yet; the next one will be 10"):
        begins('{"a": [0, 11]}')
    with pytest.raises(MosqPipelineError, match="stream a has 2 shards, but the option has 1 numbers"):
        begins('{"a": [0]}')
    found = rows(batch(folder, startingOffsets='{"a": [3, 9]}', endingOffsets="2026-09-21T14:13:20.013"))
    assert [(row["shard"], row["seq"]) for row in found] == [(0, 3), (0, 4), (0, 5)]
    assert T0_US == 1_790_000_000_000_000


def test_a_batch_has_no_more_than_is_allowed(folder: Path) -> None:
    one, two = Journal(folder, "one", shards=2), Journal(folder, "two")
    for i in range(900):
        one.put("t", b"%d" % i, shard=0 if i < 800 else 1)
    one.commit()
    two.fill(100)
    reader = streaming(folder, maxRecordsPerTrigger=100)
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(100)
    start = reader.initialOffset()
    end = reader.latestOffset(start, limit)
    assert nexts(end) == {"one": [80, 10], "two": [10]}
    assert nexts(reader.latestOffset(start, ALL)) == {"one": [800, 100], "two": [100]} == nexts(reader.reportLatestOffset())
    seen = 0
    while (end := reader.latestOffset(start, limit)) != start:
        took = len(rows(reader, start, end))
        assert 0 < took <= 100
        seen, start = seen + took, end
    assert seen == 1000


def test_a_batch_has_about_as_many_bytes_as_are_allowed(folder: Path) -> None:
    journal = Journal(folder, "a", **SMALL)
    journal.fill(200, size=1000)
    total = sum(n_bytes for _, n_bytes in Stream(journal.path).sizes())
    reader = streaming(folder, maxBytesPerTrigger=total // 4)
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxBytes(total // 4)
    start, took = reader.initialOffset(), []
    while (end := reader.latestOffset(start, limit)) != start:
        took.append(len(rows(reader, start, end)))
        start = end
    assert sum(took) == 200 and len(took) in (4, 5, 6) and max(took) < 65
    tiny = streaming(folder, maxBytesPerTrigger=1)
    assert nexts(tiny.latestOffset(tiny.initialOffset(), limit)) == {"a": [1]}      # otherwise it would never end


def test_a_read_of_current_records_ends(folder: Path) -> None:
    journal = Journal(folder, "a")
    journal.fill(10)
    reader = streaming(folder, maxRecordsPerTrigger=8)
    reader.prepareForTriggerAvailableNow()
    journal.fill(10)
    Journal(folder, "b").fill(5)
    start = reader.initialOffset()
    first = reader.latestOffset({**start, "streams": {"a": start["streams"]["a"]}}, ReadMaxRows(8))
    second = reader.latestOffset(first, ReadMaxRows(8))
    assert (nexts(first), nexts(second)) == ({"a": [8]}, {"a": [10]})
    assert reader.latestOffset(second, ReadMaxRows(8)) == second


def test_offsets_keep_their_written_form(folder: Path) -> None:
    """Test the form of offsets: they lie in checkpoints, so another form needs another version."""
    journal = Journal(folder, "a", shards=2)
    journal.fill(4, topics=1)
    reader = streaming(folder)
    end = reader.latestOffset(reader.initialOffset(), ALL)
    stream_id = end["streams"]["a"]["id"]
    assert len(stream_id) == 32
    assert json.dumps(end) == f'{{"version": 1, "streams": {{"a": {{"id": "{stream_id}", "next": {end["streams"]["a"]["next"]}}}}}}}'
    again = json.loads(json.dumps(end))
    assert json.dumps(reader.latestOffset(again, ALL)) == json.dumps(end)
    with pytest.raises(MosqPipelineError, match="offset is of version 2, this mosq knows 1"):
        reader.latestOffset({**end, "version": 2}, ALL)


def test_ranges_are_cut_for_parallel_reading_and_read_the_same_again(folder: Path) -> None:
    journal = Journal(folder, "a", shards=2)
    journal.fill(1000)
    reader = streaming(folder, maxRecordsPerPartition=64)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    parts = reader.partitions(start, end)
    assert max(part.hi - part.lo for part in parts) <= 64 and len(parts) >= 16
    before = rows(reader, start, end)
    assert sorted(numbers(before)) == list(range(1000))
    journal.fill(500)
    assert rows(streaming(folder, maxRecordsPerPartition=64), start, end) == before
    assert reader.partitions(end, end) == []


# ---- streams change

def test_a_stream_that_comes_later_is_read_from_its_beginning(folder: Path) -> None:
    Journal(folder, "a").fill(3)
    reader = streaming(folder, startingOffsets="latest")
    start = reader.initialOffset()
    assert reader.latestOffset(start, ALL) is start
    b = Journal(folder, "b")
    b.fill(4)
    end = reader.latestOffset(start, ALL)
    assert end["streams"]["b"]["from"] == [0]
    assert [row["stream"] for row in rows(reader, start, end)] == ["b"] * 4
    assert reader.latestOffset(end, ALL) == end
    b.fill(1)
    later = reader.latestOffset(end, ALL)
    assert "from" not in later["streams"]["b"] and len(rows(reader, end, later)) == 1


def test_new_shards_are_read(folder: Path) -> None:
    journal = Journal(folder, "a", shards=1)
    journal.fill(5)
    reader = streaming(folder)
    start = reader.latestOffset(reader.initialOffset(), ALL)
    journal.close()
    grown = Journal(folder, "a", shards=3)
    grown.fill(30)
    end = reader.latestOffset(start, ALL)
    assert len(nexts(end)["a"]) == 3
    assert len(rows(reader, start, end)) == 30


def refuses(reader: JournalStreamReader, start: dict[str, Any], said: str) -> None:
    with pytest.raises(MosqPipelineError, match=said):
        reader.latestOffset(start, ALL)


def test_another_stream_than_before_is_refused(folder: Path, tmp_path: Path) -> None:
    journal = Journal(folder, "a", shards=2)
    journal.fill(5)
    reader = streaming(folder)
    start = reader.latestOffset(reader.initialOffset(), ALL)
    shutil.copytree(journal.path, tmp_path / "copy")
    journal.fill(5)
    end = reader.latestOffset(start, ALL)
    said = start["streams"]["a"]
    refuses(reader, {"version": 1, "streams": {"a": {**said, "next": [*said["next"], 0]}}}, "has 2 shards, but the checkpoint has read 3")
    journal.close()
    shutil.rmtree(journal.path)
    shutil.copytree(tmp_path / "copy", journal.path)
    for each in (reader, streaming(folder, failOnDataLoss="false")):
        refuses(each, end, "do not exist yet. The stream ends before the position that this reader has reached")
        with pytest.raises(MosqPipelineError, match="do not exist yet"):
            rows(each, start, end)
    shutil.rmtree(journal.path)
    refuses(reader, start, "there is no stream in|stream a, which was read before, is not in .* any more")
    Journal(folder, "b").fill(1)
    refuses(reader, start, "stream a, which was read before, is not in .* any more")
    assert "a" in streaming(folder, failOnDataLoss="false").latestOffset(start, ALL)["streams"]
    assert "a" in streaming(folder, streams="b").latestOffset(start, ALL)["streams"]
    Journal(folder, "a", shards=2).fill(9)
    refuses(reader, start, "is not the stream that the checkpoint has read .*it was removed and created again")
    refuses(streaming(folder, failOnDataLoss="false"), start, "is not the stream that the checkpoint has read")


# ---- lost records

@pytest.fixture
def holed(folder: Path) -> tuple[Path, dict[str, list[Any]]]:
    """Make a stream with a damaged block, a missing segment, and one that retention removed; return it and the ranges."""
    journal = Journal(folder, "a", retain_bytes=60_000, **SMALL)
    for _ in range(30):
        journal.fill(4, size=700)
    assert journal.face.retain(journal.now_us) and journal.face.mark(journal.now_us)
    first = Stream(journal.path).marks()[0].first_seq
    assert first > 0
    sizes = Stream(journal.path).sizes()
    (missing_lo, _), (missing_hi, _), (damaged, _) = sizes[1], sizes[2], sizes[3]
    next(journal.path.glob(f"000-{missing_lo:020d}*.seg")).unlink()
    path = next(journal.path.glob(f"000-{damaged:020d}*.seg"))
    raw = bytearray(path.read_bytes())
    raw[4096 + 48 + 300] ^= 1       # in the body of the first block
    path.write_bytes(raw)
    return folder, {"retired": [0, first], "missing": [missing_lo, missing_hi], "damaged": [damaged, damaged + 4]}


@pytest.mark.parametrize(("why", "advice"), [
    ("retired", "are no longer kept. Retention deleted records before this reader read them"),
    ("missing", "are missing. Restore the stream's files from a copy"),
    ("damaged", "are damaged. Restore the stream's files from a copy"),
])
def test_losses_are_reported_with_advice(holed: tuple[Path, dict[str, list[int]]], why: str, advice: str) -> None:
    folder, ranges = holed
    lo, hi = ranges[why]
    with pytest.raises(MosqPipelineError) as raised:
        rows(batch(folder, startingOffsets=f'{{"a": [{lo}]}}'))
    said = str(raised.value)
    assert said.startswith(f"stream a in {folder / 'a'}: shard 0: {lo} to {hi - 1} {advice}") and "failOnDataLoss=false" in said
    reader = streaming(folder, startingOffsets=f'{{"a": [{lo}]}}')
    start = reader.initialOffset()
    with pytest.raises(MosqPipelineError, match=f"{lo} to {hi - 1} are"):
        rows(reader, start, reader.latestOffset(start, ALL))


def test_a_reader_behind_retention_fails_or_continues(folder: Path) -> None:
    """Test also that a reader with a `consumer` mark keeps the records that it has not read."""
    journal = Journal(folder, "a", retain_age_us=3600 * 1_000_000, **SMALL)
    reader, kept = streaming(folder), streaming(folder, consumer="slow")
    start = reader.latestOffset(reader.initialOffset(), ALL)
    for _ in range(10):
        journal.fill(4, size=700)
    begun = reader.latestOffset(start, ALL)         # a batch that was planned, and then not read for a long time
    for age_s, consumer, first in ((1800, False, 0), (1801, True, 0), (0, False, 36)):
        journal.now_us += age_s * 1_000_000
        if consumer:
            kept.latestOffset(kept.initialOffset(), ALL)
        else:
            (journal.path / "consumers/slow").unlink(missing_ok=True)
        assert journal.face.retain(journal.now_us) and journal.face.mark(journal.now_us)
        assert Stream(journal.path).marks()[0].first_seq == first
    said = rf"stream a in {journal.path}: shard 0: 0 to 35 are no longer kept\. Retention deleted records before this reader read them: keep more \(retain_age"
    for again in (lambda: reader.latestOffset(start, ALL), lambda: rows(reader, start, begun)):
        with pytest.raises(MosqPipelineError, match=said):
            again()
    going_on = streaming(folder, failOnDataLoss="false")
    found = rows(going_on, start, going_on.latestOffset(start, ALL))
    gap, *rest = found
    assert (gap["kind"], json.loads(gap["payload"])["lost"]) == (10, 36) and [row["seq"] for row in rest] == [36, 37, 38, 39]


@pytest.mark.parametrize("part", [1000, 7, 1])
def test_losses_are_counted_in_gap_rows(holed: tuple[Path, dict[str, list[int]]], part: int) -> None:
    folder, ranges = holed
    reader = streaming(folder, startingOffsets='{"a": [0]}', failOnDataLoss="false", maxRecordsPerPartition=part)
    start = reader.initialOffset()
    found = rows(reader, start, reader.latestOffset(start, ALL))
    gone = {seq for lo, hi in ranges.values() for seq in range(lo, hi)}
    assert [row["seq"] for row in found if row["kind"] == 1] == [seq for seq in range(120) if seq not in gone]
    gaps = [(row["seq"], row["stream"], row["time"], json.loads(row["payload"])) for row in found if row["kind"] == 10]
    told = {seq: said["why"] for _, _, _, said in gaps for seq in range(said["from"], said["to"] + 1)}
    assert told == {seq: why for why, (lo, hi) in ranges.items() for seq in range(lo, hi)}
    assert sum(said["lost"] for *_, said in gaps) == len(gone)
    assert all(seq == said["from"] and stream == "a" and time is None for seq, stream, time, said in gaps)
    if part == 1000:
        assert len(gaps) == 3


def test_invalid_utf8_is_replaced(folder: Path) -> None:
    journal = Journal(folder, "a")
    journal.face.append(0, topic=b"a/\xff", client_id=b"\xc3\x28", username=b"ok", payload=b"\xff", time_us=T0_US)
    journal.put("b", b"1")
    journal.commit()
    found = rows(batch(folder))
    assert [(row["topic"], row["client_id"], row["username"], row["payload"]) for row in found] == [
        ("a/\ufffd", "\ufffd(", "ok", b"\xff"), ("b", "c", None, b"1")]


# ---- consumers

def test_the_consumer_mark_moves_when_a_batch_is_done(folder: Path) -> None:
    journal = Journal(folder, "a", shards=2)
    journal.fill(10)
    reader = streaming(folder, consumer="spark")
    start = reader.initialOffset()
    stream = Stream(journal.path)
    end = reader.latestOffset(start, ALL)
    assert stream.consumer("spark") == [0, 0]       # the mark protects the records from the start
    assert reader.latestOffset(end, ALL) is end
    assert stream.consumer("spark") == nexts(end)["a"]
    shutil.rmtree(journal.path / "consumers")
    (journal.path / "consumers").write_text("in the way")
    with pytest.raises(MosqPipelineError, match=r"the mark of the consumer spark cannot be written to .*: let this process write there"):
        reader.latestOffset(start, ALL)
