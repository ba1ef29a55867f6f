"""Test readers beside a writer, through the system's files, and columns beside a naive decoder."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from mosq._core import PyJournal, PyReader
from mosq.journal import Lost, Stream
from mosq.journal.arrow import batches
from mosq.journal.parts import STRIDE
from tests.harness.effort import tries
from tests.journal.columns_naive import naive, unpacked
from tests.journal.disk import first_of

TEXT = st.one_of(st.just(b""), st.binary(max_size=40))
ROW = st.tuples(st.integers(1, 12), st.integers(0, 15), st.integers(0, 255), TEXT, TEXT, st.one_of(st.none(), TEXT), TEXT,
                st.one_of(TEXT, st.integers(1000, 3000).map(bytes)), st.integers(0, 50))


def commit(face: PyJournal) -> None:
    face.seal()
    assert face.write(7) and face.sync() and face.mark()


def put(face: PyJournal, shard: int, rows) -> None:
    time_us = 1000
    for i, (kind, flags, reason, topic, client, user, properties, payload, step) in enumerate(rows):
        time_us += step
        face.append(shard, kind, topic, client, user, properties, payload, flags, reason, time_us)
        if i % 7 == 6:
            face.seal()
    commit(face)


@pytest.mark.again("properties")
@settings(max_examples=tries(60, 15))
@given(rows=st.lists(ROW, min_size=1, max_size=60), data=st.data())
def test_columns_equal_those_of_a_naive_decoder(tmp_path_factory: pytest.TempPathFactory, rows, data) -> None:
    path = tmp_path_factory.mktemp("s") / "s"
    face = PyJournal(path, shards=2, block_bytes=4096, segment_bytes=8192)
    put(face, 1, rows)
    reader = PyReader(path, 1)
    records = reader.read(most=1 << 20)
    assert len(records) == len(rows)
    lo = data.draw(st.integers(0, len(rows)))
    hi = data.draw(st.integers(lo, len(rows)))
    most = data.draw(st.sampled_from([1, 3, 8, 9, 100]))
    n_bytes = data.draw(st.sampled_from([1, 100, 1 << 20]))
    reader.seek(lo)
    got = 0
    while lo + got < hi:
        n, columns = reader.columns(hi, most, n_bytes)
        assert 0 < n <= most
        assert unpacked(n, columns) == naive(1, records[lo + got:lo + got + n])
        got += n
    assert reader.columns(hi)[0] == 0 and lo + got == hi


def test_a_batch_exports_arrow_arrays(tmp_path: Path) -> None:
    face = PyJournal(tmp_path / "s", shards=2)
    for i in range(5000):
        face.append(0, topic=b"a/%d" % i, client_id=b"c" if i % 3 else b"", username=None if i % 2 else b"u", payload=b"p" * (i % 50),
                    flags=i % 3 | (4 if i % 5 == 0 else 0), time_us=10**15 + i)
    face.append(0, kind=3, topic=b"", client_id=b"c", reason=0x8E, time_us=10**15 + 5000)
    commit(face)
    table = pa.Table.from_batches(list(batches(tmp_path / "s", 0, rows=999)))
    table.validate(full=True)
    assert table.num_rows == 5001
    row = table.slice(15, 1).to_pylist()[0]
    assert row["topic"] == "a/15" and row["client_id"] is None and row["username"] is None and row["retain"] and row["qos"] == 0
    assert row["payload"] == b"p" * 15 and row["time"].timestamp() == 10**9 + 15e-6
    last = table.slice(5000, 1).to_pylist()[0]
    assert (last["kind"], last["reason"], last["topic"], last["payload"]) == (3, 0x8E, None, None)
    assert list(batches(tmp_path / "s", 1)) == []


def test_records_and_batches_name_the_node_of_a_cluster(tmp_path: Path) -> None:
    for part, name, n in ((0, "a", 3), (0, "b.2", 2), (0, "", 1), (1, "x" * 64, 2)):
        face = PyJournal(tmp_path / "s" / "worker.1" if part else tmp_path / "s", node=name.encode())
        for i in range(n):
            face.append(0, payload=b"%d" % i, time_us=1000 + i)
        commit(face)
        face.close()
    stream = Stream(tmp_path / "s")
    of_shards = {0: ["a"] * 3 + ["b.2"] * 2 + [None], STRIDE: ["x" * 64] * 2}
    for shard, nodes in of_shards.items():
        assert [record.cluster_node for record in stream.read(shard=shard)] == nodes
        table = pa.Table.from_batches(list(batches(tmp_path / "s", shard)))
        table.validate(full=True)
        assert table["cluster_node"].to_pylist() == nodes
        assert table["seq"].to_pylist() == list(range(len(nodes)))
    with pytest.raises(ValueError, match="at most 64 bytes"):
        PyJournal(tmp_path / "t", node=b"x" * 65)


def test_a_reader_beside_a_writer_sees_each_synced_record_once(tmp_path: Path) -> None:
    face = PyJournal(tmp_path / "s", segment_bytes=64 << 10, block_bytes=4096)
    total, seen, wrong = 6000, [], []

    def read() -> None:
        reader = PyReader(tmp_path / "s")
        while len(seen) < total:
            end = reader.refresh()
            for record in reader.read():
                if record[0] >= end or record[10] != b"%d" % record[0] * 20:
                    wrong.append(record)
                seen.append(record[0])
            if reader.lost():
                wrong.append(reader.lost())
                return

    thread = threading.Thread(target=read)
    thread.start()
    for i in range(total):
        face.append(0, payload=b"%d" % i * 20, time_us=i)
        if i % 40 == 39:
            face.seal()
            face.write(i)
        if i % 200 == 199:
            commit(face)
    commit(face)
    thread.join()
    assert wrong == []
    assert seen == list(range(total))


# ---- the Python side

@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    face = PyJournal(tmp_path / "s", shards=2, segment_bytes=8192, block_bytes=4096)
    for i in range(60):
        face.append(i % 2, payload=bytes(500), topic=b"t/%d" % i, time_us=1000 + i)
        if i % 6 == 5:
            commit(face)
    face.close()
    return Stream(tmp_path / "s")


def test_a_stream_reads_a_range_of_numbers(stream: Stream) -> None:
    assert [(m.first_seq, m.seq) for m in stream.marks()] == [(0, 30), (0, 30)]
    records = list(stream.read(7, 21, shard=1))
    assert [r.seq for r in records] == list(range(7, 21))
    assert records[0].topic == "t/15" and records[0].username is None and records[0].qos == 0
    assert [r.seq for r in stream.read(25)] == list(range(25, 30))
    assert stream.seq_at(1031, shard=1) == 15
    sizes = stream.sizes(1)
    assert sizes[0][0] == 0 and [first for first, _ in sizes] == sorted({first for first, _ in sizes})
    assert sum(n_bytes for _, n_bytes in sizes) == sum(path.stat().st_size for path in stream.path.glob("001-*.seg"))


def test_lost_records_raise_or_are_reported(stream: Stream) -> None:
    segments = sorted(path for path in stream.path.iterdir() if path.name.startswith("000-") and path.suffix == ".seg")
    lo, hi = (first_of(path.name) for path in segments[1:3])
    segments[1].unlink()
    with pytest.raises(Lost, match=f"shard 0: {lo} to {hi - 1} are missing"):
        list(stream.read())
    told = []
    assert [r.seq for r in stream.read(lost=told.append)] == [*range(lo), *range(hi, 30)]
    assert [(r.why, r.lo, r.hi) for r in told] == [("missing", lo, hi)]
    with pytest.raises(Lost):
        list(batches(stream.path, 0))


def test_a_consumer_remembers_its_position(stream: Stream) -> None:
    assert stream.consumer("spark") is None
    stream.put_consumer("spark", [3, 4])
    stream.put_consumer("spark", [7, 4])
    assert stream.consumer("spark") == [7, 4]
    assert [path.name for path in (stream.path / "consumers").iterdir()] == ["spark"]
    (stream.path / "consumers/spark").write_bytes(b"x")
    with pytest.raises(ValueError, match=r"consumers/spark is damaged: write it again, or remove it"):
        stream.consumer("spark")
    for name in ("", ".x", "a/b", "x" * 65):
        with pytest.raises(ValueError, match="a consumer's name"):
            stream.put_consumer(name, [1, 1])


def test_a_folder_without_a_stream_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no stream"):
        Stream(tmp_path).marks()
