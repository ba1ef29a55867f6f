"""Take a stream's folder: its lock, its mark, its segments. restore.pyx handles records that were written after the mark.

Invariants: no sequence number is given twice: the next one is after the mark and after all records that are found with valid
checksums. A folder of a later format, of another stream or in use is not changed. A name alone ends no segment; only a segment
with a valid head does.
"""

from libc.errno cimport EAGAIN, EEXIST, EINVAL, ENOENT, ENOMEM
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free
from libc.string cimport memcmp, memcpy, memset, strlen

from cext.journal.format cimport JOURNAL_FORMAT, JOURNAL_SHARDS_MAX, Marks, RECORD_BYTES_MIN, SegmentHead
from cext.journal.journal cimport (
    Block, JOURNAL_BLOCK_BYTES, JOURNAL_BLOCK_BYTES_MAX, JOURNAL_BLOCK_BYTES_MIN, JOURNAL_PATH_MAX, JOURNAL_SEGMENT_BYTES,
    JOURNAL_SEGMENT_BYTES_MAX, JOURNAL_SEGMENT_BYTES_MIN, JOURNAL_WAITING_MAX_BYTES, JOURNAL_WHY_MAX, JournalSegment,
    JournalWriter,
)
from cext.journal.listing cimport (
    HEAD_DAMAGED, HEAD_FOREIGN, HEAD_LATER, LISTING_ALL, SegmentFile, SegmentListing, mark_path, marks_read,
    segment_listing_free, segment_listing_mark_superseded, segment_listing_read, segment_look,
)
from cext.journal.restore cimport journal_refuse, restore_end, shard_restore
from cext.journal.segment cimport journal_segment_close, segment_add, segment_forget
from cext.store.crc cimport crc_hardware
from cext.store.file cimport FILE_PATH_MAX, file_system

cdef const char* NO_ID = "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"

cdef extern from "<fcntl.h>" nogil:
    int O_RDWR
    int O_CREAT
    int O_NOFOLLOW

cdef extern from "<sys/random.h>" nogil:
    ssize_t getrandom(void* p, size_t n, unsigned int flags)


# ---- the folder

cdef int folder_take(Journal* j, char* why) noexcept nogil:
    cdef char path[4096]
    cdef int got
    if j.options.create:
        got = j.files.mkdir(j.files.ctx, j.dir)
        if got < 0 and got != -EEXIST:
            return journal_refuse(&j.files, why, b"Cannot create", j.dir, got)
    snprintf(path, FILE_PATH_MAX, "%s/lock", j.dir)
    j.lock_fd = j.files.open(j.files.ctx, path, O_RDWR | O_CREAT | O_NOFOLLOW)
    if j.lock_fd < 0:
        return journal_refuse(&j.files, why, b"Cannot write", path, j.lock_fd)
    got = j.files.lock(j.files.ctx, j.lock_fd)
    if got == -EAGAIN:
        snprintf(why, JOURNAL_WHY_MAX, "The stream in %s is in use by another broker; stop it, or give this broker its own directory", j.dir)
        return -1
    if got < 0:
        return journal_refuse(&j.files, why, b"Cannot lock", path, got)
    snprintf(path, FILE_PATH_MAX, "%s/consumers", j.dir)
    got = j.files.mkdir(j.files.ctx, path)
    if got < 0 and got != -EEXIST:
        return journal_refuse(&j.files, why, b"Cannot create", path, got)
    return 0


cdef int refuse_later_format(Journal* j, uint32_t format, char* why) noexcept nogil:
    snprintf(why, JOURNAL_WHY_MAX, "The stream in %s has format %u, this version supports %u and older; use the version that wrote it, or another directory",
             j.dir, format, <unsigned int>JOURNAL_FORMAT)
    return -1


