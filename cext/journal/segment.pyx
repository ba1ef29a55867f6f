"""The writing of segments: create them, append blocks, sync, abandon. This module knows one shard at a time, and no marks.

Invariants: a segment is named by the sequence number of its first record and by its own number, which rises. It begins only where
everything before it is on the disk, so only the last segment of a shard can be unsynced. The first record of a later segment ends
it, whatever its file has behind that place. All records of a segment were appended by one node. A file whose write or sync failed is closed and never written or synced again: the
blocks since its last sync are still in memory. Its content stays for a start to find until records written again reach as far. An
index entry that cannot be written is only counted.
"""

from libc.errno cimport EDQUOT, ENOENT, ENOMEM, ENOSPC
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport realloc
from libc.string cimport memcpy, memmove, memset, strcmp, strcpy

from cext.base.hash cimport HashKey, hash_key_init
from cext.journal.format cimport (
    BLOCK_HEAD, BlockHead, INDEX_ENTRY, INDEX_STEP_BYTES, IndexEntry, SEGMENT_HEAD_BYTES, SegmentHead, block_seal,
    index_write, segment_head_seed, segment_head_write,
)
from cext.journal.journal cimport Blocks, JOURNAL_WRITE_OUT_BYTES, Shard, blocks_join
from cext.journal.listing cimport journal_segment_path
from cext.store.file cimport file_error_passes, file_write, file_write_out

cdef extern from "<fcntl.h>" nogil:
    int O_RDWR
    int O_CREAT
    int O_EXCL
    int O_NOFOLLOW


# ---- the list of segments

cdef JournalSegment* segment_add(Journal* j, uint32_t shard) noexcept nogil:
    cdef Shard* s = &j.writer.shards[shard]
    cdef JournalSegment* more
    if s.n == s.cap:
        more = <JournalSegment*>realloc(s.segments, (s.cap * 2 if s.cap else 8) * sizeof(JournalSegment))
        if more == NULL:
            return NULL
        s.segments = more
        s.cap = s.cap * 2 if s.cap else 8
    memset(&s.segments[s.n], 0, sizeof(JournalSegment))
    s.n += 1
    j.writer.stats.segments += 1
    return &s.segments[s.n - 1]


cdef void segment_forget(Journal* j, uint32_t shard, uint32_t at) noexcept nogil:
    cdef Shard* s = &j.writer.shards[shard]
    j.writer.stats.segments -= 1
    j.writer.stats.total_bytes -= s.segments[at].bytes_
    s.n -= 1
    memmove(&s.segments[at], &s.segments[at + 1], (s.n - at) * sizeof(JournalSegment))


cdef int segment_unlink(Journal* j, uint32_t shard, uint64_t base_seq, uint64_t number) noexcept nogil:
    cdef char path[4096]
    cdef int got
    journal_segment_path(path, j.dir, shard, base_seq, number, b"idx")
    j.files.unlink(j.files.ctx, path)
    journal_segment_path(path, j.dir, shard, base_seq, number, b"seg")
    got = j.files.unlink(j.files.ctx, path)
    return 0 if got == -ENOENT else got


cdef void journal_segment_close(Journal* j, uint32_t shard) noexcept nogil:
    cdef Shard* s = &j.writer.shards[shard]
    if s.fd >= 0:
        j.files.close(j.files.ctx, s.fd)
    if s.index_fd >= 0:
        j.files.close(j.files.ctx, s.index_fd)
    s.fd = s.index_fd = -1


# ---- one segment

cdef int journal_file_new(Journal* j, uint32_t shard, uint64_t base_seq, uint64_t number, const char* kind) noexcept nogil:
    cdef char path[4096]
    journal_segment_path(path, j.dir, shard, base_seq, number, kind)
    return j.files.open(j.files.ctx, path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW)


