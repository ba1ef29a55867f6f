# What of an old segment still counts. See clean.pyx.
from cext.broker.core.broker cimport Broker

cdef bint clean_some(Broker* b) noexcept nogil      # a slice; 0: there is no further one now
