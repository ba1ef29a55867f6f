"""The list of segments: the oldest is dropped, the newest is written to. This module knows headers, numbers and lsns. It does not
know the content of a batch.

Invariants: a segment number is given once. A segment begins only behind written batches. Its header is written before the SEGEND
record of the preceding segment announces it. After a start the log continues in a new segment, so that leftovers of an unfinished
batch never look like records; without a free file for it, in the last segment, whose leftovers are wiped first. The newest header names the beginning of the log before the header of the oldest segment is wiped.
All functions run in the storage thread (before store_start: in the owner's thread).
"""

from libc.errno cimport ENOMEM
from libc.stdint cimport UINT64_MAX, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memmove, memset

from cext.base.words cimport load32, store64
from cext.store.file cimport file_error_passes, file_write
from cext.store.format cimport (
    COMMIT_BYTES, HEADER_BYTES, Header, KIND_SEGEND, SEGEND_BODY, SEGEND_BYTES, STORE_RECORD_HEAD, header_seed, header_write,
    record_begin, record_bytes, record_seal,
)
from cext.store.replay cimport SLOT_SEGMENT, SLOT_UNUSED, StoreFile, StoreListing, store_segment_path
from cext.store.spare cimport file_discard, file_keep, file_take, file_wipe, slot_free
from cext.store.state cimport STORE_RANGES_REPORTED, Store, StoreBatch, StoreLoss, StoreSegment, StoreWriter

cdef extern from "<fcntl.h>" nogil:
    int O_RDWR
    int O_NOFOLLOW


# ---- the list of segments

cdef StoreSegment* segment_insert(Store* s, uint32_t at) noexcept nogil:
    cdef StoreWriter* w = &s.writer
    cdef StoreSegment* more
    if w.n == w.cap:
        more = <StoreSegment*>realloc(w.segments, (w.cap * 2 if w.cap else 16) * sizeof(StoreSegment))
        if more == NULL:
            return NULL
        w.segments = more
        w.cap = w.cap * 2 if w.cap else 16
    memmove(&w.segments[at + 1], &w.segments[at], (w.n - at) * sizeof(StoreSegment))
    w.n += 1
    memset(&w.segments[at], 0, sizeof(StoreSegment))
    w.segments[at].fd = -1
    return &w.segments[at]


cdef void segment_remove(Store* s, uint32_t at) noexcept nogil:
    cdef StoreWriter* w = &s.writer
    w.n -= 1
    memmove(&w.segments[at], &w.segments[at + 1], (w.n - at) * sizeof(StoreSegment))


cdef StoreSegment* segment_of(Store* s, uint64_t lsn) noexcept nogil:
    cdef StoreWriter* w = &s.writer
    cdef uint32_t lo = 0, hi = w.n, mid
    while lo < hi:
        mid = (lo + hi) // 2
        if w.segments[mid].end_lsn <= lsn:
            lo = mid + 1
        else:
            hi = mid
    if lo == w.n or lsn < w.segments[lo].base_lsn:
        return NULL
    return &w.segments[lo]


cdef int segments_begin(Store* s, StoreListing* l, const StoreLoss* loss) noexcept nogil:
    cdef StoreWriter* w = &s.writer
    cdef StoreFile* found
    cdef StoreSegment* g
    cdef uint32_t i
    cdef bint complete
    for complete in range(2):           # complete files come last, since the last one is taken first
        for i in range(l.n):
            found = &l.files[i]
            if found.state == SLOT_UNUSED and (found.size == s.options.segment_bytes) == complete:
                if slot_free(s, found.slot) != 0:
                    return -ENOMEM
                w.free_complete |= complete
    for i in range(l.n):
        found = &l.files[i]
        w.slot_last = max(w.slot_last, found.slot)
        w.number_last = max(w.number_last, found.h.number)
        if found.state == SLOT_SEGMENT:
            g = segment_insert(s, w.n)
            if g == NULL:
                return -ENOMEM
            g.number = found.h.number
            g.base_lsn = found.h.base_lsn
            g.capacity = max(found.size, found.h.capacity)
            g.sync_failed = found.h.sync_failed
            g.allocated = found.size if found.size <= found.h.capacity else 0
            g.seed = found.h.seed
            g.slot = found.slot
            if w.n > 1:
                # this is not the real end if a part of the log is missing before g; reads of the missing part find nothing in
                # either case
                w.segments[w.n - 2].end_lsn = g.base_lsn
    if w.n:
        w.segments[w.n - 1].end_lsn = max(loss.end_lsn, w.segments[w.n - 1].base_lsn)
    # the last segment may be empty; its header may know the beginning of the log better than the others
    for i in range(w.n):
        w.segments[i].dirty = w.segments[i].end_lsn > loss.synced_lsn
        w.segments[i].poisoned = w.segments[i].dirty and w.segments[i].sync_failed
    for i in range(min(loss.n, <uint32_t>STORE_RANGES_REPORTED)):
        # the last segment says that a missing one follows: that is reported as long as it says so
        w.follower_missing |= loss.ranges[i].hi == UINT64_MAX
    w.tail_lsn = w.segments[0].base_lsn if w.n else loss.end_lsn
    w.dir_dirty = 1
    segments_measure(s)
    return 0


