"""Pass log lines from the loop to the control plane. The loop only formats and copies. There are two halves of one megabyte; the reader swaps them
under a lock that is held no longer than a copy takes. Lines that find no room are counted; the loop never waits."""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

cdef extern from "<time.h>" nogil:
    struct timespec:
        long tv_sec
        long tv_nsec
    int CLOCK_REALTIME
    int clock_gettime(int clock, timespec* t)


cdef int log_init(Log* l) noexcept nogil:
    memset(l, 0, sizeof(Log))
    l.filling = <uint8_t*>malloc(LOG_RING_BYTES)
    l.draining = <uint8_t*>malloc(LOG_RING_BYTES)
    pthread_mutex_init(&l.lock, NULL)
    return 0 if l.filling != NULL and l.draining != NULL else -1


cdef void log_fini(Log* l) noexcept nogil:
    free(l.filling)
    free(l.draining)
    l.filling = l.draining = NULL
    pthread_mutex_destroy(&l.lock)


cdef LogRecord* log_room(Log* l, uint32_t type, int64_t seconds, const char* text, int n, uint32_t about_n) noexcept nogil:
    """Return a record with its text, under the lock; NULL if there is no room, which is counted."""
    cdef LogRecord* record
    cdef uint32_t need = (<uint32_t>sizeof(LogRecord) + <uint32_t>n + about_n + 7) & ~<uint32_t>7
    if l.filling == NULL or l.used + need > LOG_RING_BYTES:
        l.lost += 1
        return NULL
    record = <LogRecord*>(l.filling + l.used)
    record.seconds = seconds
    record.type = type
    record.n = <uint16_t>n
    record.about_n = <uint16_t>about_n
    memcpy(<uint8_t*>record + sizeof(LogRecord), text, <size_t>n)
    l.used += need
    l.unread = 1
    return record


cdef void log_push(Log* l, uint32_t type, int64_t seconds, const char* text, int n) noexcept nogil:
    if n < 0:
        return
    if n > LOG_LINE_MAX:
        n = LOG_LINE_MAX
    pthread_mutex_lock(&l.lock)
    log_room(l, type, seconds, text, n, 0)
    pthread_mutex_unlock(&l.lock)


cdef void log_push_about(Log* l, uint32_t type, const char* text, int n, LogAbout* about, const uint8_t* client_id,
                         const char* address) noexcept nogil:
    cdef timespec now
    cdef LogRecord* record
    cdef uint8_t* p
    if n < 0:
        return
    if n > LOG_LINE_MAX:
        n = LOG_LINE_MAX
    clock_gettime(CLOCK_REALTIME, &now)
    about.milliseconds = <uint16_t>(now.tv_nsec // 1000000)
    if about.id_n > LOG_ID_MAX:
        about.id_n = LOG_ID_MAX
    pthread_mutex_lock(&l.lock)
    record = log_room(l, type, now.tv_sec, text, n, <uint32_t>sizeof(LogAbout) + about.id_n + about.address_n)
    if record != NULL:
        p = <uint8_t*>record + sizeof(LogRecord) + n
        memcpy(p, about, sizeof(LogAbout))
        p += sizeof(LogAbout)
        memcpy(p, client_id, about.id_n)
        memcpy(p + about.id_n, address, about.address_n)
    pthread_mutex_unlock(&l.lock)


cdef const uint8_t* log_swap(Log* l, uint32_t* n, uint64_t* lost) noexcept nogil:
    cdef uint8_t* half
    pthread_mutex_lock(&l.lock)
    half = l.filling
    l.filling = l.draining
    l.draining = half
    n[0] = l.used
    lost[0] = l.lost
    l.used = 0
    l.lost = 0
    pthread_mutex_unlock(&l.lock)
    return half