cdef int segment_head_put(Journal* j, uint32_t shard, const Block* first, uint64_t number, uint64_t now_us) noexcept nogil:
    cdef Shard* s = &j.writer.shards[shard]
    cdef uint8_t page[4096]
    cdef SegmentHead h
    cdef HashKey random
    memset(&h, 0, sizeof(h))
    if hash_key_init(&random) != 0:
        random.k0 = now_us ^ first.first_seq << 20
    memcpy(h.stream_id, j.stream_id, 16)
    h.shard = shard
    h.shards = j.n_shards
    h.base_seq = first.first_seq
    h.number = number
    h.salt = random.k0
    h.made_us = now_us
    h.time_us = s.time_us
    strcpy(h.node, first.node)
    strcpy(s.node, first.node)
    segment_head_seed(j.hardware, &h)
    segment_head_write(j.hardware, page, &h)
    s.seed = h.seed
    return file_write(&j.files, s.fd, page, SEGMENT_HEAD_BYTES, 0)


cdef int journal_segment_begin(Journal* j, uint32_t shard, const Block* first, uint64_t now_us, const char** action) noexcept nogil:
    cdef Shard* s = &j.writer.shards[shard]
    cdef JournalSegment* g
    cdef uint64_t number = j.writer.next_number, base_seq = first.first_seq
    cdef int got
    j.writer.next_number += 1           # the number is used up even if this fails
    action[0] = "create a segment file in"
    got = journal_file_new(j, shard, base_seq, number, b"seg")
    if got < 0:
        return got
    s.fd = got
    action[0] = "write a segment's head in"
    got = segment_head_put(j, shard, first, number, now_us)
    g = segment_add(j, shard) if got == 0 else NULL
    if g == NULL:
        journal_segment_close(j, shard)
        segment_unlink(j, shard, base_seq, number)
        return got if got else -ENOMEM
    g.base_seq = base_seq
    g.number = number
    g.bytes_ = SEGMENT_HEAD_BYTES
    g.made_us = now_us
    g.time_us = s.time_us
    j.writer.stats.total_bytes += g.bytes_
    s.named = 0
    s.offset = s.index_at = s.written_out = SEGMENT_HEAD_BYTES
    s.index_n = 0
    s.index_fd = journal_file_new(j, shard, base_seq, number, b"idx")
    if s.index_fd < 0:
        j.writer.stats.index_errors += 1
        s.index_fd = -1
    return 0


cdef void index_entry_add(Journal* j, Shard* s, uint64_t first_seq) noexcept nogil:
    """Write an index entry for the block that is being written at s.offset."""
    cdef uint8_t p[32]
    cdef IndexEntry e
    if s.index_fd < 0 or s.offset < s.index_at + INDEX_STEP_BYTES:
        return
    e.first_seq = first_seq
    e.offset = s.offset
    e.time_us = s.time_us
    index_write(j.hardware, p, s.seed, s.index_n, &e)
    if file_write(&j.files, s.index_fd, p, INDEX_ENTRY, s.index_n * INDEX_ENTRY) < 0:
        j.writer.stats.index_errors += 1
        return
    s.index_n += 1
    s.index_at = s.offset


cdef bint segment_is_full(Journal* j, const Shard* s, const Block* b, uint64_t now_us) noexcept nogil:
    """Return whether the block must begin another segment."""
    cdef const JournalSegment* g = &s.segments[s.n - 1]
    if strcmp(s.node, b.node) != 0:
        return 1
    if s.offset == SEGMENT_HEAD_BYTES:
        return 0
    if s.offset + b.n > j.options.segment_bytes:
        return 1
    return j.options.roll_age_us != 0 and now_us > g.made_us and now_us - g.made_us >= j.options.roll_age_us


cdef int segment_roll(Journal* j, uint32_t shard, const char** action) noexcept nogil:
    """Close the segment after syncing it."""
    cdef Shard* s = &j.writer.shards[shard]
    cdef int got
    action[0] = "sync a segment in"
    got = segment_flush(j, shard)
    if got == 0 and not s.named:
        got = j.files.sync_dir(j.files.ctx, j.dir)
        if got < 0 and not file_error_passes(&j.files):
            segment_poison(j, shard)
    if got < 0:
        return got
    segment_settle(j, shard)
    journal_segment_close(j, shard)
    return 0


