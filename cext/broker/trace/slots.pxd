# The traces that are in force, and what they follow. See slots.pyx.
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from cext.base.view cimport View
from cext.base.wheel cimport Timer
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport Client
from cext.broker.core.trace_state cimport TraceSpec, Tracing

cdef inline Tracing* tracing_of(Broker* b) noexcept nogil:
    return <Tracing*>b.tracing

# Begin a trace and set spec.id; a copy of spec.what is kept. Return 0, EAGAIN: there are TRACES_MAX traces; ENOMEM.
cdef int trace_begin(Broker* b, TraceSpec* spec) noexcept nogil
cdef bint trace_stop(Broker* b, uint64_t id) noexcept nogil            # 0: there is none
cdef void trace_end(Broker* b, uint32_t slot, uint8_t why) noexcept nogil
cdef void trace_timer_fired(Broker* b, Timer* timer) noexcept nogil
cdef void trace_owner_gone(Broker* b, Client* c) noexcept nogil        # ends the traces of a client that ends
cdef void tracing_fini(Broker* b) noexcept nogil
# Return the traces, as bits, that an event of this client (NULL: none), client id and topic (p NULL: none) belongs to. It counts the events of each
# trace and leaves out those above its rate.
cdef uint8_t trace_wanted(Broker* b, const Client* c, View id, View topic) noexcept nogil
# The same for one more event about a packet that the traces `slots` have.
cdef uint8_t trace_more(Broker* b, uint8_t slots) noexcept nogil
cdef bint trace_has_room(Broker* b, uint8_t slots) noexcept nogil       # 0: trace_more would return no trace
