"""Test the effects of a disk, a clock or an owner on a stream, one fault at a time: each has one outcome."""

from __future__ import annotations

import errno
import gc
from pathlib import Path

import pytest

from mosq._core import PyJournal, consumer_mark, marks
from tests.journal.disk import DIR, SEGMENT, FolderDisk, Stream, first_of


@pytest.fixture
def stream() -> Stream:
    stream = Stream(FolderDisk())
    stream.fill(5)
    return stream


# ---- the disk

def test_the_writer_waits_while_the_disk_is_full(stream: Stream) -> None:
    stream.disk.space = stream.disk.used() + 30
    stream.append()
    assert not stream.write()
    stats = stream.face.stats()
    assert (stats["full"], stats["failing"], stats["poisoned"]) == (1, 0, 0)
    assert "No space left" in stream.face.why()
    stream.append()
    assert not stream.write()
    stream.disk.space = 1 << 40
    stream.commit()
    assert stream.face.stats()["full"] == 0 and stream.face.why() == ""
    stream.check()
    assert len(stream.disk.segments()) == 1


def test_a_disk_without_room_for_another_segment(stream: Stream) -> None:
    stream.disk.space = stream.disk.used() + 5000
    for _ in range(12):
        stream.append(500)
    assert not stream.write() and stream.face.stats()["full"]
    files = stream.disk.segments()
    stream.disk.space = 1 << 40
    stream.commit()
    assert len(stream.disk.segments()) > len(files)
    stream.check()


def test_a_failed_write_is_repeated_in_another_segment(stream: Stream) -> None:
    stream.append()
    assert stream.write()       # not synced: this record must be written again too
    stream.append()
    stream.disk.faults["pwrite"] = [errno.EIO]
    assert not stream.write()
    assert stream.face.stats()["failing"] and stream.face.stats()["poisoned"] == 1
    stream.commit()
    assert [first_of(name) for name in stream.disk.segments()] == [0, 5]
    stream.check()


def test_a_segment_without_a_head_hides_no_record(stream: Stream) -> None:
    stream.append()
    assert stream.write()
    stream.append()
    stream.disk.faults.update(pwrite=[errno.EIO] * 2, unlink=[errno.EIO] * 2)
    assert not stream.write() and not stream.write()
    assert len(stream.disk.segments()) == 2
    stream.kill()
    stream.open()
    assert stream.face.next_seq() == 6 and stream.face.found["lost"] == []
    assert [first_of(name) for name in stream.disk.segments()] == [0, 5]        # the part behind the mark is written again
    stream.check()


def test_a_file_whose_sync_failed_is_never_trusted(stream: Stream) -> None:
    first = stream.append()
    stream.write()
    stream.disk.faults["datasync"] = [errno.EIO]
    assert not stream.face.sync()           # the disk forgets data that was to be synced, and reports it once
    assert stream.face.mark()
    assert marks(DIR, disk=stream.disk)["shards"][0]["seq"] == first
    stream.commit()
    assert len(stream.disk.segments()) == 2
    stream.face.close()
    stream.disk.power_cut(lambda: False)
    stream.open()
    assert stream.face.found["lost"] == [] and stream.face.next_seq() == first + 1
    stream.check()


def test_a_new_file_whose_sync_failed_is_created_again() -> None:
    stream = Stream(FolderDisk())
    stream.append()
    stream.write()
    file = stream.disk.files[stream.disk.segments()[0]]
    stream.disk.faults["datasync"] = [errno.EIO]
    assert not stream.face.sync()
    stream.commit()
    assert stream.disk.files[stream.disk.segments()[0]] is not file
    stream.check()


def test_a_folder_that_cannot_be_synced_holds_the_mark_back() -> None:
    stream = Stream(FolderDisk())
    stream.append()
    stream.write()
    stream.disk.faults["sync_dir"] = [errno.EIO]
    assert not stream.face.sync()
    stream.face.mark()
    assert marks(DIR, disk=stream.disk)["shards"][0]["seq"] == 0
    stream.commit()
    stream.check()


