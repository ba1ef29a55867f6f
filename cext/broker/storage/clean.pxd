# Copy the live records out of the oldest segment. See clean.pyx.
from cext.broker.core.broker cimport Broker

cdef bint clean_some(Broker* b) noexcept nogil      # runs one slice; 0 = there is no further one now
