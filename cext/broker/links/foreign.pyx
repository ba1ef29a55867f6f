"""Keep the routes of other workers in the index: a route is a subscription of the worker's PeerLog, so matching, the match cache and the 27 ways
serve both. This module knows routes. It does not know how a message gets to a worker.

Each walk over subscribers passes a PeerLog over, because it is an ended session: a delivery costs the same as without links.
Cost: as of a subscription; the end of a snapshot walks over all routes of its worker.
"""

from libc.stdint cimport uint16_t, uint32_t, uint64_t

from cext.base.hash cimport hash_bytes
from cext.base.view cimport View
from cext.broker.core.broker cimport Broker
from cext.broker.core.client cimport log_text
from cext.broker.core.link_state cimport PeerLog, links_of
from cext.broker.core.log cimport LOG_ERROR
from cext.link.frame cimport LinkFrame
from cext.topic.index cimport (
    Entry, IndexStats, List, Subscription, index_add, index_entry, index_remove, index_remove_some, index_stats, subscription_drop, subscription_entry, subscription_next,
    subscriber_entry,
)
from cext.topic.name cimport Filter, filter_parse

cdef enum:
    ROUTES_SLICE = 1000


cdef inline PeerLog* peer_at(Broker* b, uint32_t slot) noexcept nogil:
    return &links_of(b).peers[slot]


cdef uint64_t shared_in_index(Broker* b) noexcept nogil:
    cdef IndexStats s
    index_stats(b.index, &s)
    return s.shared


cdef inline uint32_t route_hash(Broker* b, View text) noexcept nogil:
    """Return the hash of a route's text that its worker has, too: all workers have one key."""
    return <uint32_t>hash_bytes(&links_of(b).links.key, text.p, text.n)


cdef void foreign_route(void* broker, uint32_t slot, const LinkFrame* f, uint16_t generation) noexcept nogil:
    cdef Broker* b = <Broker*>broker
    cdef PeerLog* log = peer_at(b, slot)
    cdef Filter filter
    cdef Entry* e
    cdef uint64_t shared = shared_in_index(b)
    cdef bint counted
    filter_parse(f.text.p, f.text.n, &filter)            # the codec has parsed it before
    if log.routes_generation != generation:
        log.routes_generation, log.routes_digest = generation, 0
    e = index_entry(b.index, &log.session.owner, &filter)
    counted = e != NULL and e.share == generation
    if index_add(b.index, &log.session.owner, &log.session, &filter, f.flags & 3, f.online) < 0:
        log_text(b, LOG_ERROR, "Error: no memory for a route to another worker: its subscribers do not get all messages.")
        return
    e = index_entry(b.index, &log.session.owner, &filter)
    e.share = generation
    if not counted:
        log.routes_digest += route_hash(b, f.text)
    links_of(b).shared_routes += shared_in_index(b) - shared


cdef void foreign_unroute(void* broker, uint32_t slot, View text) noexcept nogil:
    cdef Broker* b = <Broker*>broker
    cdef PeerLog* log = peer_at(b, slot)
    cdef Filter filter
    cdef Entry* e
    cdef uint64_t shared = shared_in_index(b)
    filter_parse(text.p, text.n, &filter)
    e = index_entry(b.index, &log.session.owner, &filter)
    if e == NULL:
        return
    if e.share == log.routes_generation:
        log.routes_digest -= route_hash(b, text)
    index_remove(b.index, &log.session.owner, &filter)
    links_of(b).shared_routes -= shared - shared_in_index(b)


cdef void foreign_routes_end(void* broker, uint32_t slot, uint16_t generation) noexcept nogil:
    cdef Broker* b = <Broker*>broker
    cdef PeerLog* log = peer_at(b, slot)
    cdef Subscription* s = log.session.owner.head
    cdef Subscription* following
    cdef uint64_t shared = shared_in_index(b)
    if log.routes_generation != generation:             # the snapshot was empty
        log.routes_generation, log.routes_digest = generation, 0
    while s != NULL:
        following = subscription_next(s)
        if subscription_entry(s).share != generation:
            subscription_drop(b.index, s)
        s = following
    links_of(b).shared_routes -= shared - shared_in_index(b)


cdef void foreign_lost(Broker* b, uint32_t slot) noexcept nogil:
    cdef uint64_t shared = shared_in_index(b)
    peer_at(b, slot).routes_digest = 0
    while index_remove_some(b.index, &peer_at(b, slot).session.owner, ROUTES_SLICE):
        pass
    links_of(b).shared_routes -= shared - shared_in_index(b)


cdef Entry* peer_route(void* broker, List* list, uint32_t i, uint32_t* worker) noexcept nogil:
    cdef Broker* b = <Broker*>broker
    cdef uint32_t slot
    cdef Entry* e
    for slot in range(links_of(b).n if b.links != NULL else 0):
        e = subscriber_entry(b.index, list, &peer_at(b, slot).session.owner)
        if e == NULL:
            continue
        if i == 0:
            worker[0] = slot + 1
            return e
        i -= 1
    return NULL
