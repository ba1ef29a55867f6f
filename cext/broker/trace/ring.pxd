# The ring of trace events: two halves, as in core/log.pyx.
from libc.stdint cimport uint8_t, uint32_t
from cext.base.view cimport View
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport Client
from cext.broker.core.trace_state cimport Tracing

ctypedef struct TraceEvent:
    uint8_t kind                # TE_ of trace_state.pxd
    uint8_t slots               # the traces that it belongs to
    uint8_t code
    uint8_t qos
    uint8_t version
    Client* client              # NULL: none
    View id
    View topic
    View text
    View head                   # a packet before its payload
    View payload
    View secrets[3]             # parts of head that are replaced by `*`
    uint32_t total              # bytes of the packet
    uint32_t queue

cdef int ring_open(Tracing* t) noexcept nogil        # -1: no memory
cdef void ring_close(Tracing* t) noexcept nogil
cdef void trace_put(Broker* b, TraceEvent* e) noexcept nogil
# Swap the halves. Return the bytes to read and their number; they are valid until the next call. One reader.
cdef const uint8_t* ring_swap(Tracing* t, uint32_t* n) noexcept nogil
