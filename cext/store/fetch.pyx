"""Read the next records of many requests with few questions. Records of sessions that are drained together lie all over the log;
read one by one, each would cost a round trip and a block of the file.

Invariants: fetched bytes are valid until the next fetch or the end of the step, within which no segment is written again or
dropped. At most FETCH_RECORDS ranges of FETCH_BYTES, which are joined where they are near. Cost: one question for each segment
that has such records, and for each FETCH_RECORDS of them.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, qsort

from cext.store.file cimport FileRange
from cext.store.format cimport HEADER_BYTES
from cext.store.replay cimport store_segment_path
from cext.store.segment cimport segment_of
from cext.store.state cimport STORE_READ_BYTES_MAX, Store, StoreFetch, StoreReading, StoreSegment, StoreWriter

cdef extern from "<fcntl.h>" nogil:
    int O_RDONLY
    int O_NOFOLLOW

cdef enum:
    FETCH_RECORDS = 512         # records of one step
    FETCH_BYTES = 1 << 10       # of each record; a larger one is read by itself
    FETCH_GAP = 2 << 10         # bytes that are read in vain to join two ranges
    FETCH_RANGE_MAX = 64 << 10


cdef int lsn_order(const void* a, const void* b) noexcept nogil:
    cdef uint64_t x = (<const uint64_t*>a)[0], y = (<const uint64_t*>b)[0]
    return (x > y) - (x < y)


cdef uint32_t wanted(const Store* s, uint64_t* lsns) noexcept nogil:
    """Collect the next records of the requests, as reading_step answers them. Return their number."""
    cdef const StoreReading* r = s.writer.requests
    cdef uint32_t n = 0, i
    while r != NULL and n < FETCH_RECORDS:
        for i in range(r.done, r.n):
            if n == FETCH_RECORDS or (<const uint64_t*>(r + 1))[i] >= s.writer.written:
                break
            lsns[n] = (<const uint64_t*>(r + 1))[i]
            n += 1
        r = r.next
    return n


cdef void ranges_make(Store* s, StoreFetch* t, const uint64_t* lsns, uint32_t n) noexcept nogil:
    """Join sorted records to ranges of the log."""
    cdef const StoreSegment* g
    cdef FileRange* last = NULL
    cdef uint64_t number = 0, end
    cdef uint32_t i
    t.n = 0
    for i in range(n):
        g = segment_of(s, lsns[i])
        if g == NULL:
            continue
        end = min(lsns[i] + FETCH_BYTES, g.end_lsn)
        if last != NULL and g.number == number and lsns[i] <= last.at + last.n + FETCH_GAP and end - last.at <= FETCH_RANGE_MAX:
            last.n = max(last.n, end - last.at)
            continue
        last = &t.ranges[t.n]
        last.at, last.n, last.p = lsns[i], end - lsns[i], NULL
        number = g.number
        t.n += 1


cdef void segment_fetch(Store* s, const StoreSegment* g, FileRange* ranges, uint32_t n) noexcept nogil:
    """Read ranges of one segment. Their places are lsns before and afterwards."""
    cdef char path[4096]
    cdef uint32_t i
    cdef int fd
    store_segment_path(path, s.dir, g.slot)
    fd = s.files.open(s.files.ctx, path, O_RDONLY | O_NOFOLLOW)
    for i in range(n):
        ranges[i].at += HEADER_BYTES - g.base_lsn
    if fd > 0:
        s.files.read_many(s.files.ctx, fd, ranges, n)
        s.files.close(s.files.ctx, fd)
    for i in range(n):
        ranges[i].at -= HEADER_BYTES - g.base_lsn
        if fd <= 0:
            ranges[i].n = 0


cdef void fetch_next(Store* s) noexcept nogil:
    cdef StoreWriter* w = &s.writer
    cdef StoreFetch* t = &w.fetch
    cdef const StoreSegment* g
    cdef uint64_t lsns[FETCH_RECORDS]
    cdef uint64_t n_bytes = 0
    cdef uint32_t n, i, first
    t.n = 0
    if s.files.read_many == NULL or w.requests == NULL or w.answers_bytes >= STORE_READ_BYTES_MAX:
        return
    n = wanted(s, lsns)
    if n < 2:
        return                  # the window reads it, and what follows
    qsort(lsns, n, sizeof(uint64_t), lsn_order)
    if t.ranges == NULL:
        t.ranges = <FileRange*>malloc(FETCH_RECORDS * sizeof(FileRange))
        if t.ranges == NULL:
            return
    ranges_make(s, t, lsns, n)
    for i in range(t.n):
        n_bytes += t.ranges[i].n
    free(t.bytes)
    t.bytes = <uint8_t*>malloc(n_bytes)
    if t.bytes == NULL:
        t.n = 0
        return
    n_bytes = 0
    for i in range(t.n):
        t.ranges[i].p = t.bytes + n_bytes
        n_bytes += t.ranges[i].n
    i = 0
    while i < t.n:
        first = i
        g = segment_of(s, t.ranges[i].at)
        while i < t.n and segment_of(s, t.ranges[i].at) == g:
            i += 1
        segment_fetch(s, g, t.ranges + first, i - first)


cdef const uint8_t* fetched_at(const Store* s, uint64_t lsn, uint64_t* most) noexcept nogil:
    cdef const StoreFetch* t = &s.writer.fetch
    cdef const FileRange* r
    cdef uint32_t low = 0, high = t.n, middle
    while low < high:           # the last range that begins at lsn or before
        middle = (low + high) // 2
        if t.ranges[middle].at <= lsn:
            low = middle + 1
        else:
            high = middle
    if low == 0:
        return NULL
    r = &t.ranges[low - 1]
    if lsn >= r.at + r.n:
        return NULL
    most[0] = r.at + r.n - lsn
    return r.p + (lsn - r.at)


cdef void fetch_fini(Store* s) noexcept nogil:
    cdef StoreFetch* t = &s.writer.fetch
    free(t.ranges)
    free(t.bytes)
    t.ranges = NULL
    t.bytes = NULL
    t.n = 0