def test_a_failed_mark_write_leaves_the_other_mark(stream: Stream) -> None:
    for call in ("pwrite", "datasync"):
        stream.append()
        stream.write()
        stream.face.sync()
        before = marks(DIR, disk=stream.disk)
        stream.disk.faults[call] = [errno.EIO]
        assert not stream.face.mark()
        assert "mark" in stream.face.why()
        assert marks(DIR, disk=stream.disk) == before
        stream.face.close()
        stream.disk.power_cut(lambda: False)
        stream.open()
        assert stream.face.found["lost"] == []
        assert stream.face.found["beyond"] == 1
        stream.check()


# ---- a mark whose sync failed before a kill: the page cache shows it to the next process, and a sync by that process would succeed

def fail_mark(stream: Stream, syncs_before: int = 0) -> None:
    """Let the next mark fail, and the removal of its file."""
    stream.disk.faults.update(datasync=["ok"] * syncs_before + [errno.EIO], unlink=[errno.EIO] * 2)


def test_a_lost_mark_brings_no_dropped_record_back(stream: Stream) -> None:
    """A start drops a record that was never committed, and cannot write its mark."""
    stream.append()
    assert stream.write() and stream.face.sync()
    stream.kill()
    stream.options["until"] = [5]
    fail_mark(stream, syncs_before=1)
    with pytest.raises(OSError, match="Cannot write the mark in"):
        stream.open()
    stream.disk.kill()
    stream.open()
    assert stream.append() == 5                 # the number of the dropped record
    assert stream.write() and stream.face.sync()
    stream.options["until"] = [6]
    cut(stream)
    assert stream.face.next_seq() == 6
    stream.check()


def test_a_lost_mark_makes_no_removed_segment_missing() -> None:
    stream = Stream(FolderDisk(), retain_age_us=1)
    rows_of(stream, 12)
    stream.kill()
    stream.open()
    fail_mark(stream)
    assert not stream.face.retain(10**9)
    stream.kill()
    stream.open()
    assert stream.face.retain(10**9) and len(stream.disk.segments()) == 1
    stream.face.close()
    stream.disk.power_cut(lambda: True)
    stream.open()
    first = stream.face.marks()["shards"][0]["first_seq"]
    assert first >= 8
    stream.check(lost=[(0, "retired", 0, first)])


def test_a_start_that_fails_keeps_a_mark_on_the_disk() -> None:
    stream = Stream(FolderDisk())
    stream.append()
    assert stream.write() and stream.face.sync()
    fail_mark(stream)
    assert not stream.face.mark()
    stream.kill()
    stream.disk.faults["datasync"] = ["ok", errno.EIO]
    with pytest.raises(OSError, match="Cannot write the mark in"):
        stream.open()
    stream.disk.power_cut(lambda: True)
    stream.open()
    assert not stream.face.found["mark_lost"] and stream.face.found["beyond"] == 1
    stream.check()


@pytest.mark.parametrize("call", ["open", "pwrite", "datasync", "rename", "sync_dir"])
def test_a_mark_that_a_start_cannot_write_is_written_later(stream: Stream, call: str) -> None:
    stream.kill()
    stream.disk.faults[call] = [errno.EIO] * 20
    with pytest.raises(OSError, match="Input/output error"):
        stream.open()
    stream.disk.kill()
    stream.open()
    cut(stream)
    stream.fill(1)
    stream.check()


def test_retention_makes_room_on_a_full_disk_after_a_start() -> None:
    """The mark is written in place then."""
    stream = Stream(FolderDisk(), retain_bytes=6 * SEGMENT)
    rows_of(stream, 40)
    stream.kill()
    stream.options["retain_bytes"] = 3 * SEGMENT
    stream.disk.space = stream.disk.used()
    stream.open()
    assert stream.face.retain()
    stream.commit()
    cut(stream)
    first = stream.face.marks()["shards"][0]["first_seq"]
    assert first > 20
    stream.check(lost=[(0, "retired", 0, first)])


def test_a_segment_without_an_index_is_still_read() -> None:
    stream = Stream(FolderDisk())
    stream.append()
    stream.disk.faults["open"] = ["ok", errno.EMFILE]
    stream.commit()
    assert stream.face.stats()["index_errors"] == 1
    stream.check()


