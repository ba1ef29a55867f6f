"""Test readers of a store to which a broker writes: no gap, no record of the past, whatever the broker does between two
reads."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mosq._core import PyStore, scan, segment_read, segments
from mosq.tools.backup import sources
from tests.store.disk import Disk
from tests.store.owner import PUT, SEGMENT, Owner, Table
from tests.store.racing import RacingDisk

Record = tuple[int, int, int, bytes]
KEYS = 60
PIECES, PACES = [1, 3, 30], [1, 3, 17]
FILLS = range(0, 60, 6)                 # batches in the newest segment before the reader begins


def writing(owner: Owner, batches: int) -> Iterator[None]:
    """Overwrite keys in turn, so that the oldest segments are dropped soon, and let the store clean itself; one step of the
    storage thread after the other."""
    for number in range(batches):
        for key in range(3):
            owner.put((3 * number + key) % KEYS, b"%06d" % len(owner.log) + bytes(150))
        owner.seal()
        owner.turn()
        yield
        while owner.clean(20):
            owner.seal()
            owner.turn()
            yield


def table_at(owner: Owner, end_lsn: int) -> Table:
    """Return the table of that moment."""
    table: Table = {}
    for lsn, key, value in owner.log:
        if lsn < end_lsn:
            table.pop(key, None)
            if value is not None:
                table[key] = value
    return table


def table_of(records: list[Record]) -> Table:
    table: Table = {}
    for _, kind, _, body in records:
        table.pop(int.from_bytes(body[:4], "little"), None)
        if kind == PUT:
            table[int.from_bytes(body[:4], "little")] = body[4:]
    return table


def started(fill: int) -> tuple[RacingDisk, Owner]:
    disk = RacingDisk()
    owner = Owner(disk)
    for _ in writing(owner, 200 + fill):
        pass
    assert owner.store.stats()["cleaned"] > 2
    return disk, owner


def scanned(disk: Disk, records: list[Record], loss: dict[str, Any]) -> None:
    loss.update(scan("/d", records.extend, disk=disk))


@pytest.mark.parametrize("pieces", PIECES)
@pytest.mark.parametrize("pace", [3, 17, 60])
def test_a_scan_of_a_live_store_is_one_moment_of_it(pace: int, pieces: int) -> None:
    """The scan sees one moment of the store, or it reports a segment that was dropped before it was read."""
    done = 0
    for fill in FILLS:
        disk, owner = started(fill)
        written = owner.store.written()
        records: list[Record] = []
        loss: dict[str, Any] = {}
        disk.race(lambda: scanned(disk, records, loss), writing(owner, 60), pieces, pace)  # noqa: B023  # it runs now
        if loss["moved"]:
            continue
        done += 1
        assert (loss["n"], loss["unreadable"], loss["foreign"]) == (0, 0, 0), (fill, loss)
        assert loss["end_lsn"] >= written
        assert table_of(records) == table_at(owner, loss["end_lsn"]), fill
    assert done


@pytest.mark.parametrize("pieces", PIECES)
@pytest.mark.parametrize("pace", PACES)
def test_a_copy_of_a_live_store_is_one_moment_of_it(pace: int, pieces: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a backup copies the segments, others begin, and the oldest are dropped and their files used again."""
    for fill in FILLS:
        disk, owner = started(fill)
        written = owner.store.written()
        monkeypatch.setattr(sources, "segments", functools.partial(segments, disk=disk))
        monkeypatch.setattr(sources, "segment_read", functools.partial(segment_read, disk=disk))
        contents: list[bytes] = []
        disk.race(lambda: sources.StoreCopy("/d", contents.append).finish(), writing(owner, 60), pieces, pace)  # noqa: B023  # it runs now
        restored = restored_from(contents)
        loss = restored.loss
        assert (loss["n"], loss["unreadable"], loss["foreign"]) == (0, 0, 0), (fill, loss)
        assert loss["end_lsn"] >= written
        assert restored.table == table_at(owner, loss["end_lsn"]), fill


def restored_from(contents: list[bytes]) -> Owner:
    copy = Disk()
    for number, content in enumerate(contents, 1):
        copy.open(f"/d/segment.{number:06}", os.O_CREAT)
        copy.files[f"segment.{number:06}"].data = bytearray(content)
    return Owner(copy)


def test_a_scan_goes_on_into_segments_that_begin_during_it(tmp_path: Path) -> None:
    """A writer fills several segments while the scan passes on the first record: nothing of it is a loss."""
    store = PyStore(tmp_path, segment_bytes=SEGMENT)
    store.recover()
    store.live(1 << 30)                 # nothing is cleaned

    def fill(count: int) -> None:
        for _ in range(count):
            store.append(5, bytes(3000))
            store.seal()
            store.turn()

    fill(10)
    records: list[Record] = []

    def give(several: list[Record]) -> None:
        if not records:
            fill(40)
        records.extend(several)

    loss = scan(tmp_path, give, most=1)
    store.close()
    assert (loss["n"], loss["moved"]) == (0, 0)
    assert len(records) == 50


def test_a_segment_of_another_number_is_not_read(tmp_path: Path) -> None:
    store = PyStore(tmp_path)
    store.recover()
    store.append(5, b"x")
    store.seal()
    store.turn()
    [(slot, number, base_lsn)], others = segments(tmp_path)
    store.close()
    assert (base_lsn, others) == (0, [])
    content = segment_read(tmp_path, slot, number)
    assert content is not None and content == (tmp_path / f"segment.{slot:06}").read_bytes()[:len(content)]
    assert segment_read(tmp_path, slot, number + 1) is None
    assert segment_read(tmp_path, slot + 7, number) is None
    (tmp_path / f"segment.{slot:06}").write_bytes(b"x" * 5000)
    assert segments(tmp_path) == ([], [slot])
    with pytest.raises(OSError, match="No such file"):
        segments(tmp_path / "none")


class ExchangingDisk(Disk):
    """A disk on which a file gets the bytes of another one when its content is first read, as when a broker uses it again."""

    other: bytes | None = None

    def pread(self, fd: int, n: int, at: int) -> bytes | int:
        if at and self.other is not None:
            self.fds[fd].data[:], self.other = self.other, None
        return super().pread(fd, n, at)


@pytest.mark.parametrize("later", [False, True])
def test_a_file_that_is_used_again_while_it_is_read_is_no_segment(later: bool) -> None:
    """The header is checked before the content is read, and again behind it."""
    disk = ExchangingDisk()
    owner = Owner(disk)
    for _ in writing(owner, 60):
        pass
    (slot, number, _), (other_slot, other, _) = segments("/d", disk=disk)[0][:2]
    disk.other = bytes(disk.files[f"segment.{other_slot:06}"].data)
    assert segment_read("/d", slot, other if later else number, disk=disk) is None
    assert disk.other is None             # the content was read
