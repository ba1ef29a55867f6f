"""Compare the resident memory of the process with memory_limit. This module knows the system's counters and the allocator. It does not know what
the memory is for.

The counted bytes of messages, buffers and the index are exact but not complete: sessions, OpenSSL, Python and gaps between blocks are missing.
The resident memory has all of them. It is read when the broker has received READ_EVERY_BYTES or accepted READ_EVERY_CONNECTIONS since the last
time, when the counted bytes have grown by READ_EVERY_GROWTH, and every READ_EVERY_MS while packets arrive. In between, the change of the counted
bytes is added to it. Bytes that are not counted grow with those that are: with small retained messages by a tenth of them, which is most of all. Above the limit, free pages are first returned to the system, at most once a second.

A limit that the process already exceeds at its start, within START_ROOM_BYTES, cannot bound the process. Then the limit bounds its growth.
Inside another program the memory is not only the broker's: `watch` is 0, and only counted bytes are compared.

Cost: a few comparisons per turn; a read takes a microsecond.
"""

from libc.stdint cimport uint64_t
from libc.stdio cimport snprintf

from cext.broker.core.broker cimport Broker
from cext.broker.core.client cimport log_line
from cext.broker.core.log cimport LOG_LINE_MAX, LOG_WARNING, log_wanted
from cext.net.system cimport O_CLOEXEC, O_RDONLY, c_close, c_open
from cext.topic.index cimport index_bytes
from cext.topic.retained cimport retained_bytes

cdef extern from "<unistd.h>" nogil:
    ssize_t pread(int fd, void* p, size_t n, long offset)
    long sysconf(int name)
    int _SC_PAGESIZE

cdef extern from "<stdlib.h>" nogil:
    unsigned long strtoul(const char* text, char** end, int base)

cdef extern from "<malloc.h>" nogil:
    int malloc_trim(size_t keep)
    int mallopt(int option, int value)
    int M_MMAP_THRESHOLD, M_TRIM_THRESHOLD

cdef enum:
    READ_EVERY_MS = 100
    READ_EVERY_BYTES = 2 << 20
    READ_EVERY_CONNECTIONS = 100
    READ_EVERY_GROWTH = 1 << 20
    TRIM_EVERY_MS = 1000
    BLOCK_BYTES = 8 << 20       # from this size on, the allocator returns a block to the system when it is freed
    START_ROOM_BYTES = 16 << 20
    FALLEN_BYTES = 32 << 20     # memory that must have become free before it is returned without need
    MEMORY_WARN_EVERY_S = 60


cdef void resident_read(Broker* b) noexcept nogil:
    """Read the resident bytes of the process; 0 if the system does not report them."""
    cdef char text[128]
    cdef char* end
    cdef ssize_t n = pread(b.statm_fd, text, sizeof(text) - 1, 0) if b.statm_fd >= 0 else -1
    b.resident = 0
    b.resident_counted = memory_counted(b)
    if n > 0:
        text[n] = 0
        strtoul(text, &end, 10)          # the first number is the size of the address space
        b.resident = <uint64_t>strtoul(end, NULL, 10) * <uint64_t>sysconf(_SC_PAGESIZE)


cdef uint64_t heap_bytes(Broker* b) noexcept nogil:
    return b.messages.bytes + b.reactor.buffers.used_bytes + index_bytes(b.index)


cdef uint64_t memory_counted(Broker* b) noexcept nogil:
    return (heap_bytes(b) + retained_bytes(b.retained) + b.merging_bytes
            + b.fanout_bytes + b.cursor_bytes)


cdef void resident_begin(Broker* b) noexcept nogil:
    b.statm_fd = -1
    if b.settings.memory_watch:          # the process has nothing but the broker
        b.statm_fd = c_open("/proc/self/statm", O_RDONLY | O_CLOEXEC)
        # without this, the first segment of the store that is read and freed makes the allocator keep the next ones, in each thread
        mallopt(M_MMAP_THRESHOLD, BLOCK_BYTES)
        mallopt(M_TRIM_THRESHOLD, 2 * BLOCK_BYTES)
        malloc_trim(0)
    resident_read(b)
    b.resident_first = b.resident


