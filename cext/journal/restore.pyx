"""Restore the records behind the mark at a start: take them back into memory as if they had just been handed over, and write them
again to other files, which are synced before any reader or client is notified.

It is unknown whether these records are on the disk: a sync that failed before the kill may have left them in the page cache only,
and another sync would report success. So such a file is never just synced and trusted; its records are copied.

Invariants: each file that may hold records behind the mark is read once, in the order of creation, up to its first invalid block.
This finds everything that a writer has written, since each file was begun at the last record on the disk or before. Nothing newer
is written before all records that were found are on the disk and the mark excludes these files: so a block behind a torn one, or
a dropped block, is never taken for a later record with the same number. If a file begins behind the records that were found, the
gap was on the disk once and is reported as lost. Records behind `until` were never committed and are dropped. Memory:
JOURNAL_UNSYNCED_MAX_BYTES and one block.
"""

from libc.errno cimport EACCES, ENOENT, ENOMEM, EROFS
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from cext.journal.format cimport BLOCK_HEAD, SEGMENT_HEAD_BYTES, SegmentHead, ShardMark
from cext.journal.journal cimport (
    Block, JOURNAL_UNSYNCED_MAX_BYTES, JOURNAL_WHY_MAX, JournalSegment, LOSS_DAMAGED, LOSS_MISSING, Shard, blocks_add,
    journal_hand, journal_loss_add, journal_room,
)
from cext.journal.listing cimport HEAD_DAMAGED, SegmentFile, segment_look
from cext.journal.segment cimport segment_unlink
from cext.journal.walk cimport (
    JournalWalk, journal_walk_begin, journal_walk_body, journal_walk_free, journal_walk_head, journal_walk_init,
    journal_walk_search,
)
from cext.journal.writer cimport incoming_write, journal_restored, journal_sync, journal_take
from cext.store.file cimport FileOps, file_error_text

ctypedef struct Tail:
    JournalWalk w
    char node[65]               # JOURNAL_NODE_MAX + 1: node of the open segment
    uint64_t seq                # number after the records that were found
    uint64_t offset
    uint64_t time_us
    uint64_t until              # first number that is not accepted; not before the mark


cdef int journal_refuse(const FileOps* f, char* why, const char* problem, const char* path, int error) noexcept nogil:
    cdef char text[384]
    cdef const char* advice = ""
    if error == -ENOENT:
        advice = "; make the directory, owned by the user that the broker runs as"
    elif error == -EACCES:
        advice = "; the user that the broker runs as must be able to write there"
    elif error == -EROFS:
        advice = "; choose a directory on a disk that can be written to"
    file_error_text(f, error, text, sizeof(text))
    snprintf(why, JOURNAL_WHY_MAX, "%s %s: %s%s", problem, path, text, advice)
    return -1


cdef int tail_open(Journal* j, uint32_t shard, uint64_t base_seq, uint64_t number, Tail* t) noexcept nogil:
    """Open a segment to walk through it from its first block on. Return 0 or -errno."""
    cdef SegmentHead h
    cdef SegmentFile f
    cdef uint64_t size = 0
    cdef int fd, state = HEAD_DAMAGED
    memset(&h, 0, sizeof(h))
    f.shard = shard
    f.base_seq = base_seq
    f.number = number
    fd = segment_look(&j.files, j.hardware, j.dir, &f, j.stream_id, &h, &state, &size)
    if fd < 0:
        return fd
    journal_walk_begin(&t.w, fd, h.seed, size, SEGMENT_HEAD_BYTES)
    memcpy(t.node, h.node, sizeof(h.node))
    return 0


# ---- the records that the mark names

cdef int tail_search(Tail* t, uint64_t limit) noexcept nogil:
    """Find how far the open segment reaches below `limit`, also behind damage, since any of these records may have been
    acknowledged. Return 0 or -errno."""
    cdef uint64_t end
    cdef int got = journal_walk_search(&t.w)
    while got == 1:
        end = t.w.head.first_seq + t.w.head.count
        if end > limit:
            return 0
        got = journal_walk_body(&t.w)
        if got == 1 and t.w.head.first_seq >= t.seq:
            t.seq = end
            t.offset = t.w.at
            t.time_us = max(t.time_us, t.w.head.time_us + t.w.head.span_us)
        if got >= 0:
            got = journal_walk_search(&t.w)
    return got