def test_a_lost_range_is_reported_and_its_numbers_are_not_reused(stream: Stream) -> None:
    stream.kill()
    name = stream.disk.segments()[0]
    del stream.disk.files[name].data[4096 + 200:]
    stream.open()
    (shard, why, lo, hi), = stream.face.found["lost"]
    assert (shard, why, hi) == (0, "missing", 5) and 0 < lo < 5
    assert stream.append() == 5
    stream.commit()
    stream.check(lost=[(0, "damaged", lo, hi)])      # a piece of a block is left
    stream.kill()
    stream.open()               # the writer reports it once, a reader always
    assert stream.face.found["lost"] == []
    stream.check(lost=[(0, "damaged", lo, hi)])      # a piece of a block is left


def test_a_start_syncs_unsynced_records_before_it_marks_them(stream: Stream) -> None:
    stream.append()
    stream.write()
    stream.kill()
    stream.open()
    assert stream.face.found["beyond"] == 1
    stream.check()
    stream.face.close()
    stream.disk.power_cut(lambda: False)
    stream.open()
    assert stream.face.found["lost"] == [] and stream.face.next_seq() == 6
    stream.check()


# ---- written records survive a kill, whatever failed before

def cut(stream: Stream) -> None:
    """Cut the power and start again: only records on the disk may be reported then."""
    stream.face.close()
    stream.disk.power_cut(lambda: False)
    stream.open()
    assert stream.face.found["lost"] == []


@pytest.mark.parametrize("before", [0, 5])
def test_a_kill_after_a_failed_sync_loses_no_record(before: int) -> None:
    stream = Stream(FolderDisk())
    stream.fill(before)
    stream.append()
    assert stream.write()
    stream.disk.faults["datasync"] = [errno.EIO]
    assert not stream.face.sync()
    stream.kill()
    stream.open()
    assert (stream.face.next_seq(), stream.face.found["beyond"]) == (before + 1, 1)
    stream.check()
    cut(stream)
    assert stream.face.next_seq() == before + 1
    stream.check()


def test_a_kill_before_the_repeated_write_is_complete(stream: Stream) -> None:
    for _ in range(4):
        stream.append(300)
        assert stream.write()
    stream.disk.faults["pwrite"] = [errno.EIO]
    stream.append()
    assert not stream.write()
    stream.disk.faults["pwrite"] = ["ok"] * 3 + [errno.EIO]       # a head and two of the repeated blocks are written
    assert not stream.write()
    stream.kill()
    stream.open()
    assert stream.face.next_seq() == 9
    stream.append()
    stream.commit()
    stream.check()


def test_a_new_segment_does_not_hide_records_of_an_earlier_one(stream: Stream) -> None:
    for _ in range(4):
        stream.append(300)
        assert stream.write()
    stream.disk.faults["datasync"] = [errno.EIO]
    assert not stream.face.sync()
    stream.disk.space = stream.disk.used() + 4096 + 500
    stream.append()
    assert not stream.write() and stream.face.sync() and stream.face.mark()      # one block is on the disk now
    stream.kill()
    stream.disk.space = 1 << 40
    stream.open()
    assert stream.face.next_seq() == 9
    stream.check()


def test_repeated_sync_failures_leave_one_file() -> None:
    stream = Stream(FolderDisk())
    for n in range(20):
        stream.append(10)
        assert stream.write()
        stream.disk.faults["datasync"] = [errno.EIO]
        assert not stream.face.sync()
        assert len(stream.disk.segments()) <= 1, n
    stream.kill()
    stream.open()
    assert stream.face.next_seq() == 20
    assert len(stream.disk.segments()) == 1 == len(stream.disk.segments("idx"))
    cut(stream)
    stream.check()


def test_retention_keeps_segments_that_a_start_needs() -> None:
    stream = Stream(FolderDisk(), retain_age_us=1)
    stream.fill(3)
    for _ in range(2):
        stream.append(300)
        assert stream.write()
    stream.disk.faults["datasync"] = [errno.EIO]
    assert not stream.face.sync()
    stream.disk.space = stream.disk.used() + 4096 + 500
    assert not stream.write() and stream.face.sync() and stream.face.mark()
    stream.face.retain(10**9)
    assert len(stream.disk.segments()) == 2         # the older segment has expired, but its records are not written again yet
    stream.kill()
    stream.disk.space = 1 << 40
    stream.open()
    assert stream.face.next_seq() == 5
    stream.face.retain(10**9)
    assert len(stream.disk.segments()) == 1