cdef int marks_take(Journal* j, JournalFound* found, char* why) noexcept nogil:
    """Take the mark. It may be in the page cache only, so journal_mark writes it to a new file. The sync is for a full disk, which
    has no room for a new file."""
    cdef Marks* m = &j.writer.marks
    cdef char path[4096]
    cdef int slot = 1, i, got = marks_read(&j.files, j.hardware, j.dir, m, &slot)
    if got == 0 and m.format > JOURNAL_FORMAT:
        return refuse_later_format(j, m.format, why)
    if got < 0 and got != -ENOENT:
        return journal_refuse(&j.files, why, b"Cannot read the mark in", j.dir, got)
    found.mark_lost = got != 0
    j.writer.mark_slot = <uint8_t>(slot ^ 1)
    for i in range(2):
        mark_path(path, j.dir, i)
        j.writer.mark_fd[i] = max(j.files.open(j.files.ctx, path, O_RDWR | O_NOFOLLOW), -1)
    j.writer.mark_inherited = got == 0
    if got == 0:
        memcpy(j.stream_id, m.stream_id, 16)
        got = j.files.datasync(j.files.ctx, j.writer.mark_fd[slot]) if j.writer.mark_fd[slot] >= 0 else -EINVAL
        if got < 0:
            return journal_refuse(&j.files, why, b"Cannot sync the mark in", j.dir, got)
    return 0


# ---- its segments

