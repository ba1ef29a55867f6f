"""Keep the disk use bounded: read the oldest segment, let the owner append its live records again, and drop the segment when
these copies are committed.

This module knows lsns and sizes. Only the owner knows which records are live. Invariants: a segment is dropped only when
everything below `done_lsn` is written (synced, if the store was ever asked to sync) and no read request waits for one of its
records. One segment is cleaned at a time. No copy is appended unless all copies of the segment find room that is allocated: on a
full disk, copies that must wait for room would keep back the acknowledgements behind them. Cleaning begins when all files, including the spare, exceed 2 x live + 2 segments. If a
whole round freed almost nothing, the owner's count of live bytes is too low, and cleaning pauses: until as much was written as the round
copied, or less is live.
"""

from libc.errno cimport ENOMEM
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy, memset

from cext.base.clock cimport clock_monotonic_us
from cext.store.format cimport HEADER_BYTES, Header, SEGEND_BYTES
from cext.store.reading cimport reading_dropped
from cext.store.replay cimport SegmentWalk, segment_load, segment_walk_batch, segment_walk_begin, segment_walk_end
from cext.store.segment cimport segment_drop
from cext.store.state cimport STORE_CLEAN, Store, StoreCleaning, StoreReading, StoreSegment, StoreWriter


cdef enum:
    REFUSED_US = 1000000        # time after which copies that found no room are counted again


cdef void cleaning_free(StoreCleaning* c) noexcept nogil:
    if c != NULL:
        free(c.p)
        free(c.found)
        free(c)


cdef void clean_fini(Store* s) noexcept nogil:
    cleaning_free(s.writer.cleaning)
    s.writer.cleaning = NULL


cdef uint64_t room_lsn(const Store* s) noexcept nogil:
    """Return the lsn up to which records find room without more space on the disk."""
    cdef const StoreWriter* w = &s.writer
    cdef const StoreSegment* g = &w.segments[w.n - 1]
    cdef uint64_t lsn = w.written
    if not g.poisoned and g.allocated > HEADER_BYTES + SEGEND_BYTES:
        lsn = max(lsn, g.base_lsn + g.allocated - HEADER_BYTES - SEGEND_BYTES)
    if spare_is_complete(w):
        lsn += w.spare.capacity - HEADER_BYTES - SEGEND_BYTES
    return lsn


cdef inline bint spare_is_complete(const StoreWriter* w) noexcept nogil:
    return w.spare.slot != 0 and w.spare_done >= w.spare.capacity


cdef bint copies_may_fit(const Store* s) noexcept nogil:
    """Return whether to clean now, as far as the room for the copies decides. While the spare is being written, it is better to wait
    for it, unless batches come so fast that it is taken unfinished again and again."""
    cdef const StoreWriter* w = &s.writer
    if not spare_is_complete(w) and not w.full and not w.failing:
        if s.files.unreserved:
            return 1
        return w.segments_bytes > 2 * (w.live_bytes + s.options.segment_bytes)
    return w.refused_lsn == 0 or w.live_bytes < w.refused_live - w.refused_live // 8 or room_lsn(s) > w.refused_lsn \
        or clock_monotonic_us() >= w.refused_us


cdef void clean_refused(Store* s) noexcept nogil:
    cdef StoreWriter* w = &s.writer
    w.refused_lsn = w.cleaning.room_lsn
    w.refused_live = w.live_bytes
    w.refused_us = clock_monotonic_us() + REFUSED_US
    clean_fini(s)


cdef inline bint is_idle(const StoreWriter* w) noexcept nogil:
    return w.written < w.idle_lsn and w.live_bytes >= w.idle_live - w.idle_live // 8


cdef bint files_exceed_limit(const Store* s) noexcept nogil:
    cdef const StoreWriter* w = &s.writer
    return w.active and w.n > 1 and w.cleaning == NULL and w.segments_bytes > 2 * w.live_bytes + s.options.segment_bytes and not is_idle(w)