def test_a_start_on_a_full_disk_keeps_records_in_memory(stream: Stream) -> None:
    for _ in range(3):
        stream.append(500)
        assert stream.write()
    for _ in range(2):
        stream.kill()
        stream.disk.space = stream.disk.used() + 100
        stream.open()
        assert stream.face.stats()["full"] and stream.face.next_seq() == 8
        assert not stream.write()
    stream.append()
    assert not stream.write()
    stream.check()              # readers do not see the record yet
    stream.disk.space = 1 << 40
    stream.commit()
    cut(stream)
    assert stream.face.next_seq() == 9
    stream.check()


def test_a_start_copies_more_than_the_memory_limit() -> None:
    stream = Stream(FolderDisk(), segment_bytes=8 << 20, block_bytes=1 << 20)
    for _ in range(25):
        stream.append(1_000_000)
        assert stream.write()
    stream.kill()
    stream.open()
    assert stream.face.found["beyond"] > 20
    stream.face.seal()
    assert stream.face.room() and stream.face.waiting_bytes() == 0
    cut(stream)
    stream.check()
    names = stream.disk.segments()
    stream.kill()
    stream.open()
    assert stream.disk.segments() == names


def test_an_invalid_file_with_a_segment_name_ends_no_segment(stream: Stream) -> None:
    stream.kill()
    stream.disk.put(f"{DIR}/000-{0:020}-{77:020}.seg", b"anything")
    names = stream.disk.segments()
    stream.open()
    assert stream.disk.segments() == names and stream.face.found["unreadable"] == 1
    stream.fill(1)
    assert f"{78:020}" in stream.disk.segments()[-1]
    del stream.disk.files[f"{DIR}/000-{0:020}-{77:020}.seg"]
    stream.check()


# ---- written records that the owner never committed

@pytest.mark.parametrize("full", [False, True])
def test_uncommitted_records_are_dropped_and_their_numbers_reused(stream: Stream, full: bool) -> None:
    for _ in range(8):
        stream.append(700)      # beyond the end of a segment
        assert stream.write()
    stream.kill()
    stream.disk.space = stream.disk.used() + (100 if full else 1 << 30)
    stream.options["until"] = [7]
    stream.open()
    assert stream.face.next_seq() == 7 and stream.face.found["lost"] == []
    assert (stream.face.found["beyond"], stream.face.found["dropped"]) == (2, 6)
    stream.disk.space = stream.disk.used() + 2 * 4096 + 2 * 900     # a segment of the earlier node, and one of this one
    stream.append()             # it takes the place of the first dropped record
    stream.write()
    stream.kill()
    stream.disk.space = 1 << 40
    stream.options["until"] = [8]
    stream.open()
    assert stream.face.next_seq() == 8 and stream.face.found["lost"] == []
    assert stream.face.found["dropped"] == 0
    cut(stream)
    stream.options["until"] = []
    stream.kill()
    stream.open()
    assert stream.face.next_seq() == 8      # no dropped record returns
    stream.check()


def test_missing_committed_records_are_reported(stream: Stream) -> None:
    stream.kill()
    stream.options["until"] = [9]
    stream.open()
    assert stream.face.found["lost"] == [(0, "missing", 5, 9)]
    assert stream.append() == 9
    stream.commit()
    stream.check(lost=[(0, "missing", 5, 9)])
    stream.kill()
    stream.open()
    assert stream.face.found["lost"] == []


def test_shards_without_a_batch_have_no_committed_records(stream: Stream) -> None:
    stream.shards = 2
    stream.kill()
    stream.open()
    stream.append(shard=1)
    assert stream.write()
    stream.kill()
    stream.options["until"] = [5]
    stream.open()
    assert stream.face.next_seq(1) == 0 and stream.face.found["dropped"] == 1


@pytest.mark.parametrize("call", ["datasync", "pread"])
def test_a_start_on_a_failing_disk_is_refused(stream: Stream, call: str) -> None:
    stream.append()
    stream.write()
    stream.kill()
    stream.disk.faults[call] = [errno.EIO] * 20
    with pytest.raises(OSError, match="Input/output error"):
        stream.open()
    stream.disk.faults.clear()
    stream.disk.failed.clear()
    stream.open()
    assert stream.face.next_seq() == 6


