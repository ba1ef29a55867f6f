"""Test faults of the disk, one at a time: each has one outcome."""

from __future__ import annotations

import errno
import gc
import os
from pathlib import Path

import pytest
from mosq._core import PyStore, crc, crc_of_record, has_hardware_crc, scan
from tests.store.disk import Disk
from tests.store.owner import SEGMENT, Owner
from tests.store.test_log import Record, opened, until_written

HEADER = 4096


def batches(owner: Owner, n: int, size: int = 100, sync: bool = False) -> list[int]:
    """Append n batches of three records under new keys; return the LSN of each end."""
    ends = []
    first = len(owner.table) // 3
    for i in range(first, first + n):
        for key in range(3):
            owner.put(3 * i + key, os.urandom(size))
        ends.append(owner.seal(sync))
        owner.turn()
    return ends


def again(disk: Disk) -> Owner:
    disk.kill()
    return Owner(disk)


# ---- faults found at the next start

@pytest.mark.parametrize("how", ["cut", "zeros", "noise"])
def test_cut_at_every_byte_of_the_last_two_commits(how: str) -> None:
    disk = Disk()
    owner = Owner(disk)
    start, middle, end = batches(owner, 3, size=30)
    owner.store.abandon()
    whole = bytes(disk.files["segment.000001"].data)
    assert len(whole) == HEADER + end
    tables = []
    for at in range(start, end + 1):
        tail = {"cut": b"", "zeros": bytes(end - at), "noise": os.urandom(end - at)}[how]
        disk = Disk()
        disk.open("/d/segment.000001", os.O_CREAT)
        disk.files["segment.000001"].data = bytearray(whole[:HEADER + at] + tail)
        owner = again(disk)
        assert owner.loss["n"] == 0
        complete = [e for e in (start, middle, end) if (whole[:HEADER + at] + tail)[:HEADER + e] == whole[:HEADER + e]]
        assert owner.loss["end_lsn"] == complete[-1]        # the lost bytes may have been zeros
        assert len(owner.table) == {start: 3, middle: 6, end: 9}[owner.loss["end_lsn"]]
        tables.append(owner.table)
    assert tables[-1].items() > tables[0].items()


def damaged(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)


def test_a_flipped_byte_costs_one_record(tmp_path: Path) -> None:
    store, _, _ = opened(tmp_path)
    given: list[Record] = [(store.append(1, b"%03d" % n * 10), 1, 0, b"%03d" % n * 10) for n in range(100)]
    store.seal()
    given += [(store.append(1, b"more"), 1, 0, b"more")]
    store.close()
    for n, record in enumerate(given[:-1]):
        for offset in (0, 5, 8, 10, 20):          # crc, length, kind, check, body
            file = tmp_path / "segment.000001"
            damaged(file, HEADER + record[0] + offset)
            if n % 9 == 0:
                found: list[Record] = []
                loss = scan(tmp_path, found.extend)
                assert found == given[:n] + given[n + 1:]
                assert loss["ranges"] == [(record[0], record[0] + 44)]
                assert loss["bytes"] == loss["unsynced_bytes"] == 44
            damaged(file, HEADER + record[0] + offset)


def test_a_flipped_byte_in_a_commit_costs_nothing_but_the_last(tmp_path: Path) -> None:
    store, _, _ = opened(tmp_path)
    commits = []
    for n in range(3):
        store.append(1, b"%d" % n)
        commits.append(store.seal() - 28)
    store.close()
    for n, at in enumerate(commits):
        damaged(tmp_path / "segment.000001", HEADER + at + 14)
        found: list[Record] = []
        loss = scan(tmp_path, found.extend)
        assert [r[3] for r in found] == [b"0", b"1", b"2"][:3 if n < 2 else 2]
        assert loss["ranges"] == ([(at, at + 28)] if n < 2 else [])
        damaged(tmp_path / "segment.000001", HEADER + at + 14)