cdef void segments_fini(Store* s) noexcept nogil:
    cdef StoreWriter* w = &s.writer
    cdef uint32_t i
    for i in range(w.n):
        segment_close(s, &w.segments[i])
    if w.spare.slot:
        segment_close(s, &w.spare)
    free(w.segments)
    free(w.slots)
    w.segments = NULL
    w.slots = NULL
    w.n = w.cap = w.n_slots = 0


cdef void segments_measure(Store* s) noexcept nogil:
    cdef StoreWriter* w = &s.writer
    cdef uint32_t i
    w.segments_bytes = 0
    for i in range(w.n):
        w.segments_bytes += w.segments[i].capacity


cdef void batch_check(Store* s, const StoreSegment* g, StoreBatch* b) noexcept nogil:
    cdef uint64_t at = 0
    store64(b.p + b.n - COMMIT_BYTES + STORE_RECORD_HEAD + 8, s.writer.synced if s.writer.sync_wanted else <uint64_t>0)
    while at < b.n:
        record_seal(s.hardware, b.p + at, g.seed, b.lsn + at)
        at += record_bytes(load32(b.p + at + 4))


# ---- one segment

cdef int segment_open(Store* s, StoreSegment* g) noexcept nogil:
    cdef char path[4096]
    cdef int fd
    if g.fd >= 0:
        return 0
    store_segment_path(path, s.dir, g.slot)
    fd = s.files.open(s.files.ctx, path, O_RDWR | O_NOFOLLOW)
    if fd < 0:
        return fd
    g.fd = fd
    return 0


cdef void segment_close(Store* s, StoreSegment* g) noexcept nogil:
    if g.fd >= 0:
        s.files.close(s.files.ctx, g.fd)
    g.fd = -1


cdef void header_of(Store* s, const StoreSegment* g, Header* h) noexcept nogil:
    memset(h, 0, sizeof(Header))
    memcpy(h.store_id, s.store_id, 16)
    h.number = g.number
    h.base_lsn = g.base_lsn
    h.tail_lsn = s.writer.tail_lsn
    h.capacity = g.capacity
    h.sync_failed = g.sync_failed
    header_seed(s.hardware, h)


cdef void header_seed_of(Store* s, StoreSegment* g) noexcept nogil:
    cdef Header h
    header_of(s, g, &h)
    g.seed = h.seed


cdef int header_put_unsynced(Store* s, const StoreSegment* g) noexcept nogil:
    cdef uint8_t page[4096]
    cdef Header h
    header_of(s, g, &h)
    header_write(s.hardware, page, &h)
    return file_write(&s.files, g.fd, page, HEADER_BYTES, 0)


cdef int header_put(Store* s, StoreSegment* g) noexcept nogil:
    cdef int got = header_put_unsynced(s, g)
    if s.files.deferred:                # later changes come behind it in any case
        return got
    if got == 0 and s.writer.sync_wanted:
        got = s.files.datasync(s.files.ctx, g.fd)
    if got == 0 and s.writer.sync_wanted and s.writer.dir_dirty:        # the directory entry, too
        got = s.files.sync_dir(s.files.ctx, s.dir)
        s.writer.dir_dirty = got < 0
    return got


cdef void segment_sync_failed(Store* s, StoreSegment* g) noexcept nogil:
    """Poison a dirty segment, so that it is written again (poison.pyx), unless the error passes. Its header says so to the next
    process: after a kill the page cache still has what the disk has lost, and a sync by that process would succeed. This write
    needs no space. If it fails, a kill before the rewrite is not covered."""
    if file_error_passes(&s.files):
        return
    g.poisoned = g.sync_failed = 1
    header_put_unsynced(s, g)


