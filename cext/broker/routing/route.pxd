# Route a publication to all sessions that have a matching subscription.
from libc.stdint cimport uint32_t
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport Client
from cext.broker.core.job_state cimport Job
from cext.broker.core.publication_state cimport Publication

cdef enum:
    ROUTE_REFUSED = 0xFFFFFFFFu

# Deliver p to all matching subscribers. A huge fan-out becomes a job of bounded slices, for which `owner` (may be NULL) waits so
# that its messages stay in order. Returns the number of matching subscriptions (0x10, No matching subscribers, when 0), or
# ROUTE_REFUSED: no session has got it, because a stream cannot take it. ROUTE_REFUSED is returned only for QoS 1 and 2 with an
# owner, which must be notified.
cdef uint32_t route(Broker* b, Publication* p, Client* owner) noexcept nogil
# Write p to the streams that match. The caller does this first for a publication that may be refused. Returns 0 if p is in no
# stream. After success, route does not write it again.
cdef bint route_journalled(Broker* b, Publication* p) noexcept nogil
# Make sure of the memory with which route makes a job of the rest, if p.patient is set and a durable session finds no memory in a fan-out of one
# turn. Returns 0 if there is none.
cdef bint fanout_spare(Broker* b) noexcept nogil
cdef void fanout_spare_free(Broker* b) noexcept nogil
# Return a new fan-out job that matches when it runs; the caller adds it (job_append). NULL = no memory.
cdef Job* fanout_later(Broker* b, Publication* p) noexcept nogil
# Return the job in which the message of p is delivered, right after route; NULL = it is delivered.
cdef Job* fanout_of(Broker* b, const Publication* p) noexcept nogil
# Run one slice of a fan-out job. 1 = done.
cdef bint fanout_slice(Broker* b, Job* j) noexcept nogil
cdef void fanout_end(Broker* b, Job* j) noexcept nogil