cdef int block_write(Journal* j, uint32_t shard, Block* b, uint64_t now_us, const char** action) noexcept nogil:
    cdef Shard* s = &j.writer.shards[shard]
    cdef JournalSegment* g
    cdef BlockHead h
    cdef int got = 0
    if s.fd >= 0 and segment_is_full(j, s, b, now_us):
        got = segment_roll(j, shard, action)
    if got == 0 and s.fd < 0:
        got = journal_segment_begin(j, shard, b, now_us, action)
    if got < 0:
        return got
    h.body_n = <uint32_t>(b.n - BLOCK_HEAD)
    h.count = b.count
    h.first_seq = b.first_seq
    h.time_us = b.time_us
    h.span_us = b.span_us
    h.commit_us = now_us
    block_seal(j.hardware, b.p, s.seed, s.offset, &h)
    action[0] = "write in"
    got = file_write(&j.files, s.fd, b.p, b.n, s.offset)
    if got < 0:
        if got != -ENOSPC and got != -EDQUOT and not file_error_passes(&j.files):       # on a full disk the same place is written again
            segment_poison(j, shard)
        return got
    index_entry_add(j, s, b.first_seq)
    s.offset += b.n
    if s.offset - s.written_out >= JOURNAL_WRITE_OUT_BYTES:
        file_write_out(&j.files, s.fd, s.written_out, s.offset - s.written_out)
        s.written_out = s.offset
    s.written = b.first_seq + b.count
    s.time_us = max(s.time_us, b.time_us + b.span_us)
    g = &s.segments[s.n - 1]
    g.bytes_ += b.n
    j.writer.stats.total_bytes += b.n
    return 0


cdef int segment_flush(Journal* j, uint32_t shard) noexcept nogil:
    cdef int got = j.files.datasync(j.files.ctx, j.writer.shards[shard].fd)
    j.writer.stats.syncs += 1
    if got < 0 and not file_error_passes(&j.files):
        segment_poison(j, shard)
    return got


cdef void segment_settle(Journal* j, uint32_t shard) noexcept nogil:
    cdef Shard* s = &j.writer.shards[shard]
    cdef Block* b = blocks_pop_all(&s.unsynced)
    cdef Block* following
    while b != NULL:
        following = b.next
        j.writer.unsynced_bytes -= b.cap
        b.next = j.writer.done
        j.writer.done = b
        b = following
    s.named = 1
    s.synced.seq = s.written
    s.synced.segment = s.synced.behind = s.segments[s.n - 1].number
    s.synced.offset = s.offset
    s.synced.time_us = s.time_us
    if s.synced.seq >= s.reached:
        spare_remove(j, shard)


cdef void spare_remove(Journal* j, uint32_t shard) noexcept nogil:
    """Remove the spare. A file that cannot be removed is superseded, and is removed at the next start."""
    cdef JournalSegment* g = &j.writer.shards[shard].spare
    if g.number:
        segment_unlink(j, shard, g.base_seq, g.number)
    g.number = 0


cdef Block* blocks_pop_all(Blocks* q) noexcept nogil:
    cdef Block* b = q.head
    q.head = q.tail = NULL
    return b


cdef void segment_poison(Journal* j, uint32_t shard) noexcept nogil:
    cdef Shard* s = &j.writer.shards[shard]
    cdef Block* b = s.unsynced.head
    j.writer.stats.poisoned += 1
    while b != NULL:
        j.writer.unsynced_bytes -= b.cap
        b = b.next
    blocks_join(&s.unsynced, &s.todo)
    s.todo = s.unsynced
    s.unsynced.head = s.unsynced.tail = NULL
    journal_segment_close(j, shard)
    segment_abandoned(j, shard, s.written)
    s.written = s.synced.seq
    s.time_us = s.synced.time_us


cdef void segment_abandoned(Journal* j, uint32_t shard, uint64_t reached) noexcept nogil:
    """Decide about an abandoned segment. Its records behind the last sync are all that a start could find, so it stays unless
    another one reaches farther."""
    cdef Shard* s = &j.writer.shards[shard]
    cdef JournalSegment g = s.segments[s.n - 1]
    cdef bint farther = reached > max(s.reached, s.synced.seq)
    if farther:
        s.reached = reached
        spare_remove(j, shard)
    if s.synced.segment == g.number:
        return
    segment_forget(j, shard, s.n - 1)       # nothing of it was ever on the disk
    if farther:
        s.spare = g
    else:
        segment_unlink(j, shard, g.base_seq, g.number)