cdef void resident_end(Broker* b) noexcept nogil:
    if b.statm_fd >= 0:
        c_close(b.statm_fd)
    b.statm_fd = -1


cdef bint resident_over(const Broker* b, uint64_t reserve, uint64_t counted) noexcept nogil:
    """Return whether the process holds more than the limit and `reserve`. counted: the result of memory_counted."""
    cdef uint64_t most = b.settings.memory_limit
    if most < b.resident_first + START_ROOM_BYTES:
        most += b.resident_first + START_ROOM_BYTES
    return b.resident != 0 and b.resident + counted > most + reserve + b.resident_counted


cdef bint memory_over(Broker* b, uint64_t reserve) noexcept nogil:
    cdef uint64_t counted = memory_counted(b)
    return counted > b.settings.memory_limit + reserve or resident_over(b, reserve, counted)


cdef void resident_check(Broker* b) noexcept nogil:
    cdef uint64_t now_ms = b.reactor.now_ms
    cdef uint64_t bytes_in = b.reactor.bytes_in + b.reactor.inner_in
    if b.statm_fd < 0:
        memory_warn(b, b.memory_refused)
        return
    if now_ms < b.resident_next_ms and bytes_in < b.resident_next_bytes and b.reactor.n_accepted < b.resident_next_accepted \
            and (b.settings.memory_limit == 0 or memory_counted(b) < b.resident_counted + READ_EVERY_GROWTH):
        return
    b.resident_next_ms = now_ms + READ_EVERY_MS
    b.resident_next_bytes = bytes_in + READ_EVERY_BYTES
    b.resident_next_accepted = b.reactor.n_accepted + READ_EVERY_CONNECTIONS
    heap_watch(b)
    if b.settings.memory_limit == 0:
        return
    resident_read(b)
    if resident_over(b, 0, memory_counted(b)) and now_ms >= b.trim_next_ms:
        b.trim_next_ms = now_ms + TRIM_EVERY_MS
        malloc_trim(0)
        resident_read(b)
    memory_warn(b, b.memory_refused or resident_over(b, 0, memory_counted(b)))


cdef void memory_warn(Broker* b, bint reached) noexcept nogil:
    """Log that the limit is reached, once in MEMORY_WARN_EVERY_S."""
    cdef char process[64]
    b.memory_refused = 0
    if not reached or b.reactor.now_s - b.memory_warned_s < MEMORY_WARN_EVERY_S:
        return
    b.memory_warned_s = b.reactor.now_s
    process[0] = 0
    if b.resident:
        snprintf(process, sizeof(process), ", the process %llu", <unsigned long long>b.resident)
    if log_wanted(&b.log, LOG_WARNING):
        log_line(b, LOG_WARNING, snprintf(
            b.log.line, LOG_LINE_MAX, "memory_limit is reached: messages, connections and subscriptions hold %llu bytes%s. New messages and "
            "sessions are refused until there is room; 3.x publishers of QoS 1 and 2 are disconnected. If this lasts, raise memory_limit, "
            "or lower max_queued_messages or max_connections.", <unsigned long long>memory_counted(b), process))


cdef void heap_watch(Broker* b) noexcept nogil:
    """Return free pages to the system after a load has ended, which the allocator does only for the end of its heap."""
    cdef uint64_t used = b.reactor.buffers.used_bytes + b.messages.bytes + b.newcomers_bytes
    if used > b.heap_peak:
        b.heap_peak = used
    if b.heap_peak - used > FALLEN_BYTES and used < b.heap_peak // 2 and b.reactor.now_ms >= b.trim_next_ms:
        b.heap_peak = used
        b.trim_next_ms = b.reactor.now_ms + TRIM_EVERY_MS
        malloc_trim(0)