def test_a_start_is_refused_while_a_file_cannot_be_read_for_now(stream: Stream) -> None:
    """Let each read of a start fail as those of files in Redis do while Redis is away."""
    stream.disk.deferred = stream.disk.unreserved = True
    stream.append()
    stream.write()
    stream.kill()
    stream.disk.calls.clear()
    stream.open()
    reads = stream.disk.calls.count("pread")
    assert reads >= 4               # two marks, a head, blocks
    for at in range(reads):
        stream.kill()
        stream.disk.faults["pread"] = ["ok"] * at + [errno.ENOTCONN]
        with pytest.raises(OSError, match="Transport endpoint is not connected"):
            stream.open()
    stream.kill()
    stream.open()
    assert stream.face.next_seq() == 6
    stream.commit()
    stream.check()


def test_unreadable_records_are_reported_and_the_rest_is_read() -> None:
    stream = Stream(FolderDisk(), 1, segment_bytes=1 << 20)
    stream.fill(400, size=3000)
    bad = 600_000
    pread = stream.disk.pread
    stream.disk.pread = lambda fd, n, at: -errno.EIO if at <= bad < at + n else pread(fd, n, at)    # type: ignore[method-assign]
    records, lost = stream.read()
    assert len(records) == 399
    assert [(why, hi - lo) for _, why, lo, hi in lost] == [("damaged", 1)]


def patient(stream: Stream, most: int) -> list[int]:
    """Return all numbers that a reader gets if it repeats failed calls."""
    def again(what):
        for _ in range(100):
            try:
                return what()
            except OSError as error:
                assert error.errno != errno.EIO
        raise AssertionError("it never came to an end")

    reader = again(stream.reader)
    found = []
    while got := again(lambda: reader.read(most=most)):
        found += [record[0] for record in got]
    assert reader.lost() == []
    again(lambda: reader.seek_time(0))
    while (got := again(lambda: reader.columns(rows=most)))[0]:
        found += memoryview(got[1]["seq"][1][1]).cast("q")
    assert reader.lost() == []
    return found


@pytest.mark.parametrize("fault", [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EACCES])
def test_a_reader_retries_files_that_it_could_not_open(fault: int) -> None:
    """Test each call that may fail."""
    stream = Stream(FolderDisk())
    stream.fill(40, size=900)
    for n in range(60):
        stream.disk.faults["open"] = ["ok"] * n + [fault] * 3
        assert patient(stream, 7) == [*range(40)] * 2
        if stream.disk.faults["open"]:
            break
    assert 20 < n < 59


def test_a_reader_retries_a_folder_that_it_could_not_read(stream: Stream) -> None:
    stream = Stream(FolderDisk(), retain_bytes=3 * SEGMENT)
    stream.fill(20, size=900)
    reader = stream.reader()
    stream.fill(20, size=900)
    assert stream.face.retain()
    reader.refresh()
    stream.fill(40, size=900)
    assert stream.face.retain()         # the listed files are gone, so the reader lists them again
    names = stream.disk.names
    stream.disk.names = lambda path: 1 // 0     # type: ignore[method-assign, assignment, return-value]
    first = stream.face.marks()["shards"][0]["first_seq"]
    for _ in range(3):
        with pytest.raises(OSError, match="Input/output error"):
            reader.refresh()
        with pytest.raises(OSError, match="Input/output error"):
            reader.read()
    stream.disk.names, stream.disk.broken = names, None         # type: ignore[method-assign]
    assert [record[0] for record in reader.read()] == [*range(first, 80)]
    assert reader.lost() == [(0, "retired", 0, first)]


# ---- retention

def rows_of(stream: Stream, n: int) -> None:
    for _ in range(n):
        stream.append(900, step_us=100)
        stream.commit()