def segments_of(path: Path, n: int) -> list[int]:
    """Make a store of n segments with one record of 3000 bytes in each batch; return the LSN of each record."""
    store, _, _ = opened(path, segment_bytes=SEGMENT)
    store.live(1 << 40)
    store.start()
    lsns = []
    while store.stats()["segments"] < n:
        lsns.append(store.append(1, b"%06d" % len(lsns) * 500))
        until_written(store, store.seal())
    store.close()
    return lsns


def number_of(path: Path) -> int:
    return int.from_bytes(path.read_bytes()[32:40], "little")


@pytest.mark.parametrize("which", [1, 2, 3])
def test_a_missing_segment(tmp_path: Path, which: int) -> None:
    lsns = segments_of(tmp_path, 4)
    files = {number_of(f): f for f in tmp_path.glob("segment.*")}
    files[which].unlink()
    _, records, loss = opened(tmp_path)
    lo, hi = (which - 1) * 4 * 3040, which * 4 * 3040      # four batches in each segment: 12 + 3000, and 28 of a COMMIT
    assert loss["ranges"] == [(lo, hi)]
    assert loss["bytes"] == loss["unsynced_bytes"] == hi - lo
    assert [r[0] for r in records] == [lsn for lsn in lsns if not lo <= lsn < hi]


def test_the_last_segment_is_missing(tmp_path: Path) -> None:
    segments_of(tmp_path, 4)
    files = {number_of(f): f for f in tmp_path.glob("segment.*")}
    files[4].unlink()
    assert opened(tmp_path)[2]["ranges"] == [(3 * 4 * 3040, None)]         # SEGEND shows that the segment is missing


@pytest.mark.parametrize("both", [False, True])
def test_a_damaged_header(tmp_path: Path, both: bool) -> None:
    segments_of(tmp_path, 3)
    file = next(f for f in tmp_path.glob("segment.*") if number_of(f) == 2)
    damaged(file, 40)
    if both:
        damaged(file, 2048 + 40)
    before = file.read_bytes()
    store, records, loss = opened(tmp_path)
    assert loss["unreadable"] == both
    assert loss["n"] == both
    assert len(records) == (5 if both else 9)
    store.start()
    store.append(1, b"x")
    store.close()
    assert file.read_bytes() == before      # the file is unchanged


def test_stale_bytes_of_a_recycled_file_are_no_records() -> None:
    disk = Disk()
    owner = Owner(disk)
    for n in range(200):
        owner.put(n % 4, bytes([n]) * 700)
        owner.seal()
        owner.turn()
        owner.clean()
    assert owner.store.stats()["cleaned"] > 3
    table = dict(owner.table)
    owner.store.abandon()
    owner = again(disk)
    assert owner.table == table
    assert owner.loss["n"] == owner.loss["torn_bytes"] == 0


def redis_like() -> Disk:
    """Return a disk whose calls may fail without any damage, as those of files in Redis do while Redis is away."""
    disk = Disk()
    disk.deferred = disk.unreserved = True
    return disk


@pytest.mark.parametrize("call", ["open", "pread"])
def test_a_start_is_refused_while_a_file_cannot_be_read_for_now(call: str) -> None:
    disk = redis_like()
    owner = Owner(disk)
    batches(owner, 40, size=400)
    table = owner.table
    owner.store.abandon()
    disk.calls.clear()
    again(disk).store.abandon()
    assert len(owner.segment_files()) >= 3
    for at in range(disk.calls.count(call)):
        disk.kill()
        disk.faults[call] = ["ok"] * at + [errno.ENOTCONN]
        with pytest.raises(OSError, match=r"Cannot .* /d.*: Transport endpoint is not connected"):
            Owner(disk)
    owner = again(disk)
    assert owner.table == table
    assert (owner.loss["n"], owner.loss["unreadable"]) == (0, 0)


# ---- faults while the store runs

