"""Read records back by lsn, for queues that are longer than memory. This module knows lsns. It does not know why a record is
wanted.

Invariants: each requested lsn gets one answer, and the answers of one request keep its order. The bodies that were read and not
yet taken by the loop have at most STORE_READ_BYTES_MAX bytes plus one body. A record is returned only if its checksums are valid.
It is reported missing only if its bytes were read and are invalid, or its file does not exist. Without descriptors or memory the
read is tried again; a disk that returns EIO is tried READ_TRIES times. Cost: that of fetch.pyx in Redis; on a disk, adjacent
records are read with one call per READ_WINDOW_BYTES, other records with one call of 4 KiB each.
"""

from libc.errno cimport EIO, ENOENT, ENOMEM
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy

from cext.base.words cimport load32
from cext.store.fetch cimport fetch_fini, fetch_next, fetched_at
from cext.store.file cimport file_read
from cext.store.format cimport (
    HEADER_BYTES, RECORD_BODY_MAX, STORE_KIND_MAX, STORE_RECORD_HEAD, crc_head, log_record_at, record_bytes, record_head_word,
)
from cext.store.replay cimport store_segment_path
from cext.store.segment cimport segment_of
from cext.store.state cimport (
    STORE_READ_BYTES_MAX, Store, StoreAnswer, StoreReading, StoreSegment, StoreShared, StoreWriter, pthread_mutex_t,
)

cdef extern from "<pthread.h>" nogil:
    int pthread_mutex_lock(pthread_mutex_t* m)
    int pthread_mutex_unlock(pthread_mutex_t* m)

cdef extern from "<fcntl.h>" nogil:
    int O_RDONLY
    int O_NOFOLLOW

cdef enum:
    READ_WINDOW_BYTES = 128 << 10     # largest single read, unless a record is larger
    READ_WINDOW_FIRST = 4 << 10       # first read; the size doubles while records follow each other
    ANSWERS_STEP = 512          # answers handed over at once
    READ_TRIES = 4


cdef void reading_dropped(Store* s) noexcept nogil:
    cdef StoreWriter* w = &s.writer
    if w.window_fd > 0:
        s.files.close(s.files.ctx, w.window_fd)
    w.window_fd = 0
    w.window_n = w.window_number = 0


cdef void reading_fini(Store* s) noexcept nogil:
    cdef StoreWriter* w = &s.writer
    cdef StoreReading* r
    reading_dropped(s)
    fetch_fini(s)
    while w.requests != NULL:
        r = w.requests
        w.requests = r.next
        free(r)
    w.requests_tail = NULL
    free(w.window)
    w.window = NULL


cdef inline bint is_near(const StoreWriter* w, uint64_t lsn) noexcept nogil:
    """Return whether lsn follows the window with a gap of at most the bytes already read."""
    return w.window_n != 0 and w.window_lsn <= lsn <= w.window_lsn + 2 * w.window_n


cdef const uint8_t* window_at(Store* s, const StoreSegment* g, uint64_t lsn, uint64_t need, uint64_t* most, int* error) noexcept nogil:
    """Return at least `need` bytes of g from lsn on, and their number in *most. NULL: they do not exist, or *error is the errno
    that prevents reading them now."""
    cdef StoreWriter* w = &s.writer
    cdef char path[4096]
    cdef uint64_t want
    cdef int64_t got
    cdef uint8_t* more
    if w.window_number != g.number:
        reading_dropped(s)
        store_segment_path(path, s.dir, g.slot)
        w.window_fd = s.files.open(s.files.ctx, path, O_RDONLY | O_NOFOLLOW)
        if w.window_fd <= 0:
            error[0] = -w.window_fd if w.window_fd != -ENOENT else 0
            w.window_fd = 0
            return NULL
        w.window_number = g.number
    if w.window_n == 0 or lsn < w.window_lsn or lsn + need > w.window_lsn + w.window_n:
        w.window_want = min(w.window_want * 2, <uint64_t>READ_WINDOW_BYTES) if is_near(w, lsn) else <uint64_t>READ_WINDOW_FIRST
        want = min(max(need, w.window_want), g.end_lsn - lsn)
        if want > w.window_cap:
            more = <uint8_t*>realloc(w.window, want)
            if more == NULL:
                error[0] = ENOMEM
                return NULL
            w.window = more
            w.window_cap = want
        got = file_read(&s.files, w.window_fd, w.window, want, HEADER_BYTES + (lsn - g.base_lsn))
        w.window_lsn = lsn
        w.window_n = <uint64_t>got if got > 0 else 0
        if got < 0:
            error[0] = <int>-got
        if w.window_n < need:
            return NULL
    most[0] = w.window_lsn + w.window_n - lsn
    return w.window + (lsn - w.window_lsn)


