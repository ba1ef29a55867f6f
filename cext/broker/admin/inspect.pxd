# What the control plane asks about single sessions, as records. See inspect.pyx.
from libc.stdint cimport uint32_t
from cext.broker.admin.control_request cimport ControlRequest
from cext.broker.core.broker cimport Broker

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

cdef int out_put(ControlRequest* a, const void* p, uint32_t n) noexcept nogil      # -1: no memory
cdef int out_text(ControlRequest* a, const void* p, uint32_t n) noexcept nogil     # with its length before it
cdef void answer_sessions(Broker* b, ControlRequest* a) noexcept nogil
cdef void answer_session(Broker* b, ControlRequest* a) noexcept nogil
