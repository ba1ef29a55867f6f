"""Count the subscriptions of this worker's sessions, so that the links announce each filter once. This module knows sessions and their
subscriptions. It does not know what another worker does with a route.

Streams and this broker's own bridges subscribe without a session of a client; bridges have a session, streams stay local.
Cost: one look-up in the table of routes for each change of a subscription.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from cext.base.view cimport View
from cext.broker.core.broker cimport Broker
from cext.broker.core.link_state cimport links_of
from cext.link.routes cimport route_count, route_online
from cext.session.session cimport Session, sessions_first, sessions_next
from cext.topic.index cimport SUBSCRIPTION_TEXT_BYTES, Subscription, subscription_read

cdef enum:
    OPTION_QOS = 3


cdef int own_route(Broker* b, Session* s, View filter, int now, int old) noexcept nogil:
    cdef bint member = s.client != NULL and (now >= 0) != (old >= 0) and is_shared(filter)
    cdef int rc
    if b.links == NULL:
        return 0
    if member and now < 0:
        route_online(&links_of(b).links, filter, -1)     # before the route may go
    rc = route_count(&links_of(b).links, filter, now, old)
    if member and now >= 0 and rc >= 0:
        route_online(&links_of(b).links, filter, 1)
    return rc


cdef void own_online(Broker* b, Session* s, int change) noexcept nogil:
    cdef uint8_t text[SUBSCRIPTION_TEXT_BYTES]
    cdef Subscription* sub = s.owner.head if b.links != NULL else NULL
    cdef View filter
    cdef uint8_t options
    cdef uint32_t sub_id
    filter.p = text
    while sub != NULL:
        sub = subscription_read(sub, text, &filter.n, &options, &sub_id)
        if is_shared(filter):
            route_online(&links_of(b).links, filter, change)


cdef int subscriptions_count(Broker* b, Session* s, uint32_t most, bint added) noexcept nogil:
    cdef uint8_t text[SUBSCRIPTION_TEXT_BYTES]
    cdef Subscription* sub = s.owner.head
    cdef View filter
    cdef uint8_t options
    cdef uint32_t sub_id
    filter.p = text
    while sub != NULL and most:
        most -= 1
        sub = subscription_read(sub, text, &filter.n, &options, &sub_id)
        if own_route(b, s, filter, options & OPTION_QOS if added else ROUTE_NONE, ROUTE_NONE if added else options & OPTION_QOS) < 0:
            return -1
    return 0


cdef void own_routes_end(Broker* b, Session* s, uint32_t most) noexcept nogil:
    if b.links != NULL:
        subscriptions_count(b, s, most, 0)


cdef int own_routes_restored(Broker* b) noexcept nogil:
    cdef uint64_t at = 0
    cdef Session* s = sessions_first(&b.sessions, &at)
    while s != NULL:
        if subscriptions_count(b, s, s.owner.n, 1) < 0:
            return -1
        s = sessions_next(&b.sessions, s, &at)
    return 0
