# Answers about what is measured, and about streams. See observations.pyx.
from libc.stdint cimport uint64_t
from cext.broker.admin.control_request cimport ControlRequest
from cext.broker.core.broker cimport Broker
from cext.broker.persist.streams cimport Stream

cdef void answer_observed(Broker* b, ControlRequest* a) noexcept nogil
cdef void answer_drops(Broker* b, ControlRequest* a) noexcept nogil
cdef void answer_listener_drops(Broker* b, ControlRequest* a) noexcept nogil
cdef void stream_gauges(const Stream* s, uint64_t* v) noexcept nogil        # v: STREAM_GAUGES values
