# What the control plane asks about single sessions, as records. See inspect.pyx.
from libc.stdint cimport uint32_t
from cext.broker.broker cimport Broker
from cext.broker.mailbox cimport Ask

cdef enum:
    SESSION_SUBSCRIPTIONS = 1000    # listed at a time
    SESSION_WALK_MAX = 100_000      # subscriptions passed over to get there
    SESSIONS_BUCKETS = 1000         # looked at per request

cdef enum:
    # flags of a record
    INSPECT_CONNECTED = 1
    INSPECT_WEBSOCKETS = 2
    INSPECT_TLS = 4
    INSPECT_WILL = 8

cdef int out_put(Ask* a, const void* p, uint32_t n) noexcept nogil      # -1: no memory
cdef int out_text(Ask* a, const void* p, uint32_t n) noexcept nogil     # with its length before it
cdef void answer_sessions(Broker* b, Ask* a) noexcept nogil
cdef void answer_session(Broker* b, Ask* a) noexcept nogil