cdef void segment_end(Store* s, StoreSegment* g) noexcept nogil:
    """Write to g that the log continues in another segment. This helps to detect a lost file; nothing depends on it."""
    cdef uint8_t record[20]
    cdef uint64_t at = HEADER_BYTES + (g.end_lsn - g.base_lsn)
    if g.poisoned or at + SEGEND_BYTES > g.capacity:
        return
    record_begin(record, KIND_SEGEND, 0, SEGEND_BODY)
    store64(record + STORE_RECORD_HEAD, g.end_lsn)
    record_seal(s.hardware, record, g.seed, g.end_lsn)
    if file_write(&s.files, g.fd, record, SEGEND_BYTES, at) == 0 and s.writer.sync_wanted and not s.files.deferred:
        if s.files.datasync(s.files.ctx, g.fd) == 0:
            g.dirty = 0
        else:
            segment_sync_failed(s, g)
            s.writer.stats.errors += 1


cdef int segment_begin(Store* s, uint64_t need, const char** action) noexcept nogil:
    cdef StoreWriter* w = &s.writer
    cdef StoreSegment fresh
    cdef StoreSegment* g
    cdef int got
    action[0] = "create a segment file in"
    got = file_take(s, need, &fresh)
    if got < 0:
        return got
    w.number_last += 1                  # also if this fails: the number may already be on the disk
    fresh.number = w.number_last
    fresh.base_lsn = fresh.end_lsn = w.written
    header_seed_of(s, &fresh)
    action[0] = "write a segment's header in"
    got = header_put(s, &fresh)
    g = segment_insert(s, w.n) if got == 0 else NULL
    if g == NULL:
        file_discard(s, &fresh)
        return got if got else -ENOMEM
    g[0] = fresh
    if w.n > 1:
        g = &w.segments[w.n - 2]
        if w.active:
            segment_end(s, g)
            segment_close(s, g)
    w.active = 1
    segments_measure(s)
    return 0


cdef bint segment_continue(Store* s, uint64_t need) noexcept nogil:
    """Continue in the last segment of the process before. Its leftovers of an unfinished batch are wiped first: their seed and their
    lsns are those of the records to come."""
    cdef StoreWriter* w = &s.writer
    cdef StoreSegment* g = &w.segments[w.n - 1]
    cdef uint64_t at = HEADER_BYTES + (g.end_lsn - g.base_lsn)
    if w.free_complete or w.follower_missing or g.end_lsn != w.written or at + need + SEGEND_BYTES > g.allocated or segment_open(s, g) != 0:
        return 0
    if file_wipe(s, g, at) != 0:
        segment_close(s, g)
        return 0
    w.active = 1
    return 1


cdef int segment_for(Store* s, uint64_t need, const char** action) noexcept nogil:
    cdef StoreWriter* w = &s.writer
    cdef StoreSegment* g
    cdef int got
    if w.active:
        g = &w.segments[w.n - 1]
        if not g.poisoned and HEADER_BYTES + (g.end_lsn - g.base_lsn) + need + SEGEND_BYTES <= g.capacity:
            return 0
    elif w.n and segment_continue(s, need):
        return 0
    got = segment_begin(s, need, action)
    if got == 0 and w.n > 1:
        g = &w.segments[w.n - 2]
        if g.end_lsn == g.base_lsn:     # it is empty, and the new segment's header names the beginning of the log
            file_discard(s, g)
            segment_remove(s, w.n - 2)
            segments_measure(s)
    return got


cdef int segment_drop(Store* s, const char** action) noexcept nogil:
    cdef StoreWriter* w = &s.writer
    cdef StoreSegment* last = &w.segments[w.n - 1]
    cdef StoreSegment* g = &w.segments[0]
    cdef int got
    w.tail_lsn = w.segments[1].base_lsn
    action[0] = "write a segment's header in"
    got = header_put(s, last)
    if got < 0:
        last.dirty = 1
        segment_sync_failed(s, last)
        return got
    if segment_open(s, g) != 0 or not file_keep(s, g):
        file_discard(s, g)
    segment_remove(s, 0)
    segments_measure(s)
    w.stats.cleaned += 1
    return 0
