# The routes that this worker announces: what its sessions subscribe to. See own.pyx. All functions do nothing in a broker that is alone.
from libc.stdint cimport uint32_t
from libc.string cimport memcmp
from cext.base.view cimport View
from cext.broker.core.broker cimport Broker
from cext.session.session cimport Session

cdef enum:
    ROUTE_NONE = -1                 # in place of a QoS: no subscription


cdef inline bint is_shared(View filter) noexcept nogil:
    return filter.n > 7 and memcmp(filter.p, b"$share/", 7) == 0


# A session's subscription to a filter (with $share/GROUP/) has changed from the QoS `old` to `now`. Return 1 if not all workers know the route yet,
# or -1 without memory.
cdef int own_route(Broker* b, Session* s, View filter, int now, int old) noexcept nogil
# The client of a session has come (1) or gone (-1): members of shared groups are online or not.
cdef void own_online(Broker* b, Session* s, int change) noexcept nogil
# The same for each subscription of a session that ends, up to `most` of them from its newest on.
cdef void own_routes_end(Broker* b, Session* s, uint32_t most) noexcept nogil
cdef int own_routes_restored(Broker* b) noexcept nogil           # for all sessions, at the start; -1 without memory
