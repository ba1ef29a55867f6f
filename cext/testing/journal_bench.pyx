# Benchmark of the journal (perf/micro/bench_journal.py): appends without the GIL, with the writer's steps between them. Not for
# tests.
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from cext.journal.journal cimport Journal, JournalOptions, journal_append, journal_hand, journal_seal
from cext.journal.opening cimport journal_close, journal_open
from cext.journal.record cimport JOURNAL_MESSAGE, JournalRecord
from cext.journal.writer cimport journal_mark, journal_sync, journal_take, journal_write

cdef extern from "<time.h>" nogil:
    struct timespec:
        long tv_sec
        long tv_nsec
    int clock_gettime(int clock, timespec* out)
    int CLOCK_THREAD_CPUTIME_ID


cdef double seconds() noexcept nogil:
    cdef timespec t
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t)
    return t.tv_sec + t.tv_nsec * 1e-9


cdef int journal_load(Journal* j, uint64_t n, uint32_t batch, JournalRecord* r, double* append_s, double* write_s) noexcept nogil:
    """Append n records in batches. The clock is read twice per batch."""
    cdef uint64_t i = 0, stop
    cdef double from_s
    while i < n:
        from_s = seconds()
        stop = min(i + batch, n)
        while i < stop:
            if journal_append(j, <uint32_t>(i % j.n_shards), r) < 0:
                return -1
            r.time_us += 1
            i += 1
        journal_seal(j)
        journal_hand(j)
        append_s[0] += seconds() - from_s
        from_s = seconds()
        journal_take(j)
        if journal_write(j, r.time_us) < 0:
            return -1
        journal_take(j)
        write_s[0] += seconds() - from_s
    from_s = seconds()
    if journal_sync(j) < 0 or journal_mark(j, r.time_us) < 0:
        return -1
    write_s[0] += seconds() - from_s
    return 0


def run(bytes directory, uint64_t n, uint32_t payload_n, uint32_t batch, uint32_t shards=1):
    """Append n records in batches. Return (CPU seconds to append and seal, CPU seconds to write and sync, bytes)."""
    cdef Journal* j = <Journal*>calloc(1, sizeof(Journal))
    cdef JournalOptions options
    cdef JournalRecord r
    cdef char why[512]
    cdef const char* path = directory
    cdef double append_s = 0, write_s = 0
    cdef uint8_t* payload = <uint8_t*>calloc(1, payload_n + 1)
    cdef int got
    memset(&options, 0, sizeof(options))
    memset(&r, 0, sizeof(r))
    options.shards = shards
    options.create = 1
    r.kind = JOURNAL_MESSAGE
    r.flags = 1
    r.time_us = 1_800_000_000_000_000
    r.topic.p = b"plant/line-7/sensor-1234/value"
    r.topic.n = 30
    r.client_id.p = b"sensor-1234"
    r.client_id.n = 11
    r.payload.p = payload
    r.payload.n = payload_n
    with nogil:
        got = journal_open(j, path, &options, NULL, r.time_us, NULL, why)
        if got == 0:
            got = journal_load(j, n, batch, &r, &append_s, &write_s)
    bytes_ = j.writer.stats.bytes
    with nogil:
        journal_close(j)
    free(j)
    free(payload)
    if got < 0:
        raise OSError("it cannot be written")
    return append_s, write_s, bytes_
