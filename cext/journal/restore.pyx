"""What a start finds behind the mark is taken back into memory, as if it had just been handed over, and written anew: to other files, which are synced before
anybody is told.

Nobody knows whether it is on the disk: a sync that failed before the kill may have left it in the system's cache alone, and another sync would say that all
is well. So nothing that lies there is synced and believed; it is copied.

Invariants: each file that may hold something behind the mark is gone through once, in the order in which they were begun, up to its first block that is not
right. All that a writer has written is found so, since each was begun at the last record that was on the disk, or before. Nothing newer is written before
all that is found is on the disk, and the mark says that these files are not to be looked at again: so what lies behind a torn block, or was dropped, is never
taken for what got its numbers later. Where a file begins behind what was found, that was on the disk once: it is told as lost. What lies behind `until` was
never committed, and is dropped. Memory: JOURNAL_KEPT_MAX_BYTES and a block.
"""

from libc.errno cimport EACCES, ENOENT, ENOMEM, EROFS
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from cext.journal.format cimport BLOCK_HEAD, SEGMENT_HEAD_BYTES, SegmentHead, ShardMark
from cext.journal.journal cimport (
    Block, JOURNAL_KEPT_MAX_BYTES, JOURNAL_WHY_MAX, LOSS_DAMAGED, LOSS_MISSING, Segment, Shard, blocks_add, journal_hand,
    journal_room, loss_add,
)
from cext.journal.listing cimport Found, HEAD_DAMAGED, segment_look
from cext.journal.segment cimport segment_unlink
from cext.journal.walk cimport Walk, walk_begin, walk_body, walk_free, walk_head, walk_init, walk_search
from cext.journal.writer cimport journal_restored, journal_sync, journal_take, todo_write
from cext.store.segment cimport error_text

ctypedef struct Tail:
    Walk w
    uint64_t seq                # behind what was found
    uint64_t offset
    uint64_t time_us
    uint64_t until              # nothing is taken from there on; not before the mark


cdef int refuse(char* why, const char* what, const char* path, int error) noexcept nogil:
    cdef char text[128]
    cdef const char* advice = ""
    if error == -ENOENT:
        advice = "; make the directory, owned by the user that the broker runs as"
    elif error == -EACCES:
        advice = "; the user that the broker runs as must be able to write there"
    elif error == -EROFS:
        advice = "; choose a directory on a disk that can be written to"
    error_text(text, sizeof(text), error)
    snprintf(why, JOURNAL_WHY_MAX, "%s %s: %s%s", what, path, text, advice)
    return -1


cdef int tail_open(Journal* j, uint32_t shard, uint64_t base_seq, uint64_t number, Tail* t) noexcept nogil:
    # To be walked through from its first block on. 0 or -errno
    cdef SegmentHead h
    cdef Found f
    cdef uint64_t size = 0
    cdef int fd, state = HEAD_DAMAGED
    memset(&h, 0, sizeof(h))
    f.shard = shard
    f.base_seq = base_seq
    f.number = number
    fd = segment_look(&j.files, j.hardware, j.dir, &f, j.stream_id, &h, &state, &size)
    if fd < 0:
        return fd
    walk_begin(&t.w, fd, h.seed, size, SEGMENT_HEAD_BYTES)
    return 0


# ---- what the mark says

cdef int last_search(Tail* t, uint64_t limit) noexcept nogil:
    # How far the open segment reaches below `limit`, behind damage too: nobody knows what was promised. 0 or -errno
    cdef uint64_t end
    cdef int got = walk_search(&t.w)
    while got == 1:
        end = t.w.head.first_seq + t.w.head.count
        if end > limit:
            return 0
        got = walk_body(&t.w)
        if got == 1 and t.w.head.first_seq >= t.seq:
            t.seq = end
            t.offset = t.w.at
            t.time_us = max(t.time_us, t.w.head.time_us + t.w.head.span_us)
        if got >= 0:
            got = walk_search(&t.w)
    return got


cdef int mark_check(Journal* j, uint32_t shard, Tail* t, JournalFound* found) noexcept nogil:
    # The last of the rows is where the mark is, or what is missing is told. Without a mark: the last segment says where it ends. 0 or -errno
    cdef Shard* s = &j.writer.shards[shard]
    cdef ShardMark* m = &s.synced
    cdef bint known = shard < j.writer.marks.n
    cdef Segment* g = NULL
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
        got = last_search(t, m.seq if known else <uint64_t>1 << 62)
        if got == 0 and not known:
            got = j.files.datasync(j.files.ctx, t.w.fd)
    if not known:
        m.seq = t.seq
    elif m.segment:
        loss_add(&found.loss, shard, LOSS_MISSING, max(t.seq, m.first_seq), m.seq)
    m.segment = g.number if g != NULL else 0
    m.offset = t.offset
    m.time_us = max(m.time_us, t.time_us)
    return got


# ---- what is behind it