cdef int mark_check(Journal* j, uint32_t shard, Tail* t, JournalFound* found) noexcept nogil:
    """Check that the last segment contains the mark's place, and report missing records. Without a mark, the last segment
    determines the end. Return 0 or -errno."""
    cdef Shard* s = &j.writer.shards[shard]
    cdef ShardMark* m = &s.synced
    cdef bint known = shard < j.writer.marks.n
    cdef JournalSegment* g = NULL
    cdef int got = 0
    if known:
        m[0] = j.writer.marks.shards[shard]
    elif s.n:
        m.first_seq = s.segments[0].base_seq
    t.seq = t.time_us = 0
    t.offset = 0
    if s.n:
        g = &s.segments[s.n - 1]
        got = tail_open(j, shard, g.base_seq, g.number, t)
        if got < 0 or (known and m.segment == g.number and m.offset <= t.w.size):
            return got
        t.seq = g.base_seq
        t.offset = SEGMENT_HEAD_BYTES
        t.time_us = g.time_us
        got = tail_search(t, m.seq if known else <uint64_t>1 << 62)
        if got == 0 and not known:
            got = j.files.datasync(j.files.ctx, t.w.fd)
    if not known:
        m.seq = t.seq
    elif m.segment:
        journal_loss_add(&found.loss, shard, LOSS_MISSING, max(t.seq, m.first_seq), m.seq)
    m.segment = g.number if g != NULL else 0
    m.offset = t.offset
    m.time_us = max(m.time_us, t.time_us)
    return got


# ---- the records behind the mark

cdef int restore_block_copy(Journal* j, uint32_t shard, const Tail* t) noexcept nogil:
    """Copy the walk's block, to be written again, and behind it the name of its node. Return 0 or -ENOMEM."""
    cdef const JournalWalk* w = &t.w
    cdef Block* b = <Block*>calloc(1, sizeof(Block))
    if b == NULL:
        return -ENOMEM
    b.cap = b.n = BLOCK_HEAD + <uint64_t>w.head.body_n
    b.p = <uint8_t*>malloc(b.cap + sizeof(t.node))
    if b.p == NULL:
        free(b)
        return -ENOMEM
    memcpy(b.p + BLOCK_HEAD, w.body, w.head.body_n)
    memcpy(b.p + b.cap, t.node, sizeof(t.node))
    b.node = <const char*>(b.p + b.cap)
    b.first_seq = w.head.first_seq
    b.time_us = w.head.time_us
    b.span_us = w.head.span_us
    b.count = w.head.count
    b.shard = shard
    j.loop.waiting_bytes += b.cap
    blocks_add(&j.writer.shards[shard].todo, b)
    return 0


cdef int restore_write(Journal* j, uint64_t now_us) noexcept nogil:
    """Write the blocks in memory. Return 0 or -1."""
    cdef int got = incoming_write(j, now_us)
    got |= journal_sync(j)
    journal_take(j)             # finished blocks become idle
    journal_hand(j)
    journal_room(j)
    return got


cdef int restore_block_next(Tail* t, JournalFound* found) noexcept nogil:
    """Load the block of the open file that continues at t.seq. Return 1; 0 = there is none; or -errno."""
    cdef int got = journal_walk_head(&t.w)
    while got == 1 and (t.w.head.first_seq + t.w.head.count <= t.seq or t.w.head.first_seq >= t.until):
        if t.w.head.first_seq >= t.until:
            found.dropped += t.w.head.count
        t.offset = t.w.at
        got = journal_walk_head(&t.w)
    if got == 1:
        got = journal_walk_body(&t.w) if t.w.head.first_seq == t.seq else 0
    if got == 1:
        t.seq += t.w.head.count
        t.offset = t.w.at
    return got


