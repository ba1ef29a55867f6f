# Begin and end of the links of a broker that is one of several workers. See links_life.pyx.
from libc.stdint cimport uint32_t
from cext.base.hash cimport HashKey
from cext.broker.core.broker cimport Broker

# Make the struct, before the start. `key` is the same for all workers. -1 = no memory.
cdef int links_new(Broker* b, uint32_t slot, uint32_t n, const HashKey* key) noexcept nogil
cdef int links_start(Broker* b) noexcept nogil             # the loop starts, the store is read; 0 or errno
cdef void links_free(Broker* b) noexcept nogil
cdef void links_reopen(Broker* b) noexcept nogil            # the timer of links that have ended
