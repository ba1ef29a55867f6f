# From a publication to every session that subscribed.
from libc.stdint cimport uint32_t
from cext.broker.broker cimport Broker, Client, Job, Publication

# Delivers p to all matching subscribers, or (a huge fan-out) hands it to a job of bounded slices, for which `owner` (may be NULL) waits
# so that its messages stay in order. Returns how many subscriptions matched (0x10 when 0).
cdef uint32_t route(Broker* b, Publication* p, Client* owner) noexcept nogil
# One slice; 1: done.
cdef bint fanout_slice(Broker* b, Job* j) noexcept nogil
cdef void fanout_end(Broker* b, Job* j) noexcept nogil