def test_retention_by_age_drops_whole_segments(stream: Stream) -> None:
    stream = Stream(FolderDisk(), retain_age_us=1000)
    rows_of(stream, 40)
    assert stream.face.retain(stream.clock_us)
    first = stream.face.marks()["shards"][0]["first_seq"]
    assert 20 < first < 40
    assert stream.face.stats()["retired_records"] == first
    stream.check(lost=[(0, "retired", 0, first)])
    assert stream.face.retain(stream.clock_us + 10**9)
    assert len(stream.disk.segments()) == 1         # the last segment stays
    assert len(stream.disk.segments("idx")) == 1


def test_a_quiet_stream_begins_a_new_segment_by_age() -> None:
    stream = Stream(FolderDisk(), roll_age_us=500)
    stream.append()
    stream.commit()
    stream.append(step_us=499)
    stream.commit()
    assert len(stream.disk.segments()) == 1
    stream.append(step_us=10)
    stream.commit()
    assert len(stream.disk.segments()) == 2
    stream.check()


def test_retention_by_bytes_drops_the_oldest_of_all_shards() -> None:
    stream = Stream(FolderDisk(), 2, retain_bytes=6 * SEGMENT)
    for _ in range(40):
        stream.append(900)
        stream.append(900, shard=1)
        stream.commit()
    assert stream.face.retain()
    assert stream.face.stats()["total_bytes"] <= 6 * SEGMENT
    first = [mark["first_seq"] for mark in stream.face.marks()["shards"]]
    assert abs(first[0] - first[1]) <= 4
    for shard in range(2):
        stream.check(shard, lost=[(shard, "retired", 0, first[shard])])


def test_unread_records_of_a_consumer_stay() -> None:
    stream = Stream(FolderDisk(), retain_age_us=1)
    rows_of(stream, 40)
    stream.disk.put(f"{DIR}/consumers/slow", consumer_mark([10], 1))
    stream.disk.put(f"{DIR}/consumers/quick", consumer_mark([40], 1))
    stream.face.retain(10**9)
    first = stream.face.marks()["shards"][0]["first_seq"]
    assert 6 < first <= 10
    assert stream.face.stats()["consumers"] == 2 and stream.face.stats()["forced_records"] == 0
    stream.disk.put(f"{DIR}/consumers/slow", b"nothing")
    stream.face.retain(10**9)
    assert stream.face.marks()["shards"][0]["first_seq"] == first
    assert stream.face.stats()["consumers_unreadable"] == 1
    del stream.disk.files[f"{DIR}/consumers/slow"]
    stream.face.retain(10**9)
    assert stream.face.marks()["shards"][0]["first_seq"] > 30


def test_the_byte_limit_overrides_consumers_and_is_counted() -> None:
    stream = Stream(FolderDisk(), retain_bytes=3 * SEGMENT)
    rows_of(stream, 40)
    stream.disk.put(f"{DIR}/consumers/slow", consumer_mark([10], 1))
    stream.face.retain()
    first = stream.face.marks()["shards"][0]["first_seq"]
    assert first > 20
    assert stream.face.stats()["forced_records"] == first - 10


def test_a_consumer_holds_back_retention_in_new_shards() -> None:
    stream = Stream(FolderDisk(), 2, retain_age_us=1)
    stream.fill(40, size=900, shard=1)
    stream.disk.put(f"{DIR}/consumers/old", consumer_mark([40], 1))
    stream.face.retain(10**9)
    assert stream.face.marks()["shards"][1]["first_seq"] == 0


def test_a_segment_that_cannot_be_removed_counts_as_retired() -> None:
    stream = Stream(FolderDisk(), retain_age_us=1)
    rows_of(stream, 12)
    files = stream.disk.segments()
    stream.disk.faults["unlink"] = [errno.EIO] * 2
    assert not stream.face.retain(10**9)
    first = stream.face.marks()["shards"][0]["first_seq"]
    assert stream.disk.segments() == files and first >= 8
    stream.check(lost=[(0, "retired", 0, first)])
    assert stream.face.retain(10**9)
    assert len(stream.disk.segments()) == 1


# ---- the owner

def test_the_number_of_shards_only_grows(stream: Stream) -> None:
    stream.kill()
    stream.shards = 3
    stream.open()
    stream.fill(4, shard=2)
    stream.append()
    stream.commit()
    stream.kill()
    stream.shards = 2
    stream.open()
    assert stream.face.shards == 3
    stream.check(0)
    stream.check(2)
    assert len(stream.disk.segments()) == 3         # one more for shard 0: a segment has a fixed number of shards