cdef bint clean_is_due(Store* s) noexcept nogil:
    cdef StoreWriter* w = &s.writer
    cdef StoreSegment* g
    if not files_exceed_limit(s) or not copies_may_fit(s):
        return 0
    g = &w.segments[0]
    if w.sync_wanted and g.end_lsn > w.synced:
        return 0
    if g.base_lsn >= w.cycle_lsn:
        # a round is over: if the owner counts correctly, less than half of the round's bytes were copied
        if w.cycle_copied and w.cycle_copied >= w.cycle_dropped - w.cycle_dropped // 8:
            # clean again only after other records of the size that this round copied in vain were written
            w.idle_lsn = w.written + max(s.options.segment_bytes, w.cycle_copied)
            w.idle_live = w.live_bytes
        w.cycle_lsn = w.written
        w.cycle_copied = w.cycle_dropped = 0
    return not is_idle(w)


cdef bint cleaning_add_found(StoreCleaning* c, const SegmentWalk* walk) noexcept nogil:
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


cdef int cleaning_fill(Store* s, const StoreSegment* g, StoreCleaning* c) noexcept nogil:
    cdef SegmentWalk walk
    cdef Header h
    cdef int status = 0
    c.number = g.number
    c.base_lsn = g.base_lsn
    c.p = segment_load(&s.files, s.dir, g.slot, &c.n, &status)
    if c.p == NULL:
        return status
    memset(&walk, 0, sizeof(SegmentWalk))
    memset(&h, 0, sizeof(Header))
    h.capacity = g.capacity
    h.seed = g.seed
    h.base_lsn = g.base_lsn
    segment_walk_begin(&walk, c.p, c.n, &h)
    walk.limit = min(walk.limit, HEADER_BYTES + (g.end_lsn - g.base_lsn))
    walk.bounded = 1
    status = segment_walk_batch(&walk, s.hardware)
    while status == 1:
        s.writer.stats.damaged += walk.n_holes
        if not cleaning_add_found(c, &walk):
            status = -1
            break
        status = segment_walk_batch(&walk, s.hardware)
    segment_walk_end(&walk)
    return -ENOMEM if status < 0 else 0


cdef bint has_pending_reads(const Store* s, const StoreSegment* g) noexcept nogil:
    cdef const StoreReading* r = s.writer.requests
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
    return w.synced < w.cleaning.done_lsn <= w.written if w.clean_waits else files_exceed_limit(s) and w.segments[0].end_lsn > w.synced


cdef int clean_drop(Store* s, const char** action) noexcept nogil:
    """Drop the cleaned segment if nothing prevents it. Return 0 if it was dropped or must wait, else -errno."""
    cdef StoreWriter* w = &s.writer
    cdef StoreCleaning* c = w.cleaning
    cdef StoreSegment* g = &w.segments[0]
    cdef uint64_t n_bytes
    cdef int status
    if w.written < c.done_lsn or (w.sync_wanted and w.synced < c.done_lsn):
        return 0
    if g.number == c.number:            # otherwise the segment was poisoned during the cleaning and is gone
        if has_pending_reads(s, g) or w.n < 2 or not w.active or w.segments[w.n - 1].poisoned:
            return 0
        reading_dropped(s)
        n_bytes = g.end_lsn - g.base_lsn
        status = segment_drop(s, action)
        if status < 0:
            return status
        w.cycle_dropped += n_bytes
        w.cycle_copied += c.copied
    w.stats.copied_bytes += c.copied
    w.clean_waits = 0
    clean_fini(s)
    return 0


cdef int clean_begin(Store* s, unsigned int* news, const char** action) noexcept nogil:
    cdef StoreWriter* w = &s.writer
    cdef StoreCleaning* c = <StoreCleaning*>calloc(1, sizeof(StoreCleaning))
    cdef int status
    action[0] = "read a segment in"
    if c == NULL:
        return -ENOMEM
    status = cleaning_fill(s, &w.segments[0], c)
    if status < 0:
        cleaning_free(c)
        return status
    c.room_lsn = room_lsn(s)
    c.counted = not spare_is_complete(w) and not w.full and not w.failing       # the disk has room as far as is known
    w.refused_lsn = 0
    w.cleaning = c
    if c.n_found == 0:
        w.clean_waits = 1
    else:
        news[0] |= STORE_CLEAN
    return 0


cdef int clean_step(Store* s, unsigned int* news, const char** action) noexcept nogil:
    cdef StoreWriter* w = &s.writer
    cdef int status = 0
    if w.clean_waits:
        status = clean_drop(s, action)
    if status == 0 and clean_is_due(s):
        status = clean_begin(s, news, action)
    return status
