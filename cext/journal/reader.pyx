"""Read a stream by sequence number or by time. This module knows what the mark allows. It does not know the writer, or whether
there is one.

Invariants: `seq` only rises. Each number below it was returned, or is in a range of `loss` with its reason. Nothing is read
behind the mark. The mark is read before the folder is listed, and a segment ends where a later one begins: so bytes behind that
place in its file (left by a failed sync, or by a broker that was killed) are never taken for a record. Index entries are
optional: a wrong one only costs time. A file that cannot be opened now (no descriptor, no memory, no right) is an error and no
damage: the same call then continues at the same record.
"""

from libc.errno cimport EINVAL, ENOENT
from libc.stdint cimport UINT64_MAX, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset, strlen

from cext.journal.format cimport INDEX_ENTRY, IndexEntry, JOURNAL_FORMAT, SEGMENT_HEAD_BYTES, SegmentHead, index_read
from cext.journal.journal cimport JOURNAL_PATH_MAX, LOSS_DAMAGED, LOSS_MISSING, LOSS_RETIRED, journal_loss_add
from cext.journal.listing cimport (
    HEAD_DAMAGED, HEAD_RIGHT, is_passing, journal_segment_path, marks_read, segment_listing_free, segment_listing_read,
    segment_look,
)
from cext.journal.record cimport journal_record_get
from cext.journal.walk cimport (
    journal_walk_begin, journal_walk_body, journal_walk_end, journal_walk_free, journal_walk_head, journal_walk_init,
    journal_walk_search,
)
from cext.store.crc cimport crc_hardware
from cext.store.file cimport file_read, file_system

cdef extern from "<fcntl.h>" nogil:
    int O_RDONLY
    int O_NOFOLLOW

cdef enum:
    ENTRIES_READ = 128          # index entries read at once


cdef int reader_open(Reader* r, const char* dir, uint32_t shard, const FileOps* files) noexcept nogil:
    cdef int got
    memset(r, 0, sizeof(Reader))
    r.files = files[0] if files != NULL else file_system()[0]
    r.hardware = crc_hardware()
    r.shard = shard
    journal_walk_init(&r.walk, &r.files, r.hardware)
    if strlen(dir) >= JOURNAL_PATH_MAX:
        return -EINVAL
    memcpy(r.dir, dir, strlen(dir) + 1)
    got = reader_refresh(r)
    return got if got < 0 else reader_seek(r, 0)


cdef void reader_close(Reader* r) noexcept nogil:
    journal_walk_free(&r.walk)
    segment_listing_free(&r.list)


cdef int reader_refresh(Reader* r) noexcept nogil:
    cdef int slot, got
    r.stale = 1
    got = marks_read(&r.files, r.hardware, r.dir, &r.marks, &slot)
    if got < 0:
        return got
    if r.marks.format > JOURNAL_FORMAT or r.shard >= r.marks.n:
        return -EINVAL
    r.end = r.marks.shards[r.shard].seq
    r.block_end = r.block_seq           # the block in memory may end before records that exist now: it is searched again
    journal_walk_end(&r.walk)
    got = segment_listing_read(&r.list, &r.files, r.dir, r.shard)
    r.stale = got < 0
    return got


cdef int reader_seek(Reader* r, uint64_t seq) noexcept nogil:
    journal_walk_end(&r.walk)
    r.block_seq = r.block_end = 0
    memset(&r.loss, 0, sizeof(r.loss))
    r.seq = min(seq, r.end)
    return 0


# ---- segments