def test_cleaning_drops_no_segment_that_cannot_be_read_for_now() -> None:
    disk = redis_like()
    owner = Owner(disk)
    owner.put(99, b"of the first segment")
    disk.faults["pread"] = faults = [errno.ENOTCONN] * 10
    while owner.store.stats()["cleaned"] < 3:
        for key in range(8):
            owner.put(key, os.urandom(900))
        owner.seal()
        owner.turn()
        owner.clean()
    table = owner.table
    owner.settle()
    why = owner.store.error()
    owner.store.abandon()
    assert again(disk).table == table
    assert not faults
    assert "Cannot read a segment in /d" in why


def test_short_and_interrupted_writes() -> None:
    disk = Disk()
    owner = Owner(disk)
    disk.faults["pwrite"] = ["short", errno.EINTR, "short", "short"] * 5
    end = batches(owner, 10)[-1]
    assert owner.store.written() == end
    assert not {"error", "full"} & set(owner.news)
    owner.store.abandon()
    assert len(again(disk).table) == 30


def test_a_full_disk_is_reported_once_and_recovered_from() -> None:
    disk = Disk()
    owner = Owner(disk)
    batches(owner, 3, size=1000)
    disk.space = disk.used() + 3000                         # the spare segment exists, and takes three batches
    ends = batches(owner, 12, size=1000)
    assert owner.news.count("full") == 1
    assert "No space left on device" in owner.store.error()
    assert owner.store.written() == ends[2]
    written = owner.store.written()
    for _ in range(5):
        owner.turn()
    assert owner.store.written() == written
    assert owner.news.count("full") == 1
    disk.space = 1 << 40
    while "full_over" not in owner.turn():
        pass
    assert owner.store.written() == ends[-1]
    assert "full_over" in owner.news and "error" not in owner.news
    owner.store.abandon()
    assert len(again(disk).table) == 45


def test_a_full_disk_and_a_kill_lose_nothing_that_was_committed() -> None:
    disk = Disk()
    owner = Owner(disk)
    batches(owner, 3, size=1000)
    disk.space = disk.used() + 700
    batches(owner, 12, size=1000)
    written = owner.store.written()
    owner.store.abandon()
    owner = again(disk)
    assert owner.loss["end_lsn"] >= written
    assert owner.loss["n"] == 0


def test_a_start_on_a_full_disk_continues_in_the_room_that_is_allocated() -> None:
    """Test it with the leftovers of an unfinished batch there, which must never count again."""
    disk = Disk()
    owner = Owner(disk)
    while owner.store.stats()["segments"] < 3:
        batches(owner, 1, size=1000)
    owner.store.abandon()
    disk.kill()
    disk.files.pop("segment.000004")
    disk.space = disk.used()                                # the next spare finds no room
    for n in range(4):
        owner = Owner(disk)
        assert owner.loss["n"] == 0 and owner.loss["end_lsn"] == owner.store.written()
        assert len(owner.table) == len(owner.replayed) and b"left over" not in b"".join(owner.table.values())
        end = batches(owner, 1, size=100)[0]
        assert owner.store.written() == end and owner.store.stats()["segments"] == 3
        assert not any(b"left over" in file.data for file in disk.files.values())
        for key in range(1000, 1008):
            owner.put(key, b"left over" * 20)
        owner.seal()
        disk.faults["pwrite"] = ["short", errno.ENOSPC]
        owner.store.turn()
        assert owner.store.written() == end and any(b"left over" in file.data for file in disk.files.values()), n
        owner.store.abandon()
        disk.kill()


def test_a_failed_write_is_repeated_in_another_segment() -> None:
    disk = Disk()
    owner = Owner(disk)
    batches(owner, 3)
    disk.faults["pwrite"] = [errno.EIO]
    end = batches(owner, 1)[0]
    assert owner.store.written() < end
    assert owner.news.count("error") == 1
    assert "Cannot write a segment in /d: Input/output error" in owner.store.error()
    owner.turn()
    assert owner.store.written() == end
    while "error_over" not in owner.news:
        owner.turn()
    owner.store.abandon()
    owner = again(disk)
    assert owner.loss["n"] == 0 and owner.loss["end_lsn"] == end


