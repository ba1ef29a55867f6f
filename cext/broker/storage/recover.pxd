# Rebuild the broker's state from its store. See recover.pyx.
from libc.stdint cimport uint64_t
from cext.broker.core.broker cimport Broker
from cext.store.state cimport StoreLoss

ctypedef struct Recovered:
    uint64_t records
    uint64_t odd                # records with impossible contents: skipped
    uint64_t sessions
    uint64_t subscriptions
    uint64_t messages
    uint64_t retained
    uint64_t denied             # sessions whose listener does not exist any more

# Recover before the loop starts; the store of b.durable is open. Returns 0, or -1: no memory, or the store cannot be read
# (errno).
cdef int durable_recover(Broker* b, StoreLoss* loss, Recovered* out) noexcept nogil