cdef int block_back(Journal* j, uint32_t shard, const Walk* w) noexcept nogil:
    # The walk's block, to be written again. 0 or -ENOMEM
    cdef Block* b = <Block*>calloc(1, sizeof(Block))
    if b == NULL:
        return -ENOMEM
    b.cap = b.n = BLOCK_HEAD + <uint64_t>w.head.body_n
    b.p = <uint8_t*>malloc(b.cap)
    if b.p == NULL:
        free(b)
        return -ENOMEM
    memcpy(b.p + BLOCK_HEAD, w.body, w.head.body_n)
    b.first_seq = w.head.first_seq
    b.time_us = w.head.time_us
    b.span_us = w.head.span_us
    b.count = w.head.count
    b.shard = shard
    j.loop.waiting_bytes += b.cap
    blocks_add(&j.writer.shards[shard].todo, b)
    return 0


cdef int written_again(Journal* j, uint64_t now_us) noexcept nogil:
    # What is in memory. 0 or -1
    cdef int got = todo_write(j, now_us)
    got |= journal_sync(j)
    journal_take(j)             # blocks that are done are idle
    journal_hand(j)
    journal_room(j)
    return got


cdef int block_next(Tail* t, JournalFound* found) noexcept nogil:
    # 1: the open file's block that goes on at t.seq is in memory; 0: it has none; -errno
    cdef int got = walk_head(&t.w)
    while got == 1 and (t.w.head.first_seq + t.w.head.count <= t.seq or t.w.head.first_seq >= t.until):
        if t.w.head.first_seq >= t.until:
            found.dropped += t.w.head.count
        t.offset = t.w.at
        got = walk_head(&t.w)
    if got == 1:
        got = walk_body(&t.w) if t.w.head.first_seq == t.seq else 0
    if got == 1:
        t.seq += t.w.head.count
        t.offset = t.w.at
    return got


cdef int file_restore(Journal* j, uint32_t shard, Tail* t, uint64_t now_us, JournalFound* found, char* why) noexcept nogil:
    cdef int got
    t.offset = t.w.at
    got = block_next(t, found)
    while got == 1:
        found.beyond += t.w.head.count
        got = block_back(j, shard, &t.w)
        if got < 0:
            break
        if j.loop.waiting_bytes > JOURNAL_KEPT_MAX_BYTES and written_again(j, now_us) < 0:
            memcpy(why, j.writer.why, JOURNAL_WHY_MAX)
            return -1
        got = block_next(t, found)
    if got < 0:
        return refuse(why, b"Cannot read a segment in", j.dir, got)
    found.torn_bytes += t.w.size - t.offset
    return 0


cdef int files_restore(Journal* j, uint32_t shard, const Listing* l, Tail* t, uint64_t now_us, JournalFound* found, char* why) noexcept nogil:
    cdef ShardMark m = j.writer.shards[shard].synced
    cdef const Found* f
    cdef uint32_t i
    cdef int got = 0
    t.seq = m.seq
    for i in range(l.n):
        f = &l.files[i]
        if f.shard != shard or f.damaged or f.number < m.behind:
            continue
        got = tail_open(j, shard, f.base_seq, f.number, t)
        if got < 0:
            return refuse(why, b"Cannot read a segment in", j.dir, got)
        if f.number == m.segment:
            t.w.at = m.offset
        elif f.base_seq > t.seq and t.seq < t.until:
            loss_add(&found.loss, shard, LOSS_DAMAGED, t.seq, min(f.base_seq, t.until))
            t.seq = min(f.base_seq, t.until)
        if file_restore(j, shard, t, now_us, found, why) < 0:
            return -1
    return 0


cdef uint64_t until(const Journal* j, uint32_t shard) noexcept nogil:
    if j.options.n_until == 0:
        return <uint64_t>1 << 62
    return j.options.until[shard] if shard < j.options.n_until else 0


cdef int shard_restore(Journal* j, uint32_t shard, const Listing* l, uint64_t now_us, JournalFound* found, char* why) noexcept nogil:
    cdef Shard* s = &j.writer.shards[shard]
    cdef Tail t
    cdef int got
    memset(&t, 0, sizeof(t))
    walk_init(&t.w, &j.files, j.hardware)
    got = mark_check(j, shard, &t, found)
    if got < 0:
        refuse(why, b"Cannot read or sync a segment in", j.dir, got)
    s.synced.seq = max(s.synced.seq, j.loop.next_seq[shard])        # of files that cannot be read, where there is no mark
    s.written = t.seq = s.synced.seq
    s.time_us = s.synced.time_us
    t.until = max(until(j, shard), s.synced.seq)
    if got == 0 and shard < j.writer.marks.n:
        got = files_restore(j, shard, l, &t, now_us, found, why)
    if j.options.n_until and t.seq < t.until:
        loss_add(&found.loss, shard, LOSS_MISSING, t.seq, t.until)
        t.seq = t.until
    s.reached = t.seq
    j.loop.next_seq[shard] = t.seq
    walk_free(&t.w)
    return got


# ---- the end of it

cdef int restore_end(Journal* j, const Listing* l, uint64_t now_us, char* why) noexcept nogil:
    cdef uint32_t i, known = j.writer.marks.n
    cdef const Found* f
    j.writer.restoring = 1
    if journal_restored(j, now_us) < 0:
        memcpy(why, j.writer.why, JOURNAL_WHY_MAX)
        journal_take(j)
        return -1 if j.writer.stats.failing else 0
    for i in range(l.n):
        f = &l.files[i]
        if f.over and f.shard < known:      # one that cannot be removed goes with the next start
            segment_unlink(j, f.shard, f.base_seq, f.number)
    journal_take(j)             # what there is may be asked for
    return 0
