"""Deliver a message that came from another worker to the subscribers of this one. This module knows frames and routing. It does not know sockets.

Invariant: such a message never goes to a link again (Publication.local), so nothing circulates.
"""

from libc.stdint cimport uint32_t, uint64_t

from cext.broker.core.bounds cimport LEND_MIN_BYTES
from cext.broker.core.broker cimport Broker
from cext.broker.core.durable cimport Durable, changes_of, durable_of
from cext.broker.core.link_state cimport links_of
from cext.broker.core.publication_state cimport Publication
from cext.broker.core.settings cimport DURABILITY_GROUP
from cext.broker.links.outward cimport EXPIRY_SECOND_MS
from cext.broker.links.records cimport record_identity
from cext.broker.persist.publication cimport publication_fini, publication_init
from cext.broker.routing.route cimport route
from cext.link.frame cimport LINK_EXPIRES, LINK_PLAIN, LINK_RETAIN, LinkFrame
from cext.link.state cimport LINK_TAKEN

cdef enum:
    ARRIVAL_QOS = 3


cdef void publication_of_frame(Broker* b, const LinkFrame* f, Publication* p) noexcept nogil:
    publication_init(p)
    p.topic = f.text
    p.props = f.props
    p.payload = f.payload
    p.qos = f.flags & ARRIVAL_QOS
    p.retain = (f.flags & LINK_RETAIN) != 0
    p.shaped = f.payload.n < LEND_MIN_BYTES
    p.local = 1
    if f.flags & LINK_EXPIRES:
        p.expires_ms = b.reactor.now_ms + (<uint64_t>f.expiry * EXPIRY_SECOND_MS or 1)


cdef int arrival(void* broker, uint32_t slot, const LinkFrame* f, uint64_t* batch) noexcept nogil:
    cdef Broker* b = <Broker*>broker
    cdef Durable* t = durable_of(b)
    cdef uint64_t changes = changes_of(b)
    cdef Publication p
    publication_of_frame(b, f, &p)
    if f.flags & LINK_PLAIN:
        route(b, &p, NULL)
    publication_fini(b, &p)
    if t != NULL and t.changes != changes and t.level >= DURABILITY_GROUP:
        batch[0] = links_of(b).batch
        if f.identity:
            record_identity(b, slot, links_of(b).links.peers[slot].inward.log, f.identity, f.part)
    return LINK_TAKEN
