"""Test the log on a real disk, with its thread: each committed record comes back, in order, and no other record."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from mosq._core import PyStore, crc, crc_of_record, has_hardware_crc, scan

Record = tuple[int, int, int, bytes]


def opened(path: Path, **options: int) -> tuple[PyStore, list[Record], dict]:
    store = PyStore(path, **options)
    records, loss = store.recover()
    return store, records, loss


def until_written(store: PyStore, lsn: int, synced: bool = False) -> None:
    while (store.synced() if synced else store.written()) < lsn:
        store.wait()


def test_crc() -> None:
    for hardware in {False, has_hardware_crc()}:
        assert crc(b"123456789", hardware) == 0xE3069283
        assert crc(bytes(32), hardware) == 0x8A9136AA          # [RFC 3720 B.4]
        assert crc(b"", hardware) == 0


@pytest.mark.parametrize("n", [*range(20), 255, 3071, 3072, 3073, 6145, 20_000])        # from 3 KiB the CRC is computed in lanes
def test_crc_of_records_is_the_same_by_table(n: int) -> None:
    body = os.urandom(n)
    given = (0x12345678, 987654321 << 20, n | 5 << 32 | 3 << 40, body)
    assert crc_of_record(False, *given) == crc_of_record(has_hardware_crc(), *given)
    assert crc(body, False) == crc(body, has_hardware_crc())


@pytest.mark.parametrize("sync", [False, True])
def test_committed_records_are_recovered(tmp_path: Path, sync: bool) -> None:
    store, records, loss = opened(tmp_path)
    assert (records, loss["n"], loss["end_lsn"]) == ([], 0, 0)
    store.start()
    given = []
    for batch in range(20):
        for n in range(batch):
            body = os.urandom(n * 7)
            given.append((store.append(1 + n % 239, body, n), 1 + n % 239, n, body))
        end = store.seal(sync)
    until_written(store, end, sync)
    assert store.close() is None
    store, records, loss = opened(tmp_path)
    assert records == given
    assert (loss["n"], loss["torn_bytes"], loss["end_lsn"]) == (0, 0, end)
    assert records[-1][0] + 12 <= end


def test_an_empty_seal_costs_nothing(tmp_path: Path) -> None:
    store, _, _ = opened(tmp_path)
    assert store.seal() == 0
    store.append(1, b"x")
    end = store.seal()
    assert store.seal() == end
    assert store.seal(True) == end          # a sync of a batch that is already sealed
    store.start()
    until_written(store, end, synced=True)
    assert store.seal(True) == end


def test_close_seals_the_open_batch(tmp_path: Path) -> None:
    store, _, _ = opened(tmp_path)
    store.start()
    store.append(1, b"x")
    assert store.close() is None
    assert [r[3] for r in opened(tmp_path)[1]] == [b"x"]


def test_many_segments_and_starts(tmp_path: Path) -> None:
    given: list[Record] = []
    for _ in range(5):
        store, records, loss = opened(tmp_path, segment_bytes=32768)
        assert records == given
        assert loss["n"] == 0
        store.start()
        for n in range(60):
            body = os.urandom(1000 + n)
            given.append((store.append(5, body), 5, 0, body))
            end = store.seal(n % 7 == 0)
        until_written(store, end)
        store.close()


def test_a_batch_larger_than_a_segment(tmp_path: Path) -> None:
    store, _, _ = opened(tmp_path, segment_bytes=32768)
    store.start()
    given = [(store.append(5, body), 5, 0, body) for body in (b"a" * 100_000, b"", b"b" * 300_000)]
    until_written(store, store.seal())
    given.append((store.append(6, b"after"), 6, 0, b"after"))
    until_written(store, store.seal())
    store.close()
    assert opened(tmp_path)[1] == given


def test_waiting_is_bounded(tmp_path: Path) -> None:
    store, _, _ = opened(tmp_path, waiting_max_bytes=100_000)
    while store.room():
        store.append(1, b"x" * 1000)
    assert 90_000 < store.open_bytes() < 110_000
    store.start()
    end = store.seal()
    until_written(store, end)
    assert store.room()


def test_records_that_cannot_be_appended(tmp_path: Path) -> None:
    store, _, _ = opened(tmp_path)
    for kind in (0, 240, 255):
        with pytest.raises(ValueError):
            store.append(kind, b"")


def test_tools_read_a_live_store(tmp_path: Path) -> None:
    store, _, _ = opened(tmp_path)
    store.start()
    given = [(store.append(5, b"%d" % n), 5, 0, b"%d" % n) for n in range(1000)]
    until_written(store, store.seal())
    slices: list[list[Record]] = []
    loss = scan(tmp_path, slices.append, most=300)
    assert [len(s) for s in slices] == [300, 300, 300, 100]
    assert [r for s in slices for r in s] == given
    assert loss["records"] == 1000 and loss["n"] == 0


def test_a_reader_continues_where_it_stopped(tmp_path: Path) -> None:
    store, _, _ = opened(tmp_path, segment_bytes=32768)
    store.start()
    given: list[Record] = []
    found: list[Record] = []
    at_lsn = 0
    for batch in range(40):         # over several segments
        if batch % 7:
            given += [(store.append(5, body), 5, 0, body) for body in [b"%d" % batch * 50] * (batch % 5 * 8)]
            until_written(store, store.seal())
        loss = scan(tmp_path, found.extend, from_lsn=at_lsn)
        assert loss["n"] == loss["moved"] == 0 and loss["tail_lsn"] <= at_lsn <= loss["end_lsn"]
        at_lsn = loss["end_lsn"]
        assert found == given
    assert loss["segments"] <= 2 < len(list(tmp_path.glob("segment.*")))
    assert store.close() is None


# ---- permission to open a store

def test_two_brokers_on_one_directory(tmp_path: Path) -> None:
    store, _, _ = opened(tmp_path)
    with pytest.raises(OSError, match=rf"in use by another broker \(process {os.getpid()}\)"):
        PyStore(tmp_path)
    store.close()
    opened(tmp_path)


def test_a_missing_directory(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file or directory; make the directory"):
        PyStore(tmp_path / "x")
    opened(tmp_path / "x", create=True)


def test_a_file_in_place_of_the_directory(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("")
    with pytest.raises(OSError, match="a directory is needed"):
        PyStore(tmp_path / "x")


def test_a_later_format_is_not_touched(tmp_path: Path) -> None:
    store, _, _ = opened(tmp_path)
    store.append(1, b"x")
    store.close()
    file = tmp_path / "segment.000001"
    data = bytearray(file.read_bytes())
    for at in (0, 2048):
        data[at + 8] = 9
        data[at + 84:at + 88] = crc(bytes(data[at:at + 84])).to_bytes(4, "little")
    file.write_bytes(data)
    with pytest.raises(OSError, match="format 9, this version supports 1"):
        PyStore(tmp_path)
    with pytest.raises(OSError, match="format 9"):
        scan(tmp_path, print)
    assert file.read_bytes() == data
