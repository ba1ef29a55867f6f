# What a broker was, read from its store. See recover.pyx.
from libc.stdint cimport uint64_t
from cext.broker.core.broker cimport Broker
from cext.store.store cimport StoreLoss

ctypedef struct Recovered:
    uint64_t records
    uint64_t odd                # records that say what cannot be: passed over
    uint64_t sessions
    uint64_t subscriptions
    uint64_t messages
    uint64_t retained

# Before the loop; b.durable's store is open. 0, or -1: no memory, or the store cannot be read (errno).
cdef int durable_recover(Broker* b, StoreLoss* loss, Recovered* out) noexcept nogil
