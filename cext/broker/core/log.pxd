# Log lines from the loop to the control plane: a bounded ring.
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from cext.base.view cimport View

cdef enum:
    LOG_ERROR = 1
    LOG_WARNING = 2
    LOG_NOTICE = 4
    LOG_INFORMATION = 8
    LOG_DEBUG = 16
    LOG_SUBSCRIBE = 32
    LOG_UNSUBSCRIBE = 64
    LOG_INTERNAL = 128
    LOG_WEBSOCKETS = 256
    LOG_TRACE = 0x40000000      # no type of lines: there is a trace. The packets' checks for LOG_DEBUG find it without a check of their own

cdef enum:
    LOG_LINE_MAX = 1000         # bytes, as in Mosquitto
    LOG_RING_BYTES = 1 << 20

cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_mutex_t:
        pass
    int pthread_mutex_init(pthread_mutex_t* m, void* attributes)
    int pthread_mutex_lock(pthread_mutex_t* m)
    int pthread_mutex_unlock(pthread_mutex_t* m)
    int pthread_mutex_destroy(pthread_mutex_t* m)

ctypedef struct LogRecord:      # followed by n bytes of text; then, if about_n, a LogAbout, client id and address; padded to 8
    int64_t seconds             # wall clock
    uint32_t type
    uint16_t n
    uint16_t about_n            # bytes after the text

ctypedef struct LogAbout:       # the client of a line, for log_format json. Unaligned in a record
    uint16_t milliseconds
    uint16_t port               # port of the client
    uint16_t listener           # port of the listener
    uint16_t id_n
    uint16_t address_n

cdef enum:
    LOG_ID_MAX = 1000           # bytes of a client id in a record
    ASSIGNED_ID_MAX = 64 + 36   # bytes of a client id that the broker made: prefix and UUID

ctypedef struct Log:
    uint32_t mask               # types that are logged; checked before formatting
    pthread_mutex_t lock
    uint8_t* filling            # the loop appends here; the reader swaps
    uint8_t* draining
    uint32_t used
    uint64_t lost               # lines that found the ring full
    uint32_t unread             # 1: the loop wakes the reader at the end of the turn
    bint json                   # 1: records contain their client
    void* client                # Client whose packets are handled, or that the next line is about; NULL: none
    View connecting             # id of a client without a session, while its CONNECT is handled; p NULL: not known yet
    uint8_t assigned[ASSIGNED_ID_MAX]   # the last client id that the broker made: `connecting` outlives the handler of CONNECT
    bint was_refused            # 1: a CONNACK refused it, and the line about its end follows
    uint8_t refused             # reason: a reason code of v5; 0: keepalive of a 3.x client
    char line[1001]             # LOG_LINE_MAX + 1: room in which the loop formats

cdef int log_init(Log* l) noexcept nogil
cdef void log_fini(Log* l) noexcept nogil
# Append a line, cut to LOG_LINE_MAX. `n` may be the result of snprintf. Any thread.
cdef void log_push(Log* l, uint32_t type, int64_t seconds, const char* text, int n) noexcept nogil
# Same, with the client that the line is about. The function fills in the milliseconds.
cdef void log_push_about(Log* l, uint32_t type, const char* text, int n, LogAbout* about, const uint8_t* client_id,
                         const char* address) noexcept nogil
# Swap the halves. Return the bytes to read and their number; they are valid until the next call. One reader.
cdef const uint8_t* log_swap(Log* l, uint32_t* n, uint64_t* lost) noexcept nogil

cdef inline bint log_wanted(Log* l, uint32_t type) noexcept nogil:
    return (l.mask & type) != 0