cdef uint64_t index_offset(Reader* r, uint32_t at, uint64_t seq, uint64_t time_us, uint64_t* first_seq) noexcept nogil:
    """Return the offset of the last block in that segment's index that does not begin behind seq, and before which all records
    are older than time_us."""
    cdef char path[4096]
    cdef uint8_t p[4096]
    cdef IndexEntry e
    cdef uint64_t number = 0, offset = SEGMENT_HEAD_BYTES
    cdef int64_t got
    cdef uint32_t i
    cdef int fd
    journal_segment_path(path, r.dir, r.shard, r.list.files[at].base_seq, r.list.files[at].number, b"idx")
    fd = r.files.open(r.files.ctx, path, O_RDONLY | O_NOFOLLOW)
    if fd < 0:
        return offset
    while True:
        got = file_read(&r.files, fd, p, ENTRIES_READ * INDEX_ENTRY, number * INDEX_ENTRY)
        if got < INDEX_ENTRY:
            break
        for i in range(<uint32_t>got // INDEX_ENTRY):
            if index_read(r.hardware, p + i * INDEX_ENTRY, r.walk.seed, number + i, &e) == 0 and e.first_seq <= seq and e.time_us < time_us \
                    and offset < e.offset <= r.walk.size:
                offset = e.offset
                first_seq[0] = e.first_seq
        number += <uint64_t>got // INDEX_ENTRY
    r.files.close(r.files.ctx, fd)
    return offset


cdef int segment_enter(Reader* r, uint32_t at, uint64_t seq, uint64_t time_us) noexcept nogil:
    """Open a segment. Return 1 at a block that is not behind seq; 0 if it cannot be read; -ENOENT if it was dropped; or
    -errno."""
    cdef SegmentHead h
    cdef uint64_t size = 0, offset, first_seq = r.list.files[at].base_seq
    cdef int state = HEAD_DAMAGED
    cdef int fd = segment_look(&r.files, r.hardware, r.dir, &r.list.files[at], r.marks.stream_id, &h, &state, &size)
    if fd == -ENOENT or is_passing(fd):
        return fd
    if fd < 0:
        return 0
    if state != HEAD_RIGHT:
        r.files.close(r.files.ctx, fd)
        return 0
    r.at = at
    memcpy(r.node, h.node, sizeof(h.node))
    journal_walk_begin(&r.walk, fd, h.seed, size, SEGMENT_HEAD_BYTES)
    offset = index_offset(r, at, seq, time_us, &first_seq)
    r.walk.at = offset
    if offset != SEGMENT_HEAD_BYTES and (journal_walk_head(&r.walk) != 1 or r.walk.head.first_seq != first_seq):
        offset = SEGMENT_HEAD_BYTES
    r.walk.at = offset
    return 1


cdef uint64_t segment_limit(Reader* r, uint32_t at) noexcept nogil:
    """Return the number at which that segment ends."""
    return min(r.list.files[at + 1].base_seq, r.end) if at + 1 < r.list.n else r.end


cdef void reader_lose(Reader* r, uint32_t why, uint64_t end) noexcept nogil:
    """Add the numbers from r.seq to `end` to the losses, and continue at `end`."""
    if end <= r.seq:
        return
    journal_loss_add(&r.loss, r.shard, why, r.seq, end)
    r.seq = end


cdef int segment_find(Reader* r) noexcept nogil:
    """Open the segment of r.seq, or continue behind the lost range. Return 0 or -errno."""
    cdef uint32_t lo = 0, hi = r.list.n, mid
    cdef int got
    if r.seq < r.marks.shards[r.shard].first_seq:       # the file may still exist, but only for a short time
        reader_lose(r, LOSS_RETIRED, r.marks.shards[r.shard].first_seq)
        return 0
    while lo < hi:                      # search the first segment that begins behind r.seq
        mid = (lo + hi) // 2
        if r.list.files[mid].base_seq <= r.seq:
            lo = mid + 1
        else:
            hi = mid
    if lo == 0:
        reader_lose(r, LOSS_MISSING, min(r.list.files[0].base_seq, r.end) if r.list.n else r.end)
        return 0
    got = segment_enter(r, lo - 1, r.seq, UINT64_MAX)
    if got == -ENOENT:                  # dropped since the folder was listed: the mark then shows it
        got = reader_refresh(r)
        if got == 0 and r.seq >= r.marks.shards[r.shard].first_seq:
            reader_lose(r, LOSS_MISSING, segment_limit(r, lo - 1) if lo - 1 < r.list.n else r.end)
        return got
    if got == 0:
        reader_lose(r, LOSS_DAMAGED, segment_limit(r, lo - 1))
    return min(got, 0)


# ---- blocks

cdef int block_find(Reader* r, uint64_t limit) noexcept nogil:
    """Load the next block of the open segment with numbers from r.seq on. Return 1; 0 = search again (r.seq has risen, or the
    segment has ended); or -errno."""
    cdef JournalWalk* w = &r.walk
    cdef uint64_t end
    cdef bint damaged = 0
    cdef int got = journal_walk_head(w)
    if is_passing(got):
        return got
    if got != 1:
        damaged = w.at < w.size
        got = journal_walk_search(w)
    if got < 0:
        return got
    if got == 0 or w.head.first_seq >= limit:
        reader_lose(r, LOSS_DAMAGED if damaged else LOSS_MISSING, limit)
        return 0
    end = w.head.first_seq + w.head.count
    if end <= r.seq:
        return 0
    reader_lose(r, LOSS_DAMAGED if damaged else LOSS_MISSING, w.head.first_seq)
    got = journal_walk_body(w)
    if is_passing(got):
        w.at = w.here            # it is searched again
        return got
    if got != 1:
        reader_lose(r, LOSS_DAMAGED, min(end, limit))
        return 0
    r.block_seq = w.head.first_seq
    r.block_end = min(end, limit)
    r.block_time_us = w.head.time_us
    r.commit_us = w.head.commit_us
    r.next = w.body
    r.stop = w.body + w.head.body_n
    return 1


cdef void block_skip(Reader* r) noexcept nogil:
    """Go to the record of r.seq."""
    cdef JournalRecord record
    while r.block_seq < r.seq and reader_take_any(r, &record):
        pass


cdef bint reader_take_any(Reader* r, JournalRecord* record) noexcept nogil:
    cdef uint32_t n
    if r.block_seq >= r.block_end:
        return 0
    n = journal_record_get(r.next, <uint64_t>(r.stop - r.next), record)
    if n == 0:                          # the checksum is right, and yet there is no record: nothing behind it can be found either
        r.seq = max(r.seq, r.block_seq)
        reader_lose(r, LOSS_DAMAGED, r.block_end)
        r.block_seq = r.block_end
        return 0
    record.seq = r.block_seq
    record.time_us += r.block_time_us
    r.next += n
    r.block_seq += 1
    return 1


cdef bint reader_take(Reader* r, JournalRecord* record) noexcept nogil:
    if not reader_take_any(r, record):
        return 0
    r.seq = r.block_seq
    return 1


cdef void reader_back(Reader* r, uint64_t seq) noexcept nogil:
    r.seq = seq
    r.block_seq = r.block_end = 0
    journal_walk_end(&r.walk)


cdef int reader_load(Reader* r, uint64_t until) noexcept nogil:
    cdef uint64_t limit
    cdef int got = reader_refresh(r) if r.stale else 0
    if got < 0:
        return got
    until = min(until, r.end)
    while r.seq < until:
        if r.block_seq < r.block_end:
            block_skip(r)
            if r.block_seq < r.block_end:
                return 1
            continue
        if r.walk.fd < 0:
            got = segment_find(r)
            if got < 0:
                return got
            continue
        limit = segment_limit(r, r.at)
        if r.seq >= limit or r.at >= r.list.n:
            journal_walk_end(&r.walk)
            continue
        got = block_find(r, limit)
        if got < 0:
            return got
    return 0


cdef int reader_next(Reader* r, uint64_t until, JournalRecord* record) noexcept nogil:
    cdef int got = reader_load(r, until)
    while got == 1 and not reader_take(r, record):
        got = reader_load(r, until)
    return got


# ---- by time

cdef uint64_t segment_time(Reader* r, uint32_t at) noexcept nogil:
    """Return the largest time before that segment. A segment that cannot be read counts as a late one, which only costs time."""
    cdef SegmentHead h
    cdef uint64_t size
    cdef int state = HEAD_DAMAGED
    cdef int fd = segment_look(&r.files, r.hardware, r.dir, &r.list.files[at], r.marks.stream_id, &h, &state, &size)
    if fd >= 0:
        r.files.close(r.files.ctx, fd)
    return h.time_us if fd >= 0 and state == HEAD_RIGHT else UINT64_MAX


cdef int reader_seek_time(Reader* r, uint64_t time_us) noexcept nogil:
    cdef uint32_t lo = 0, hi, mid
    cdef JournalRecord record
    cdef uint64_t first_seq
    cdef int got = reader_refresh(r) if r.stale else 0
    if got < 0:
        return got
    hi = r.list.n
    first_seq = r.marks.shards[r.shard].first_seq
    while lo < hi:                      # search the first segment before which a record is not older
        mid = (lo + hi) // 2
        if segment_time(r, mid) < time_us:
            lo = mid + 1
        else:
            hi = mid
    reader_seek(r, max(r.list.files[lo - 1].base_seq, first_seq) if lo else first_seq)
    if lo and r.seq < r.end and r.list.files[lo - 1].base_seq == r.seq:
        got = segment_enter(r, lo - 1, segment_limit(r, lo - 1) - 1, time_us)
        if got == -ENOENT:
            got = 0             # dropped since the folder was listed
        if got == 1 and r.walk.at != SEGMENT_HEAD_BYTES and journal_walk_head(&r.walk) == 1:
            r.seq = max(r.seq, min(r.walk.head.first_seq, r.end))
            r.walk.at = r.walk.here
    while got >= 0:
        got = reader_load(r, UINT64_MAX)
        if r.loss.n:                    # the lost range may have contained the record
            return reader_seek(r, r.loss.ranges[0].lo)
        if got == 1 and reader_take(r, &record) and record.time_us >= time_us:
            return reader_seek(r, record.seq)
        if got == 0:
            break
    return min(got, 0)