def test_a_disk_that_keeps_failing_does_not_fill_with_files() -> None:
    disk = Disk()
    owner = Owner(disk)
    batches(owner, 3)
    disk.faults["pwrite"] = [errno.EIO] * 40
    for _ in range(40):
        owner.put(1, b"x")
        end = owner.seal()
        owner.turn()
    assert len(disk.files) < 6
    disk.faults.clear()
    owner.turn()
    assert owner.store.written() == end


def test_a_loss_is_reported_also_while_the_store_fails() -> None:
    """Redis had lost operations that it had confirmed (FILE_LOST), and it was away before that."""
    disk = redis_like()
    owner = Owner(disk)
    disk.faults["datasync"] = [errno.ENOTCONN, errno.ENOTCONN, errno.ENODATA]
    end = batches(owner, 1, sync=True)[-1]
    while owner.store.synced() < end:
        owner.turn()
    assert owner.news.count("error") == 2 and "No data available" in owner.store.error()


@pytest.mark.parametrize("batches_before", [0, 3])
def test_a_failed_sync_poisons_its_segment(batches_before: int) -> None:
    disk = Disk()
    owner = Owner(disk)
    batches(owner, batches_before, sync=True)
    batches(owner, 1, sync=False)           # after a sync the batch is still in memory; before the first sync it is read back
    disk.faults["datasync"] = [errno.EIO]
    end = batches(owner, 2, sync=True)[-1]
    assert owner.store.synced() == end      # in another file; the disk asserts that the first file is not synced again
    assert owner.store.stats()["poisoned"] == 1
    assert owner.news.count("error") == 1 and "Cannot sync a segment" in owner.store.error()
    table = dict(owner.table)
    owner.store.abandon()
    disk.power_cut(lambda: False)           # the bytes that the failed sync lost are gone
    owner = Owner(disk)
    assert owner.table == table
    assert owner.loss["n"] == 0


def test_the_collector_closes_a_store_before_its_disk() -> None:
    """They are garbage at the same time, and the list drops the disk first."""
    ends = []

    class ClosingDisk(Disk):
        def close(self, fd: int) -> int:
            ends.append(fd)
            return 0

    owner = Owner(ClosingDisk())
    batches(owner, 1)
    ends.clear()
    garbage: list[object] = [owner.store, owner.disk]
    garbage.append(garbage)
    del owner, garbage
    gc.collect()
    assert ends


def test_a_sync_that_failed_before_a_kill_still_poisons_its_segment() -> None:
    """The page cache shows the data to the next process, and the system counts it as written."""
    disk = Disk()
    owner = Owner(disk)
    batches(owner, 1, sync=True)
    disk.faults["datasync"] = [errno.EIO] * 100         # also the sync of another file fails
    written = batches(owner, 1, sync=True)[-1]
    assert owner.store.synced() < written == owner.store.written()
    owner.store.abandon()
    owner = again(disk)
    assert owner.loss["end_lsn"] == written
    end = batches(owner, 1, sync=True)[-1]
    assert owner.store.synced() == end and owner.store.stats()["poisoned"] == 1
    table = dict(owner.table)
    owner.store.abandon()
    disk.power_cut(lambda: False)
    owner = Owner(disk)
    assert owner.table == table and owner.loss["n"] == 0


def test_repeated_sync_failures_commit_nothing() -> None:
    disk = Disk()
    owner = Owner(disk)
    end = batches(owner, 2, sync=True)[-1]
    disk.faults["datasync"] = [errno.EIO] * 30
    batches(owner, 3, sync=True)
    assert owner.store.synced() == end
    table = dict(list(owner.table.items())[:6])
    owner.store.abandon()
    disk.power_cut(lambda: False)
    assert Owner(disk).table == table


