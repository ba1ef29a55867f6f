"""Keeping the disk bounded: the oldest segment is read, the owner appends again what is live, and when that is committed the segment is dropped.

Knows lsns and sizes; only the owner knows what is live. Invariants: a segment is dropped only when all below `done_lsn` is written (synced, where
anything was ever asked to be), and no answer is owed from it; one is cleaned at a time. It begins when all files, the spare among them, are more
than 2 x live + 2 segments; a whole round that gained next to nothing
(the owner's count of what is live is wrong, then) makes it wait.
"""

from libc.errno cimport ENOMEM
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy, memset

from cext.store.format cimport HEADER_BYTES, Header
from cext.store.reading cimport reading_dropped
from cext.store.replay cimport Walk, segment_load, walk_batch, walk_begin, walk_end
from cext.store.segment cimport segment_drop
from cext.store.store cimport Cleaning, Reading, STORE_CLEAN, Segment, Store, StoreWriter


cdef void cleaning_free(Cleaning* c) noexcept nogil:
    if c != NULL:
        free(c.p)
        free(c.found)
        free(c)


cdef void clean_fini(Store* s) noexcept nogil:
    cleaning_free(s.writer.cleaning)
    s.writer.cleaning = NULL


cdef bint too_much(const Store* s) noexcept nogil:
    cdef const StoreWriter* w = &s.writer
    return w.active and w.n > 1 and w.cleaning == NULL and w.row_bytes > 2 * w.live_bytes + s.options.segment_bytes and w.written >= w.idle_lsn


cdef bint wanted(Store* s) noexcept nogil:
    cdef StoreWriter* w = &s.writer
    cdef Segment* g
    if not too_much(s):
        return 0
    g = &w.segments[0]
    if w.sync_wanted and g.end_lsn > w.synced:
        return 0
    if g.base_lsn >= w.cycle_lsn:
        # a round is over: where the owner counts right, less than half of it was copied
        if w.cycle_copied and w.cycle_copied >= w.cycle_dropped - w.cycle_dropped // 8:
            # what this round wrote again for nothing is first to be written by others
            w.idle_lsn = w.written + max(s.options.segment_bytes, w.cycle_copied)
        w.cycle_lsn = w.written
        w.cycle_copied = w.cycle_dropped = 0
    return w.written >= w.idle_lsn


cdef bint found_add(Cleaning* c, const Walk* walk) noexcept nogil:
    cdef uint32_t* more
    if walk.n_found == 0:
        return 1
    more = <uint32_t*>realloc(c.found, (<size_t>c.n_found + walk.n_found) * sizeof(uint32_t))
    if more == NULL:
        return 0
    c.found = more
    memcpy(more + c.n_found, walk.found, walk.n_found * sizeof(uint32_t))
    c.n_found += walk.n_found
    return 1


cdef int cleaning_fill(Store* s, const Segment* g, Cleaning* c) noexcept nogil:
    cdef Walk walk
    cdef Header h
    cdef int got = 0
    c.number = g.number
    c.base_lsn = g.base_lsn
    c.p = segment_load(&s.files, s.dir, g.slot, &c.n, &got)
    if c.p == NULL:
        return got
    memset(&walk, 0, sizeof(Walk))
    memset(&h, 0, sizeof(Header))
    h.capacity = g.capacity
    h.seed = g.seed
    h.base_lsn = g.base_lsn
    walk_begin(&walk, c.p, c.n, &h)
    walk.limit = min(walk.limit, HEADER_BYTES + (g.end_lsn - g.base_lsn))
    walk.bounded = 1
    got = walk_batch(&walk, s.hardware)
    while got == 1:
        s.writer.stats.damaged += walk.n_holes
        if not found_add(c, &walk):
            got = -1
            break
        got = walk_batch(&walk, s.hardware)
    walk_end(&walk)
    return -ENOMEM if got < 0 else 0


cdef bint answers_due_now(const Store* s, const Segment* g) noexcept nogil:
    cdef const Reading* r = s.writer.asked
    cdef const uint64_t* lsns
    cdef uint32_t i
    while r != NULL:
        lsns = <const uint64_t*>(r + 1)
        for i in range(r.done, r.n):
            if g.base_lsn <= lsns[i] < g.end_lsn:
                return 1
        r = r.next
    return 0


cdef bint clean_wants_sync(const Store* s) noexcept nogil:
    cdef const StoreWriter* w = &s.writer
    if not w.sync_wanted:
        return 0
    return w.synced < w.cleaning.done_lsn <= w.written if w.clean_waits else too_much(s) and w.segments[0].end_lsn > w.synced


cdef int clean_drop(Store* s, const char** what) noexcept nogil:
    # 0: dropped, or not yet; -errno
    cdef StoreWriter* w = &s.writer
    cdef Cleaning* c = w.cleaning
    cdef Segment* g = &w.segments[0]
    cdef uint64_t n_bytes
    cdef int got
    if w.written < c.done_lsn or (w.sync_wanted and w.synced < c.done_lsn):
        return 0
    if g.number == c.number:            # else it was poisoned meanwhile, and is gone
        if answers_due_now(s, g) or w.n < 2 or not w.active or w.segments[w.n - 1].poisoned:
            return 0
        reading_dropped(s)
        n_bytes = g.end_lsn - g.base_lsn
        got = segment_drop(s, what)
        if got < 0:
            return got
        w.cycle_dropped += n_bytes
        w.cycle_copied += c.copied
    w.stats.copied_bytes += c.copied
    w.clean_waits = 0
    clean_fini(s)
    return 0


cdef int clean_begin(Store* s, unsigned int* news, const char** what) noexcept nogil:
    cdef StoreWriter* w = &s.writer
    cdef Cleaning* c = <Cleaning*>calloc(1, sizeof(Cleaning))
    cdef int got
    what[0] = "read a segment in"
    if c == NULL:
        return -ENOMEM
    got = cleaning_fill(s, &w.segments[0], c)
    if got < 0:
        cleaning_free(c)
        return got
    w.cleaning = c
    if c.n_found == 0:
        w.clean_waits = 1
    else:
        news[0] |= STORE_CLEAN
    return 0


cdef int clean_step(Store* s, unsigned int* news, const char** what) noexcept nogil:
    cdef StoreWriter* w = &s.writer
    cdef int got = 0
    if w.clean_waits:
        got = clean_drop(s, what)
    if got == 0 and wanted(s):
        got = clean_begin(s, news, what)
    return got
