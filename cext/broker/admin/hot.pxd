# Answers about hot names and slow subscribers. See hot.pyx.
from cext.broker.admin.control_request cimport ControlRequest
from cext.broker.core.broker cimport Broker

cdef void answer_hot(Broker* b, ControlRequest* a) noexcept nogil
cdef void answer_slow(Broker* b, ControlRequest* a) noexcept nogil