def test_close_returns_the_write_error() -> None:
    disk = Disk()
    owner = Owner(disk)
    batches(owner, 3)
    disk.space = 0
    owner.put(1, os.urandom(20000))
    owner.seal()
    assert "No space left" in (owner.store.close() or "")


# ---- the disk space stays within its bound

@pytest.mark.parametrize("keys", [1, 12, 60])
def test_the_used_disk_space_is_bounded(keys: int) -> None:
    disk = Disk()
    owner = Owner(disk)
    for n in range(600):
        owner.put(n * 7 % keys, os.urandom(900))
        if n % 5 == 4:
            owner.seal(sync=n % 50 == 49)
            owner.turn()
            while owner.clean():
                owner.seal()
                owner.turn()
            assert disk.used() <= 2 * owner.live_bytes + 3 * SEGMENT + 4096
    table = dict(owner.table)
    owner.settle()
    owner.store.abandon()
    owner = again(disk)
    assert owner.table == table and owner.loss["n"] == 0


def test_a_wrong_live_count_does_not_clean_endlessly() -> None:
    disk = Disk()
    owner = Owner(disk)
    for n in range(200):
        owner.put(n, os.urandom(900))
        owner.store.live(0)
        owner.store.seal()
        owner.turn()
        owner.clean()
    cleaned = owner.store.stats()["cleaned"]
    for _ in range(200):
        owner.store.seal()
        owner.turn()
        owner.clean()
    assert owner.store.stats()["cleaned"] < cleaned + 60
    assert len(owner.table) == 200


def test_a_wrong_live_count_bounds_the_copied_bytes() -> None:
    """Test that the amount of live data does not matter: one megabyte stays, and two others are replaced."""
    owner = Owner(Disk())
    for n in range(1000):
        owner.put(n, os.urandom(1000))
        owner.seal()
        owner.turn()
    before = owner.store.stats()["copied_bytes"]
    for _ in range(2000):
        owner.put(1000, os.urandom(1000))
        owner.store.live(0)
        owner.store.seal()
        owner.turn()
        owner.clean()
    assert owner.store.stats()["copied_bytes"] - before < 5_000_000
    assert len(owner.table) == 1001


def test_a_segment_is_examined_in_chunks_and_finished_once() -> None:
    owner = Owner(Disk())
    for n in range(40):
        owner.put(n % 3, os.urandom(900))
        owner.seal()
        if "clean" in owner.turn():
            break
    seen = []
    while records := owner.store.clean_chunk(3):
        seen += [r[0] for r in records]
    assert len(seen) > 6 and seen == sorted(set(seen))
    assert owner.store.clean_chunk(3) == []
    assert owner.store.clean_done() is False
    owner.turn()
    owner.turn()
    assert owner.store.stats()["cleaned"] == 1


# ---- reading back

def test_records_are_read_back(tmp_path: Path) -> None:
    store, _, _ = opened(tmp_path, segment_bytes=65536)
    store.live(1 << 40)
    store.start()
    bodies = {}
    for n in range(3000):
        body = os.urandom(n % 500)
        bodies[store.append(1 + n % 5, body)] = body
        if n % 100 == 0:
            store.seal()
    big = os.urandom(700_000)
    bodies[store.append(9, big)] = big
    until_written(store, store.seal())
    lsns = list(bodies)
    assert store.read(lsns[::2], 7)
    assert store.read([*lsns[1::2], 5], 8)          # 5 lies within a record
    assert not store.read([0] * 4096)               # more LSNs than one read takes
    assert not store.read([store.seal()])           # no record is there yet
    got: list[tuple[int, int, int, int, bytes]] = []
    while len(got) < len(lsns) + 1:
        store.wait()
        got += store.read_next()
    assert [(a[0], a[1]) for a in got] == [*((7, lsn) for lsn in lsns[::2]), *((8, lsn) for lsn in lsns[1::2]), (8, 5)]
    assert all(a[4] == bodies[a[1]] for a in got[:-1])
    assert got[-1][2] == 0                          # no record
    assert store.read([lsns[0]])