cdef int file_restore(Journal* j, uint32_t shard, Tail* t, uint64_t now_us, JournalFound* found, char* why) noexcept nogil:
    cdef int got
    t.offset = t.w.at
    got = restore_block_next(t, found)
    while got == 1:
        found.beyond += t.w.head.count
        got = restore_block_copy(j, shard, t)
        if got < 0:
            break
        if j.loop.waiting_bytes > JOURNAL_UNSYNCED_MAX_BYTES and restore_write(j, now_us) < 0:
            memcpy(why, j.writer.why, JOURNAL_WHY_MAX)
            return -1
        got = restore_block_next(t, found)
    if got < 0:
        return journal_refuse(&j.files, why, b"Cannot read a segment in", j.dir, got)
    found.torn_bytes += t.w.size - t.offset
    return 0


cdef int files_restore(Journal* j, uint32_t shard, const SegmentListing* l, Tail* t, uint64_t now_us, JournalFound* found, char* why) noexcept nogil:
    cdef ShardMark m = j.writer.shards[shard].synced
    cdef const SegmentFile* f
    cdef uint32_t i
    cdef int got = 0
    t.seq = m.seq
    for i in range(l.n):
        f = &l.files[i]
        if f.shard != shard or f.damaged or f.number < m.behind:
            continue
        got = tail_open(j, shard, f.base_seq, f.number, t)
        if got < 0:
            return journal_refuse(&j.files, why, b"Cannot read a segment in", j.dir, got)
        if f.number == m.segment:
            t.w.at = m.offset
        elif f.base_seq > t.seq and t.seq < t.until:
            journal_loss_add(&found.loss, shard, LOSS_DAMAGED, t.seq, min(f.base_seq, t.until))
            t.seq = min(f.base_seq, t.until)
        if file_restore(j, shard, t, now_us, found, why) < 0:
            return -1
    return 0


cdef uint64_t restore_until(const Journal* j, uint32_t shard) noexcept nogil:
    if j.options.n_until == 0:
        return <uint64_t>1 << 62
    return j.options.until[shard] if shard < j.options.n_until else 0


cdef int shard_restore(Journal* j, uint32_t shard, const SegmentListing* l, uint64_t now_us, JournalFound* found, char* why) noexcept nogil:
    cdef Shard* s = &j.writer.shards[shard]
    cdef Tail t
    cdef int got
    memset(&t, 0, sizeof(t))
    journal_walk_init(&t.w, &j.files, j.hardware)
    got = mark_check(j, shard, &t, found)
    if got < 0:
        journal_refuse(&j.files, why, b"Cannot read or sync a segment in", j.dir, got)
    s.synced.seq = max(s.synced.seq, j.loop.next_seq[shard])        # after files that cannot be read, if there is no mark
    s.written = t.seq = s.synced.seq
    s.time_us = s.synced.time_us
    t.until = max(restore_until(j, shard), s.synced.seq)
    if got == 0 and shard < j.writer.marks.n:
        got = files_restore(j, shard, l, &t, now_us, found, why)
    if j.options.n_until and t.seq < t.until:
        journal_loss_add(&found.loss, shard, LOSS_MISSING, t.seq, t.until)
        t.seq = t.until
    s.reached = t.seq
    j.loop.next_seq[shard] = t.seq
    journal_walk_free(&t.w)
    return got


# ---- the end of the restore

cdef int restore_end(Journal* j, const SegmentListing* l, uint64_t now_us, char* why) noexcept nogil:
    cdef uint32_t i, known = j.writer.marks.n
    cdef const SegmentFile* f
    j.writer.restoring = 1
    if journal_restored(j, now_us) < 0:
        memcpy(why, j.writer.why, JOURNAL_WHY_MAX)
        journal_take(j)
        return -1 if j.writer.stats.failing else 0
    for i in range(l.n):
        f = &l.files[i]
        if f.superseded and f.shard < known:      # a file that cannot be removed is removed at the next start
            segment_unlink(j, f.shard, f.base_seq, f.number)
    journal_take(j)             # readers may request the restored records
    return 0
