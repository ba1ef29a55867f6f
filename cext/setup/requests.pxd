# Questions and answers between bytes and tuples.
from cext.broker.core.broker cimport Broker

cdef list requests_take(Broker* b)
cdef int answers_give(Broker* b, list answers) except -1    # raises TypeError, ValueError, MemoryError: then none of them counts