def test_unwritten_records_are_read_after_their_write() -> None:
    owner = Owner(Disk())
    owner.put(1, b"one")
    assert owner.store.read([owner.place[1]])
    owner.turn()
    assert owner.store.read_next() == []
    owner.seal()
    owner.turn()
    assert [a[4][4:] for a in owner.store.read_next()] == [b"one"]


def test_reads_of_written_records_do_not_wait_for_other_reads() -> None:
    owner = Owner(Disk())
    owner.put(1, b"one")
    owner.seal()
    owner.turn()
    owner.put(2, b"two")
    assert owner.store.read([owner.place[2]], 22) and owner.store.read([owner.place[1]], 11)
    owner.turn()
    assert [(a[0], a[4][4:]) for a in owner.store.read_next()] == [(11, b"one")]
    owner.seal()
    owner.turn()
    owner.turn()
    assert [(a[0], a[4][4:]) for a in owner.store.read_next()] == [(22, b"two")]


@pytest.mark.parametrize(("call", "why", "times"), [("open", errno.EMFILE, 9), ("open", errno.ENFILE, 9), ("pread", errno.ENOMEM, 9), ("pread", errno.EIO, 3)])
def test_failed_reads_are_repeated_later(call: str, why: int, times: int) -> None:
    disk = Disk()
    owner = Owner(disk)
    owner.put(1, b"one")
    owner.seal()
    owner.turn()
    disk.faults[call] = [why] * times
    assert owner.store.read([owner.place[1]])
    said = 0
    for _ in range(times):
        said += "read_error" in owner.turn()
        assert owner.store.read_next() == []
    owner.turn()
    assert [a[4][4:] for a in owner.store.read_next()] == [b"one"]
    assert said == 1 and os.strerror(why) in owner.store.error()


def test_failing_reads_are_not_repeated_endlessly() -> None:
    disk = Disk()
    owner = Owner(disk)
    for key in (1, 2):
        owner.put(key, b"%d" % key * 9000)
        owner.seal()
        owner.turn()
    disk.faults["pread"] = [errno.EIO] * 4
    assert owner.store.read([owner.place[1], owner.place[2]])
    for _ in range(6):
        owner.turn()
    got = owner.store.read_next()
    assert [a[2] for a in got] == [0, 1] and got[1][4][4:] == b"2" * 9000


def test_bodies_that_wait_to_be_taken_are_bounded() -> None:
    owner = Owner(Disk())
    owner.store.live(1 << 40)
    lsns = []
    for n in range(12):
        lsns.append(owner.store.append(1, bytes([n]) * (1 << 20)))
        owner.store.seal()
        owner.turn()
    assert owner.store.read(lsns)
    for _ in range(20):
        owner.turn()
    first = owner.store.read_next()
    assert len(first) == 4
    rest: list[tuple[int, int, int, int, bytes]] = []
    while len(rest) < 8:
        owner.turn()
        rest += owner.store.read_next()
    assert [a[4][0] for a in first + rest] == list(range(12))


# ---- with its thread

def test_cleaning_while_the_thread_writes(tmp_path: Path) -> None:
    store = PyStore(tmp_path, segment_bytes=65536)
    store.recover()
    store.start()
    place: dict[int, int] = {}
    live = 0
    for n in range(4000):
        key, body = n % 37, (n % 37).to_bytes(4, "little") + bytes(700 + n % 37 - 4)
        live += 0 if key in place else len(body) + 15
        place[key] = store.append(1, body)
        if n % 10 == 9:
            store.live(live)
            end = store.seal(n % 100 == 99)
            while store.written() < end - 100_000:
                store.wait()
            store.poll()
            for lsn, _, _, old in store.clean_chunk(1000):
                key = int.from_bytes(old[:4], "little")
                if place[key] == lsn:
                    place[key] = store.append(1, old)
            store.clean_done()
    until_written(store, store.seal(True), synced=True)
    assert store.stats()["cleaned"] > 10
    assert store.close() is None
    _, records, loss = opened(tmp_path)
    assert loss["n"] == 0
    latest = {int.from_bytes(r[3][:4], "little"): r[0] for r in records}
    assert latest == place


