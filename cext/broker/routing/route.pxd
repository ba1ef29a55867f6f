# From a publication to every session that subscribed.
from libc.stdint cimport uint32_t
from cext.base.view cimport View
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport Client
from cext.broker.core.job_state cimport Job
from cext.broker.core.publication_state cimport Publication

cdef enum:
    ROUTE_REFUSED = 0xFFFFFFFFu

# Delivers p to all matching subscribers, or (a huge fan-out) hands it to a job of bounded slices, for which `owner` (may be NULL) waits
# so that its messages stay in order. Returns how many subscriptions matched (0x10 when 0), or ROUTE_REFUSED: nobody has got it, since a stream cannot
# take it; only of QoS 1 and 2 with an owner, who is to be told.
cdef uint32_t route(Broker* b, Publication* p, Client* owner) noexcept nogil
# Before anything else happens with what may be refused: it is in its streams then, or (0) in none; route does not ask them again.
cdef bint route_journalled(Broker* b, Publication* p) noexcept nogil
cdef bint route_slices(Broker* b, View topic) noexcept nogil     # has it so many subscribers that it would be a job?
# One slice; 1: done.
cdef bint fanout_slice(Broker* b, Job* j) noexcept nogil
cdef void fanout_end(Broker* b, Job* j) noexcept nogil
