# Log lines on their way to the control plane: a bounded ring between the loop and whoever writes them.
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

ctypedef struct LogAbout:       # for log_format json: whom a line is about. Lies unaligned in a record
    uint16_t milliseconds
    uint16_t port               # of the client
    uint16_t listener           # its port
    uint16_t id_n
    uint16_t address_n

cdef enum:
    LOG_ID_MAX = 1000           # bytes of a client id that are told

ctypedef struct Log:
    uint32_t mask               # types that are wanted: look here before formatting
    pthread_mutex_t lock
    uint8_t* filling            # the loop appends here; the reader swaps
    uint8_t* draining
    uint32_t used
    uint64_t lost               # lines that found the ring full
    uint32_t unread             # set when the reader should be woken at the end of the turn
    bint json                   # records say whom they are about
    void* client                # the Client whose packets are being handled, or whom the next line is about; NULL: nobody
    View connecting             # the id of a client that has no session, while its CONNECT is handled; p NULL: not known yet
    bint was_refused            # by a CONNACK, that the line about its end is to come for
    uint8_t refused             # why: a reason code of v5; 0: a 3.x client's keepalive
    char line[1001]             # LOG_LINE_MAX + 1: where the loop formats

cdef int log_init(Log* l) noexcept nogil
cdef void log_fini(Log* l) noexcept nogil
# n may be what snprintf returned: it is cut to LOG_LINE_MAX. Any thread.
cdef void log_push(Log* l, uint32_t type, int64_t seconds, const char* text, int n) noexcept nogil
# The same with whom it is about; milliseconds are filled in here.
cdef void log_push_about(Log* l, uint32_t type, const char* text, int n, LogAbout* about, const uint8_t* client_id,
                         const char* address) noexcept nogil
# Swaps the halves: the bytes to read, and how many. Valid until the next call. One reader.
cdef const uint8_t* log_swap(Log* l, uint32_t* n, uint64_t* lost) noexcept nogil

cdef inline bint log_wanted(Log* l, uint32_t type) noexcept nogil:
    return (l.mask & type) != 0
