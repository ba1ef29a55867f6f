# Requests for traces, and their events as records. See traces.pyx.
from cext.broker.core.broker cimport Broker
from cext.broker.core.trace_state cimport TraceSpec

cdef int spec_read(TraceSpec* s, dict given, bytes what) except -1
cdef list events_take(Broker* b)
cdef tuple losses_of(Broker* b, slot)
