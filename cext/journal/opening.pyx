"""Taking a stream's folder: what is there is found, what was written and not known to be on the disk is brought there, numbers go on behind it.

Invariants: no number is given twice: the next one is behind the mark, and behind all that is found by its checks; behind the first block that is not right
nothing is taken. What the mark says was there and is not is told as ranges. A folder of a later format, of another stream or in use is not touched.
"""

from libc.errno cimport EACCES, EAGAIN, EEXIST, EINVAL, ENOENT, ENOMEM, EROFS
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free
from libc.string cimport memcpy, memset, strlen

from cext.journal.format cimport JOURNAL_FORMAT, JOURNAL_SHARDS_MAX, RECORD_BYTES_MIN, SEGMENT_HEAD_BYTES, Marks, SegmentHead, ShardMark
from cext.journal.journal cimport JOURNAL_BLOCK_BYTES, JOURNAL_BLOCK_BYTES_MAX, JOURNAL_BLOCK_BYTES_MIN, JOURNAL_PATH_MAX, JOURNAL_SEGMENT_BYTES, \
    JOURNAL_SEGMENT_BYTES_MAX, JOURNAL_SEGMENT_BYTES_MIN, JOURNAL_WAITING_MAX_BYTES, JOURNAL_WHY_MAX, LOSS_DAMAGED, LOSS_MISSING, Block, JournalWriter, \
    Segment, Shard, loss_add
from cext.journal.listing cimport HEAD_DAMAGED, HEAD_FOREIGN, HEAD_LATER, LISTING_ALL, Found, Listing, listing_free, listing_read, \
    mark_path, marks_read, segment_look
from cext.journal.segment cimport segment_add, segment_close, segment_forget, segment_unlink
from cext.journal.walk cimport Walk, walk_begin, walk_body, walk_end, walk_free, walk_head, walk_init, walk_search
from cext.journal.writer cimport journal_mark, journal_take
from cext.store.crc cimport crc_hardware
from cext.store.file cimport FILE_PATH_MAX, file_system
from cext.store.segment cimport error_text

cdef extern from "<fcntl.h>" nogil:
    int O_RDWR
    int O_CREAT
    int O_NOFOLLOW

cdef extern from "<sys/random.h>" nogil:
    ssize_t getrandom(void* p, size_t n, unsigned int flags)


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


# ---- the folder

cdef int folder_take(Journal* j, char* why) noexcept nogil:
    cdef char path[4096]
    cdef int got
    if j.options.create:
        got = j.files.mkdir(j.files.ctx, j.dir)
        if got < 0 and got != -EEXIST:
            return refuse(why, b"Cannot make", j.dir, got)
    snprintf(path, FILE_PATH_MAX, "%s/lock", j.dir)
    j.lock_fd = j.files.open(j.files.ctx, path, O_RDWR | O_CREAT | O_NOFOLLOW)
    if j.lock_fd < 0:
        return refuse(why, b"Cannot write", path, j.lock_fd)
    got = j.files.lock(j.files.ctx, j.lock_fd)
    if got == -EAGAIN:
        snprintf(why, JOURNAL_WHY_MAX, "The stream in %s is in use by another broker; stop that one, or give this one a directory of its own", j.dir)
        return -1
    if got < 0:
        return refuse(why, b"Cannot lock", path, got)
    snprintf(path, FILE_PATH_MAX, "%s/consumers", j.dir)
    got = j.files.mkdir(j.files.ctx, path)
    if got < 0 and got != -EEXIST:
        return refuse(why, b"Cannot make", path, got)
    return 0


cdef int later(Journal* j, uint32_t format, char* why) noexcept nogil:
    snprintf(why, JOURNAL_WHY_MAX, "The stream in %s has format %u, this version knows %u and older; use the version that made it, or another directory",
             j.dir, format, <unsigned int>JOURNAL_FORMAT)
    return -1


