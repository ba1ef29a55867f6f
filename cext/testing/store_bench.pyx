# Benchmark of the store (perf/micro/bench_store.py): appends and seals without the GIL, and the CPU time of the storage thread.
# Not for tests.
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memset

from cext.store.file cimport FileOps, file_ops_of
from cext.store.state cimport STORE_CLEAN, STORE_WHY_MAX, Store, StoreLoss, StoreOptions, StoreRecord, pthread_t
from cext.store.store cimport (
    store_append, store_clean_chunk, store_clean_done, store_close, store_open, store_poll, store_recover, store_room, store_seal,
    store_start, store_synced, store_written,
)

cdef extern from "<time.h>" nogil:
    struct timespec:
        long tv_sec
        long tv_nsec
    int clock_gettime(int clock, timespec* out)
    int CLOCK_MONOTONIC
    int CLOCK_THREAD_CPUTIME_ID

cdef extern from "<pthread.h>" nogil:
    int pthread_getcpuclockid(pthread_t t, int* clock)

cdef extern from "<poll.h>" nogil:
    struct pollfd:
        int fd
        short events
        short revents
    int c_poll "poll"(pollfd* fds, unsigned long n, int timeout_ms)
    short POLLIN


cdef double seconds(int clock) noexcept nogil:
    cdef timespec t
    clock_gettime(clock, &t)
    return t.tv_sec + t.tv_nsec * 1e-9


cdef void news(Store* s) noexcept nogil:
    """Look through the chunks of cleaning. No record is live."""
    cdef StoreRecord records[256]
    if store_poll(s) & STORE_CLEAN:
        while store_clean_chunk(s, records, 256):
            store_clean_done(s)


cdef void store_wait(Store* s) noexcept nogil:
    cdef pollfd p
    p.fd = s.event_fd
    p.events = POLLIN
    c_poll(&p, 1, 1000)
    news(s)


cdef void load(Store* s, uint64_t n, uint32_t body_n, uint32_t batch, bint sync, bint acked, double pace_s) noexcept nogil:
    cdef uint64_t i, lsn, end = 0
    cdef uint32_t filled = 0
    cdef uint8_t* p
    cdef double due = seconds(CLOCK_MONOTONIC)
    cdef pollfd none
    for i in range(n):
        p = store_append(s, 5, 0, body_n, &lsn)
        if p == NULL:
            return
        memset(p, <int>(i & 255), body_n)
        filled += 1
        if filled < batch and i + 1 < n:
            continue
        if acked:
            p = store_append(s, 6, 0, 8 * filled, &lsn)
            memset(p, 0, 8 * filled)
        filled = 0
        end = store_seal(s, sync)
        news(s)
        due += pace_s
        while pace_s and due > seconds(CLOCK_MONOTONIC):
            c_poll(&none, 0, 1)
        while not store_room(s):
            store_wait(s)
    while (store_synced(s) if sync else store_written(s)) < end:
        store_wait(s)


cdef int count(void* ctx, const StoreRecord* r) noexcept nogil:
    (<uint64_t*>ctx)[0] += r.body.n + r.body.p[0]
    return 0


def run(bytes directory, uint64_t n, uint32_t body_n, uint32_t batch, bint sync, bint acked, double pace_s=0, disk=None):        # parameters: a store (two), a load
    """Append n records of body_n bytes in batches. Return (seconds, CPU seconds of the loop, CPU seconds of the storage thread,
    bytes in the log)."""
    cdef Store s
    cdef char why[512]
    cdef const char* path = directory
    cdef StoreLoss loss
    cdef double wall, cpu
    cdef int clock = 0
    cdef FileOps files = file_ops_of(disk)
    with nogil:
        if store_open(&s, path, NULL, &files, why, STORE_WHY_MAX) != 0:
            with gil:
                raise OSError(why.decode())
        store_recover(&s, NULL, NULL, &loss)
        if not acked:
            s.live_bytes = 1ULL << 50
        store_start(&s)
        pthread_getcpuclockid(s.thread, &clock)
        wall = seconds(CLOCK_MONOTONIC)
        cpu = seconds(CLOCK_THREAD_CPUTIME_ID)
        load(&s, n, body_n, batch, sync, acked, pace_s)
        wall = seconds(CLOCK_MONOTONIC) - wall
        cpu = seconds(CLOCK_THREAD_CPUTIME_ID) - cpu
    result = (wall, cpu, seconds(clock), s.loop.next_lsn - loss.end_lsn)
    with nogil:
        store_close(&s, NULL, 0)
    return result


def restart(bytes directory):
    """Recover the store. Return (seconds, records)."""
    cdef Store s
    cdef char why[512]
    cdef const char* path = directory
    cdef StoreLoss loss
    cdef StoreOptions options
    cdef uint64_t total = 0
    cdef double start
    memset(&options, 0, sizeof(options))
    with nogil:
        start = seconds(CLOCK_MONOTONIC)
        if store_open(&s, path, &options, NULL, why, STORE_WHY_MAX) != 0:
            with gil:
                raise OSError(why.decode())
        store_recover(&s, count, &total, &loss)
        start = seconds(CLOCK_MONOTONIC) - start
        store_close(&s, NULL, 0)
    return start, loss.records