cdef int segment_take(Journal* j, SegmentFile* f, JournalFound* found, bint id_known, char* why) noexcept nogil:
    """Add the segment to its shard if its head is valid. Return -1 if the folder cannot be used."""
    cdef SegmentHead h
    cdef JournalSegment* g
    cdef uint64_t size = 0
    cdef int state = HEAD_DAMAGED
    cdef int fd = segment_look(&j.files, j.hardware, j.dir, f, j.stream_id if id_known else NULL, &h, &state, &size)
    if fd < 0:
        return journal_refuse(&j.files, why, b"Cannot read a segment in", j.dir, fd)
    j.files.close(j.files.ctx, fd)
    if state == HEAD_LATER:
        return refuse_later_format(j, h.format, why)
    if state == HEAD_FOREIGN:
        snprintf(why, JOURNAL_WHY_MAX, "%s holds segments of more than one stream (%03u-%020llu-%020llu.seg belongs to another); move them away",
                 j.dir, f.shard, <unsigned long long>f.base_seq, <unsigned long long>f.number)
        return -1
    j.writer.next_number = max(j.writer.next_number, f.number + 1)
    f.damaged = state == HEAD_DAMAGED
    if f.damaged:
        if f.shard >= j.writer.marks.n:     # it may hold records, and their number is unknown
            j.n_shards = max(j.n_shards, f.shard + 1)
            j.loop.next_seq[f.shard] = max(j.loop.next_seq[f.shard], f.base_seq + size // RECORD_BYTES_MIN)
        return 0
    if not id_known:
        memcpy(j.stream_id, h.stream_id, 16)
    g = segment_add(j, f.shard)
    if g == NULL:
        return journal_refuse(&j.files, why, b"Cannot read", j.dir, -ENOMEM)
    j.n_shards = max(j.n_shards, f.shard + 1, min(h.shards, <uint32_t>JOURNAL_SHARDS_MAX))
    g.base_seq = h.base_seq
    g.number = h.number
    g.bytes_ = size
    g.made_us = h.made_us
    g.time_us = h.time_us
    j.writer.stats.total_bytes += size
    return 1


cdef void rows_settle(Journal* j, SegmentListing* l, JournalFound* found) noexcept nogil:
    """Remove the segments that are superseded, and those behind the mark. Readers find the remaining ones."""
    cdef Marks* m = &j.writer.marks
    cdef SegmentFile* f
    cdef uint32_t i, row = 0
    segment_listing_mark_superseded(l)
    for i in range(l.n):
        f = &l.files[i]
        if i == 0 or f.shard != l.files[i - 1].shard:
            row = 0
        f.superseded = f.superseded or (f.shard < m.n and f.base_seq >= m.shards[f.shard].seq)
        if f.damaged:
            found.unreadable += not f.superseded
        elif f.superseded:
            segment_forget(j, f.shard, row)
        else:
            row += 1


cdef int segments_take(Journal* j, SegmentListing* l, JournalFound* found, char* why) noexcept nogil:
    cdef Marks* m = &j.writer.marks
    cdef uint32_t i
    cdef int got = segment_listing_read(l, &j.files, j.dir, LISTING_ALL)
    cdef bint id_known = not found.mark_lost
    if got < 0:
        return journal_refuse(&j.files, why, b"Cannot read", j.dir, got)
    j.n_shards = max(j.n_shards, m.n)
    j.writer.next_number = 1
    for i in range(m.n):
        j.writer.next_number = max(j.writer.next_number, m.shards[i].segment + 1, m.shards[i].behind)
    for i in range(l.n):
        got = segment_take(j, &l.files[i], found, id_known, why)
        if got < 0:
            return -1
        id_known = id_known or got == 1
    j.writer.start_number = j.writer.next_number
    rows_settle(j, l, found)
    found.mark_lost = found.mark_lost and l.n
    if not id_known:
        memcpy(j.stream_id, j.options.stream_id, 16)
    if not id_known and memcmp(j.stream_id, NO_ID, 16) == 0 and getrandom(j.stream_id, 16, 0) != 16:
        return journal_refuse(NULL, why, b"Cannot get random numbers for", j.dir, -EINVAL)
    return 0


# ---- the stream

cdef void journal_options_set(Journal* j, const JournalOptions* options) noexcept nogil:
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


cdef int opening_steps(Journal* j, SegmentListing* l, uint64_t now_us, JournalFound* found, char* why) noexcept nogil:
    cdef uint32_t shard
    cdef int got
    if folder_take(j, why) < 0 or marks_take(j, found, why) < 0 or segments_take(j, l, found, why) < 0:
        return -1
    memcpy(j.writer.marks.stream_id, j.stream_id, 16)
    for shard in range(j.n_shards):
        if shard_restore(j, shard, l, now_us, found, why) < 0:
            return -1
    got = j.files.sync_dir(j.files.ctx, j.dir)
    if got < 0:
        return journal_refuse(&j.files, why, b"Cannot sync the directory", j.dir, got)
    return restore_end(j, l, now_us, why)


cdef int journal_open(Journal* j, const char* dir, const JournalOptions* options, const FileOps* files, uint64_t now_us,
                      JournalFound* found, char* why) noexcept nogil:
    cdef JournalFound mine
    cdef SegmentListing l
    cdef uint32_t i, most = JOURNAL_SHARDS_MAX
    cdef int got
    memset(j, 0, sizeof(Journal))
    memset(&mine, 0, sizeof(mine))
    memset(&l, 0, sizeof(l))
    j.files = files[0] if files != NULL else file_system()[0]
    j.hardware = crc_hardware()
    j.lock_fd = j.writer.mark_fd[0] = j.writer.mark_fd[1] = -1
    for i in range(most):
        j.writer.shards[i].fd = j.writer.shards[i].index_fd = -1
    j.opened = 1
    journal_options_set(j, options)
    if strlen(dir) >= JOURNAL_PATH_MAX:
        return journal_refuse(NULL, why, b"The name of the directory is too long:", dir, -EINVAL)
    memcpy(j.dir, dir, strlen(dir) + 1)
    got = opening_steps(j, &l, now_us, &mine, why)
    segment_listing_free(&l)
    if got == 0 and found != NULL:
        found[0] = mine
    return got


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
        journal_segment_close(j, i)
        free(w.shards[i].segments)
        blocks_free(w.shards[i].todo.head)
        blocks_free(w.shards[i].unsynced.head)
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
