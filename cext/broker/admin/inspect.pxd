# Records of single sessions for the control plane. See inspect.pyx.
from libc.stdint cimport uint32_t
from cext.broker.admin.control_request cimport ControlRequest
from cext.broker.core.broker cimport Broker

cdef enum:
    SESSION_SUBSCRIPTIONS = 1000    # listed per request
    SESSION_WALK_MAX = 100_000      # most subscriptions that are skipped to reach from_index
    SESSIONS_BUCKETS = 1000         # buckets per request
    INSPECT_BYTES_MAX = 1 << 20     # of records, after which a request ends: client ids and filters may have 65,535 bytes each

cdef enum:
    # flags of a record
    INSPECT_CONNECTED = 1
    INSPECT_WEBSOCKETS = 2
    INSPECT_TLS = 4
    INSPECT_WILL = 8

cdef int out_put(ControlRequest* a, const void* p, uint32_t n) noexcept nogil      # -1 = no memory
cdef int out_text(ControlRequest* a, const void* p, uint32_t n) noexcept nogil     # text with its length in front
cdef void answer_sessions(Broker* b, ControlRequest* a) noexcept nogil
cdef void answer_session(Broker* b, ControlRequest* a) noexcept nogil