cdef const uint8_t* record_fetched_at(const Store* s, const StoreSegment* g, uint64_t lsn) noexcept nogil:
    """Return the record at lsn. NULL: it was not fetched as a whole, or is damaged."""
    cdef uint64_t most = 0
    cdef const uint8_t* p = fetched_at(s, lsn, &most)
    if p == NULL or log_record_at(s.hardware, p, most, g.seed, lsn) < 0 or p[8] > STORE_KIND_MAX:
        return NULL
    return p


cdef const uint8_t* record_read_at(Store* s, uint64_t lsn, int* error) noexcept nogil:
    """Return the record at lsn. NULL: it does not exist or is damaged, or *error is the errno that prevents reading it now."""
    cdef const StoreSegment* g = segment_of(s, lsn)
    cdef const uint8_t* p
    cdef uint64_t most = 0, left
    cdef uint32_t n
    if g == NULL or g.end_lsn - lsn < STORE_RECORD_HEAD:
        return NULL
    p = record_fetched_at(s, g, lsn)
    if p != NULL:
        return p
    left = g.end_lsn - lsn
    p = window_at(s, g, lsn, STORE_RECORD_HEAD, &most, error)
    if p == NULL:
        return NULL
    n = load32(p + 4)
    if n > RECORD_BODY_MAX or record_bytes(n) > left or crc_head(s.hardware, g.seed, lsn, record_head_word(p)) != p[10] + (<uint32_t>p[11] << 8):
        return NULL
    p = window_at(s, g, lsn, record_bytes(n), &most, error)
    if p == NULL or log_record_at(s.hardware, p, most, g.seed, lsn) < 0 or p[8] > STORE_KIND_MAX:
        return NULL
    return p


cdef StoreAnswer* answer_to(Store* s, StoreReading* r, uint64_t lsn, int* error) noexcept nogil:
    """Return the answer for one lsn, or NULL if it cannot be given now."""
    cdef const uint8_t* p = record_read_at(s, lsn, error)
    cdef uint32_t n = load32(p + 4) if p != NULL else 0
    cdef StoreAnswer* a
    if p == NULL and error[0]:
        r.tries += error[0] == EIO
        if r.tries < READ_TRIES:
            return NULL
        error[0] = 0
    r.tries = 0
    a = <StoreAnswer*>malloc(sizeof(StoreAnswer) + n)
    if a == NULL:
        error[0] = ENOMEM
        return NULL
    a.next = NULL
    a.cookie = r.cookie
    a.record.lsn = lsn
    a.record.kind = p[8] if p != NULL else 0
    a.record.flags = p[9] if p != NULL else 0
    a.record.body.n = n
    a.record.body.p = <const uint8_t*>(a + 1)
    if n:
        memcpy(a + 1, p + STORE_RECORD_HEAD, n)
    if p == NULL:
        s.writer.stats.damaged += 1
    return a


cdef void answers_publish(Store* s, StoreAnswer* first, StoreAnswer* last, uint64_t n_bytes) noexcept nogil:
    cdef StoreShared* shared = &s.shared
    if first == NULL:
        return
    pthread_mutex_lock(&shared.lock)
    if shared.answers_tail == NULL:
        shared.answers = first
    else:
        shared.answers_tail.next = first
    shared.answers_tail = last
    shared.answers_bytes += n_bytes
    s.writer.answers_bytes = shared.answers_bytes
    pthread_mutex_unlock(&shared.lock)


cdef void request_done(StoreWriter* w, StoreReading* before, StoreReading* r) noexcept nogil:
    if before == NULL:
        w.requests = r.next
    else:
        before.next = r.next
    if w.requests_tail == r:
        w.requests_tail = before
    free(r)


cdef bint reading_step(Store* s, int* error) noexcept nogil:
    cdef StoreWriter* w = &s.writer
    cdef StoreReading* r = w.requests
    cdef StoreReading* next
    cdef StoreReading* before = NULL
    cdef StoreAnswer* a
    cdef StoreAnswer* first = NULL
    cdef StoreAnswer* last = NULL
    cdef uint64_t lsn, n_bytes = 0
    cdef uint32_t count = 0
    fetch_next(s)
    while r != NULL and count < ANSWERS_STEP and w.answers_bytes + n_bytes < STORE_READ_BYTES_MAX:
        lsn = (<const uint64_t*>(r + 1))[r.done]
        if lsn >= w.written:
            before = r           # the record waits for its commit; later requests need not wait for it
            r = r.next
            continue
        a = answer_to(s, r, lsn, error)
        if a == NULL:
            break
        if last == NULL:
            first = a
        else:
            last.next = a
        last = a
        count += 1
        n_bytes += sizeof(StoreAnswer) + a.record.body.n
        r.done += 1
        if r.done == r.n:
            next = r.next
            request_done(w, before, r)
            r = next
    answers_publish(s, first, last, n_bytes)
    if w.requests == NULL:
        fetch_fini(s)
    if w.requests == NULL and w.window_cap > READ_WINDOW_BYTES:
        free(w.window)
        w.window = NULL
        w.window_cap = w.window_n = 0
    return count > 0