def test_memory_is_bounded_and_no_waiting_record_is_lost() -> None:
    stream = Stream(FolderDisk(), waiting_max_bytes=64 << 10)
    stream.disk.space = stream.disk.used()
    n = 0
    while stream.face.room():
        stream.append(1000)
        n += 1
        assert n < 100
    with pytest.raises(BlockingIOError):
        [stream.append(1000) for _ in range(5)]
    stream.face.seal()
    assert not stream.face.write()
    assert stream.face.waiting_bytes() <= 64 << 10
    stream.disk.space = 1 << 40
    stream.commit()
    stream.face.seal()
    assert stream.face.room()
    assert n > 40
    stream.check()


def test_one_large_record_may_exceed_the_memory_limit() -> None:
    stream = Stream(FolderDisk(), 2, waiting_max_bytes=64 << 10)
    stream.append(1000)
    stream.append(200_000)
    for size, shard in ((1000, 1), (200_000, 0), (200_000, 1)):
        with pytest.raises(BlockingIOError):
            stream.append(size, shard)
    assert stream.face.waiting_bytes() < 300_000
    for _ in range(2):
        stream.commit()
    stream.face.seal()
    assert stream.face.room() and stream.face.waiting_bytes() == 0
    stream.append(1000, 1)
    stream.commit()
    stream.check()
    stream.check(1)


def test_waiting_bytes_return_to_zero_after_each_write() -> None:
    stream = Stream(FolderDisk(), segment_bytes=1 << 20)
    waiting = []
    for _ in range(50):
        for _ in range(30):
            stream.append(100)
        stream.commit()
        stream.face.seal()
        stream.face.room()
        waiting.append(stream.face.waiting_bytes())
    assert set(waiting) == {0}
    stream.check()


def test_a_record_larger_than_a_block_gets_its_own_block(stream: Stream) -> None:
    for size in (10, 70_000, 10, 300_000, 4096):
        stream.append(size)
    stream.commit()
    stream.check()


def test_values_that_exceed_a_record_are_refused(stream: Stream) -> None:
    with pytest.raises(ValueError):
        stream.face.append(0, topic=b"x" * 65536)
    with pytest.raises(ValueError):
        stream.face.append(0, kind=0)
    assert stream.append() == 5


def test_seek_time_finds_the_first_place_after_a_clock_jump_back(stream: Stream) -> None:
    times = [5000, 5100, 4000, 4200, 6000, 5500, 7000]
    for time_us in times:
        stream.face.append(0, time_us=time_us)
        stream.commit()
    reader = stream.reader()
    for time_us in (4100, 5050, 6000, 6500):
        assert reader.seek_time(time_us) == 5 + next(i for i, t in enumerate(times) if t >= time_us)


def test_a_block_ends_before_its_times_overflow(stream: Stream) -> None:
    start = 10**12
    for delta in (0, 2**32 - 1, 2**32, 2**33):
        stream.face.append(0, time_us=start + delta)
    stream.commit()
    assert [r[1] for r in stream.read(seq=5)[0]] == [start, start + 2**32 - 1, start + 2**32, start + 2**33]


def test_the_collector_closes_a_stream_before_its_disk() -> None:
    """They are garbage at the same time, and the list drops the disk first."""
    ends = []

    class ClosingDisk(FolderDisk):
        def close(self, fd: int) -> int:
            ends.append(fd)
            return 0

    stream = Stream(ClosingDisk())
    stream.fill(1)
    reader = stream.reader()
    reader.read()
    ends.clear()
    garbage: list[object] = [stream.face, reader, stream.disk]
    garbage.append(garbage)
    del stream, reader, garbage
    gc.collect()
    assert len(ends) > 3


# ---- with the system's files

def test_two_writers_never_share_a_stream(tmp_path: Path) -> None:
    face = PyJournal(tmp_path / "s")
    with pytest.raises(OSError, match="in use by another broker; stop it"):
        PyJournal(tmp_path / "s")
    face.close()
    PyJournal(tmp_path / "s").close()


def test_a_missing_directory_is_an_error_with_advice(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"No such file or directory; make the directory"):
        PyJournal(tmp_path / "no" / "s", create=False)