def test_false_record_heads_everywhere_take_linear_time() -> None:
    # Every 12 bytes stands a head with a valid check whose body is all the rest. If the store trusted each head, it would read
    # 10^13 bytes.
    disk = Disk()
    owner = Owner(disk)
    batches(owner, 1)
    owner.store.abandon()
    file = disk.files["segment.000001"]
    seed = crc(bytes(file.data[16:40]))
    n = 6 << 20
    file.data = bytearray(file.data[:HEADER])
    for at in range(0, n, 12):
        length = n - at - 12
        _, check = crc_of_record(has_hardware_crc(), seed, at, length | 5 << 32, b"")
        file.data += b"\1\1\1\1" + length.to_bytes(4, "little") + b"\5\0" + check.to_bytes(2, "little")
    for place in (0, 2048):
        file.data[place + 56:place + 64] = (1 << 25).to_bytes(8, "little")
        file.data[place + 84:place + 88] = crc(bytes(file.data[place:place + 84])).to_bytes(4, "little")
    owner = again(disk)
    assert owner.table == {} and owner.loss["n"] == 0


def test_little_room_is_reported_once_and_batches_and_cleaning_go_on() -> None:
    disk = redis_like()
    answers = [0]
    disk.low = lambda: answers[0]       # type: ignore[attr-defined]
    owner = Owner(disk)
    batches(owner, 3)
    assert "low" not in owner.news
    answers[0] = 1
    batches(owner, 3)
    assert owner.news.count("low") == 1
    assert owner.store.stats()["full"] == 1
    while owner.store.stats()["cleaned"] < 3:
        for key in range(8):
            owner.put(key, os.urandom(900))
        end = owner.seal()
        owner.turn()
        assert owner.store.written() == end
        owner.clean()
    assert "full" not in owner.news and "low_over" not in owner.news
    answers[0] = -errno.ENOTCONN                # unknown: it stays
    batches(owner, 1)
    assert owner.store.stats()["full"] == 1
    answers[0] = 0
    batches(owner, 1)
    assert owner.news.count("low_over") == 1
    assert owner.store.stats()["full"] == 0
    owner.store.abandon()
    assert again(disk).table == owner.table


def test_files_that_fail_are_not_asked_for_their_room() -> None:
    disk = redis_like()
    asked: list[int] = []

    def low() -> int:
        asked.append(1)
        return 0

    disk.low = low                      # type: ignore[attr-defined]
    owner = Owner(disk)
    batches(owner, 1)
    before = len(asked)
    disk.faults["pwrite"] = [errno.ENOTCONN] * 3
    batches(owner, 1)
    assert len(asked) == before
    disk.faults.clear()
    owner.turn()
    assert len(asked) > before
    owner.store.abandon()


class Modest(Owner):
    """An owner that counts too few live bytes."""

    def seal(self, sync: bool = False) -> int:
        self.store.live(self.live_bytes // 4)
        return self.store.seal(sync)


def test_cleaning_that_copied_in_vain_goes_on_when_less_is_live() -> None:
    """Let a round copy everything: cleaning pauses. The end of most records, in few bytes, must be enough to end the pause."""
    owner = Modest(redis_like())
    for key in range(96):
        owner.put(key, os.urandom(900))
        if key % 8 == 7:
            owner.seal()
            owner.turn()
    owner.settle()
    paused = owner.store.stats()
    assert paused["cleaned"] > 0
    owner.settle()
    assert owner.store.stats()["cleaned"] == paused["cleaned"]
    for key in range(90):
        owner.delete(key)
    owner.settle()
    assert owner.store.stats()["segments"] <= 3 < paused["segments"]
    assert set(owner.table) == set(range(90, 96))
    table = owner.table
    owner.store.abandon()
    assert again(owner.disk).table == table