cdef int marks_take(Journal* j, JournalFound* found, char* why) noexcept nogil:
    # The mark, synced: it may be in memory only since another process wrote it.
    cdef Marks* m = &j.writer.marks
    cdef char path[4096]
    cdef int slot = 1, i, got = marks_read(&j.files, j.hardware, j.dir, m, &slot)
    if got == 0 and m.format > JOURNAL_FORMAT:
        return later(j, m.format, why)
    if got < 0 and got != -ENOENT:
        return refuse(why, b"Cannot read the mark in", j.dir, got)
    found.mark_lost = got != 0
    j.writer.mark_slot = <uint8_t>(slot ^ 1)
    for i in range(2):
        mark_path(path, j.dir, i)
        j.writer.mark_fd[i] = max(j.files.open(j.files.ctx, path, O_RDWR | O_NOFOLLOW), -1)
    if got == 0:
        memcpy(j.stream_id, m.stream_id, 16)
        got = j.files.datasync(j.files.ctx, j.writer.mark_fd[slot]) if j.writer.mark_fd[slot] >= 0 else -EINVAL
        if got < 0:
            return refuse(why, b"Cannot sync the mark in", j.dir, got)
    return 0


# ---- its segments

cdef int segment_take(Journal* j, const Found* f, JournalFound* found, bint id_known, char* why) noexcept nogil:
    # Into the row of its shard, when its head is right. -1: not with this folder
    cdef SegmentHead h
    cdef Segment* g
    cdef uint64_t size = 0
    cdef int state = HEAD_DAMAGED
    cdef int fd = segment_look(&j.files, j.hardware, j.dir, f, j.stream_id if id_known else NULL, &h, &state, &size)
    if fd < 0:
        return refuse(why, b"Cannot read a segment in", j.dir, fd)
    j.files.close(j.files.ctx, fd)
    if state == HEAD_LATER:
        return later(j, h.format, why)
    if state == HEAD_FOREIGN:
        snprintf(why, JOURNAL_WHY_MAX, "%s holds segments of more than one stream (%03u-%020llu.seg is of another); move them away",
                 j.dir, f.shard, <unsigned long long>f.base_seq)
        return -1
    if state == HEAD_DAMAGED and f.shard < j.writer.marks.n and f.base_seq >= j.writer.marks.shards[f.shard].seq:
        # begun, and never got its head: it would hide from readers what the segment before it holds
        fd = segment_unlink(j, f.shard, f.base_seq)
        return 0 if fd == 0 else refuse(why, b"Cannot remove an unfinished segment from", j.dir, fd)
    if state == HEAD_DAMAGED:
        found.unreadable += 1
        if found.mark_lost:             # it may hold so many records, and nobody knows how many
            j.n_shards = max(j.n_shards, f.shard + 1)
            j.loop.next_seq[f.shard] = max(j.loop.next_seq[f.shard], f.base_seq + size // RECORD_BYTES_MIN)
        return 0
    if not id_known:
        memcpy(j.stream_id, h.stream_id, 16)
    g = segment_add(j, f.shard)
    if g == NULL:
        return refuse(why, b"Cannot read", j.dir, -ENOMEM)
    j.n_shards = max(j.n_shards, f.shard + 1, min(h.shards, <uint32_t>JOURNAL_SHARDS_MAX))
    g.base_seq = h.base_seq
    g.bytes_ = size
    g.made_us = h.made_us
    g.time_us = h.time_us
    j.writer.stats.total_bytes += size
    return 1


cdef int segments_take(Journal* j, JournalFound* found, char* why) noexcept nogil:
    cdef Listing l
    cdef uint32_t i
    cdef int got
    cdef bint id_known = not found.mark_lost
    memset(&l, 0, sizeof(l))
    got = listing_read(&l, &j.files, j.dir, LISTING_ALL)
    if got < 0:
        refuse(why, b"Cannot read", j.dir, got)
    j.n_shards = max(j.n_shards, j.writer.marks.n)
    for i in range(l.n):
        if got < 0:
            break
        got = segment_take(j, &l.files[i], found, id_known, why)
        id_known = id_known or got == 1
    found.mark_lost = found.mark_lost and l.n
    listing_free(&l)
    if got >= 0 and not id_known and getrandom(j.stream_id, 16, 0) != 16:
        return refuse(why, b"No randomness for", j.dir, -EINVAL)
    return -1 if got < 0 else 0


# ---- where a shard ends

ctypedef struct Tail:
    Walk w
    uint64_t seq                # behind what was found
    uint64_t offset
    uint64_t time_us


cdef int tail_walk(Tail* t, uint64_t limit, bint search) noexcept nogil:
    # Goes on over right blocks, up to the number `limit`; behind damage only with `search`. 0 or -errno
    cdef int got = 1
    while got == 1:
        got = walk_search(&t.w) if search else walk_head(&t.w)
        if got != 1:
            break
        if t.w.head.first_seq >= limit or t.w.head.count > limit - t.w.head.first_seq or (t.w.head.first_seq != t.seq and not search):
            break
        got = walk_body(&t.w)
        if got == 0 and search:
            got = 1
            continue
        if got == 1 and t.w.head.first_seq >= t.seq:
            t.seq = t.w.head.first_seq + t.w.head.count
            t.offset = t.w.at
            t.time_us = max(t.time_us, t.w.head.time_us + t.w.head.span_us)
    return min(got, 0)


cdef int segment_tail(Journal* j, uint32_t shard, uint32_t at, Tail* t) noexcept nogil:
    # What is readable in that segment: from the mark on where the mark is in it and right, else from its beginning. 0 or -errno
    cdef Shard* s = &j.writer.shards[shard]
    cdef ShardMark* m = &s.synced
    cdef Segment* g = &s.segments[at]
    cdef uint64_t limit = s.segments[at + 1].base_seq if at + 1 < s.n else <uint64_t>1 << 62
    cdef uint64_t size = 0
    cdef SegmentHead h
    cdef Found f
    cdef int got, state = HEAD_DAMAGED
    cdef bint marked = m.base_seq == g.base_seq and m.offset >= SEGMENT_HEAD_BYTES
    f.shard = shard
    f.base_seq = g.base_seq
    got = segment_look(&j.files, j.hardware, j.dir, &f, j.stream_id, &h, &state, &size)
    if got < 0:
        return got
    marked = marked and m.offset <= size
    t.seq = m.seq if marked else g.base_seq
    t.offset = m.offset if marked else <uint64_t>SEGMENT_HEAD_BYTES
    t.time_us = max(m.time_us if marked else g.time_us, t.time_us)
    walk_begin(&t.w, got, h.seed, size, t.offset)
    # where the mark says more than there is, or there is none, what is behind damage may have been promised too
    got = tail_walk(t, limit, not marked and (m.seq > g.base_seq or shard >= j.writer.marks.n))
    if got == 0 and t.seq > m.seq:
        got = j.files.datasync(j.files.ctx, t.w.fd)
    g.end_seq = min(t.seq, limit)
    walk_end(&t.w)
    return got


cdef int shard_recover(Journal* j, uint32_t shard, JournalFound* found, char* why) noexcept nogil:
    # Segments from the mark's on (without one: the last one), to the end.
    cdef Shard* s = &j.writer.shards[shard]
    cdef ShardMark* m = &s.synced
    cdef Tail t
    cdef uint32_t i, start
    cdef uint64_t end = 0
    cdef int got = 0
    memset(&t, 0, sizeof(t))
    walk_init(&t.w, &j.files, j.hardware)
    if shard < j.writer.marks.n:
        m[0] = j.writer.marks.shards[shard]
    elif s.n:
        m.first_seq = s.segments[0].base_seq
        m.base_seq = s.segments[s.n - 1].base_seq
    t.time_us = m.time_us
    start = s.n
    while start and s.segments[start - 1].base_seq > m.base_seq:
        start -= 1
    start = max(start, <uint32_t>1) - 1         # the segment that the mark is in, or should be
    for i in range(s.n):
        if i < start:
            s.segments[i].end_seq = s.segments[i + 1].base_seq
            continue
        if i > start:
            loss_add(&found.loss, shard, LOSS_DAMAGED, end, s.segments[i].base_seq)
        got = segment_tail(j, shard, i, &t)
        if got < 0:
            walk_free(&t.w)
            return refuse(why, b"Cannot read or sync a segment in", j.dir, got)
        end = s.segments[i].end_seq
        m.base_seq = s.segments[i].base_seq
        m.offset = t.offset
    walk_free(&t.w)
    if end < m.seq:
        loss_add(&found.loss, shard, LOSS_MISSING, max(end, m.first_seq), m.seq)
    else:
        found.beyond += end - m.seq
    if s.n and s.segments[s.n - 1].bytes_ > m.offset:
        found.torn_bytes += s.segments[s.n - 1].bytes_ - m.offset
    m.seq = max(m.seq, end, j.loop.next_seq[shard])
    m.time_us = t.time_us
    s.written = m.seq
    s.time_us = m.time_us
    j.loop.next_seq[shard] = m.seq
    if s.n and s.segments[s.n - 1].base_seq == m.seq:       # nothing is in it: another one takes its name
        segment_forget(j, shard, s.n - 1)
    return 0


# ---- the stream

cdef void options_take(Journal* j, const JournalOptions* options) noexcept nogil:
    cdef JournalOptions* o = &j.options
    if options != NULL:
        o[0] = options[0]
    o.shards = min(max(o.shards, <uint32_t>1), <uint32_t>JOURNAL_SHARDS_MAX)
    o.segment_bytes = o.segment_bytes or JOURNAL_SEGMENT_BYTES
    o.segment_bytes = min(max(o.segment_bytes, <uint64_t>JOURNAL_SEGMENT_BYTES_MIN), <uint64_t>JOURNAL_SEGMENT_BYTES_MAX)
    o.block_bytes = o.block_bytes or JOURNAL_BLOCK_BYTES
    o.block_bytes = min(max(o.block_bytes, <uint32_t>JOURNAL_BLOCK_BYTES_MIN), <uint32_t>JOURNAL_BLOCK_BYTES_MAX)
    o.waiting_max_bytes = o.waiting_max_bytes or JOURNAL_WAITING_MAX_BYTES
    j.n_shards = o.shards


cdef int journal_open(Journal* j, const char* dir, const JournalOptions* options, const FileOps* files, uint64_t now_us,
                      JournalFound* found, char* why) noexcept nogil:
    cdef JournalFound mine
    cdef uint32_t i, most = JOURNAL_SHARDS_MAX
    cdef int got
    memset(j, 0, sizeof(Journal))
    memset(&mine, 0, sizeof(mine))
    j.files = files[0] if files != NULL else file_system()[0]
    j.hardware = crc_hardware()
    j.lock_fd = j.writer.mark_fd[0] = j.writer.mark_fd[1] = -1
    for i in range(most):
        j.writer.shards[i].fd = j.writer.shards[i].index_fd = -1
    j.opened = 1
    options_take(j, options)
    if strlen(dir) >= JOURNAL_PATH_MAX:
        return refuse(why, b"The name of the directory is too long:", dir, -EINVAL)
    memcpy(j.dir, dir, strlen(dir) + 1)
    if folder_take(j, why) < 0 or marks_take(j, &mine, why) < 0 or segments_take(j, &mine, why) < 0:
        return -1
    for i in range(j.n_shards):
        if shard_recover(j, i, &mine, why) < 0:
            return -1
    memcpy(j.writer.marks.stream_id, j.stream_id, 16)
    got = j.files.sync_dir(j.files.ctx, j.dir)
    if got < 0:
        return refuse(why, b"Cannot sync the directory", j.dir, got)
    if journal_mark(j, now_us) < 0:
        memcpy(why, j.writer.why, JOURNAL_WHY_MAX)
        return -1
    journal_take(j)             # what there is may be asked for
    if found != NULL:
        found[0] = mine
    return 0


cdef void blocks_free(Block* b) noexcept nogil:
    cdef Block* following
    while b != NULL:
        following = b.next
        free(b.p)
        free(b)
        b = following


cdef void journal_close(Journal* j) noexcept nogil:
    cdef JournalWriter* w = &j.writer
    cdef int i
    if not j.opened:
        return
    for i in range(JOURNAL_SHARDS_MAX):
        segment_close(j, i)
        free(w.shards[i].segments)
        blocks_free(w.shards[i].todo.head)
        blocks_free(w.shards[i].kept.head)
        blocks_free(j.loop.open[i])
    for i in range(2):
        if w.mark_fd[i] >= 0:
            j.files.close(j.files.ctx, w.mark_fd[i])
    if j.lock_fd >= 0:
        j.files.close(j.files.ctx, j.lock_fd)
    blocks_free(j.loop.sealed.head)
    blocks_free(j.loop.back)
    blocks_free(j.loop.idle)
    blocks_free(j.shared.sealed.head)
    blocks_free(j.shared.done)
    blocks_free(w.incoming.head)
    blocks_free(w.done)
    memset(j, 0, sizeof(Journal))
