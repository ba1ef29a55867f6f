# Messages that sessions of this worker lack since the number of workers has changed. See undelivered.pyx.
from cext.broker.core.broker cimport Broker

# At the start, before the links begin and before any client. Return 0 or ENOMEM.
cdef int undelivered_deliver(Broker* b) noexcept nogil
