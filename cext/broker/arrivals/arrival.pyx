"""Deliver a message that came from another worker to the subscribers of this one. This module knows frames and routing. It does not know sockets.

Invariant: such a message never goes to a link again (Publication.local), so nothing circulates.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from cext.base.hash cimport hash_bytes
from cext.base.view cimport View
from cext.broker.arrivals.fanouts cimport fanout_arrived
from cext.broker.core.bounds cimport LEND_MIN_BYTES
from cext.broker.core.broker cimport Broker
from cext.broker.core.durable cimport Durable, batch_needed, changes_of, durable_of, lacks_since
from cext.broker.core.link_state cimport BrokerLinks, links_of
from cext.broker.core.publication_state cimport Publication, SCOPE_LOCAL
from cext.broker.core.stats cimport DROP_SESSION_ENDED
from cext.broker.links.outward cimport group_worker
from cext.broker.links.publisher cimport publisher_read
from cext.broker.links.records cimport record_identity
from cext.broker.links.retained cimport retained_announce
from cext.broker.persist.publication cimport dropped, publication_fini, publication_init, publication_of, publication_store
from cext.broker.routing.retain cimport retain_store, retained_from
from cext.broker.routing.share cimport share_deliver
from cext.link.frame cimport LINK_AGAIN, LINK_EXPIRES, LINK_OWNER, LINK_PLAIN, LINK_RETAIN, LinkFrame
from cext.link.links cimport link_send, link_wait_commit
from cext.link.state cimport LINK_NO_MEMBER, LINK_NO_MEMORY, LINK_TAKEN, LinkSend, LinkWaiter
from cext.session.message cimport MESSAGE_AGAIN, Message
from cext.session.record cimport RecordFrom
from cext.topic.index cimport Group, index_group
from cext.topic.name cimport Filter, filter_parse

cdef enum:
    ARRIVAL_QOS = 3


cdef void publication_of_frame(Broker* b, const LinkFrame* f, Publication* p) noexcept nogil:
    publication_init(p)
    p.topic = f.text
    p.props = f.props
    p.payload = f.payload
    p.qos = f.flags & ARRIVAL_QOS
    p.durability = f.durability
    p.retain = (f.flags & LINK_RETAIN) != 0
    p.shaped = f.payload.n < LEND_MIN_BYTES
    p.scope = SCOPE_LOCAL
    p.journalled = 1             # in the streams of the worker that accepted it
    if f.flags & LINK_EXPIRES:
        p.expires_ms = f.expires_ms


cdef bint arrival_from(Broker* b, View publisher, Publication* p, RecordFrom* out) noexcept nogil:
    """Note the publisher with the message. Returns 0 if it is not known."""
    if not publisher_read(publisher, out) or publication_store(b, p) == NULL:
        return 0
    out.topic = p.topic
    p.message.source_hash = hash_bytes(b.sessions.key, out.id.p, out.id.n)
    return 1


cdef bint group_takes(Broker* b, Publication* p, View text) noexcept nogil:
    cdef Filter filter
    cdef Group* g
    if filter_parse(text.p, text.n, &filter) != 0:
        return 0
    g = index_group(b.index, &filter)
    return g != NULL and share_deliver(b, p, g)


cdef void group_again(void* broker, uint32_t slot, void* message, LinkSend* s, LinkWaiter* waiter) noexcept nogil:
    cdef Broker* b = <Broker*>broker
    cdef BrokerLinks* l = links_of(b)
    cdef Filter filter
    cdef Group* g
    cdef Publication p
    cdef uint8_t qos
    cdef RecordFrom publisher
    cdef int to = -1
    if not publisher_read(s.publisher, &publisher):
        publisher.id.p, publisher.id.n = NULL, 0
    filter_parse(s.group.p, s.group.n, &filter)
    g = index_group(b.index, &filter)
    if g != NULL:
        to = group_worker(b, g, (<Message*>message).topic, publisher.id, s.tried, &qos)
    if to >= 0 and to != <int>l.links.self:
        link_send(&l.links, <uint32_t>to, message, s, waiter)
    elif to >= 0:
        publication_of(&p, <Message*>message)
        p.scope = SCOPE_LOCAL
        p.journalled = 1
        p.durability = s.durability
        share_deliver(b, &p, g)
        publication_fini(b, &p)
        if waiter != NULL and b.durable != NULL and batch_needed(durable_of(b), s.durability):
            link_wait_commit(&l.links, waiter, l.batch)
    else:
        dropped(b, NULL, DROP_SESSION_ENDED, (<Message*>message).topic)


cdef int arrival(void* broker, uint32_t slot, const LinkFrame* f, uint64_t* batch) noexcept nogil:
    cdef Broker* b = <Broker*>broker
    cdef Durable* t = durable_of(b)
    cdef uint64_t changes = changes_of(b)
    cdef Publication p
    cdef RecordFrom publisher
    cdef bint taken = 1, known
    cdef int answer
    publication_of_frame(b, f, &p)
    if p.qos and t != NULL and publication_store(b, &p) == NULL:
        publication_fini(b, &p)
        return LINK_NO_MEMORY    # before any session has it, so that none has it twice
    known = arrival_from(b, f.publisher, &p, &publisher)
    if f.flags & LINK_AGAIN and publication_store(b, &p) != NULL:
        p.message.flags |= MESSAGE_AGAIN
    if f.group.n:
        taken = group_takes(b, &p, f.group)
    if f.flags & LINK_OWNER:
        retain_store(b, &p)
        if known:
            retained_from(b, &publisher)
        if publication_store(b, &p) != NULL:
            retained_announce(b, p.message)
    answer = LINK_TAKEN
    if f.number and lacks_since(b, changes):
        answer = LINK_NO_MEMORY
    elif f.flags & LINK_PLAIN:
        answer = fanout_arrived(b, slot, f, &p, changes)
    publication_fini(b, &p)
    if answer != LINK_TAKEN:
        return answer
    if f.number and lacks_since(b, changes):
        return LINK_NO_MEMORY    # a session lacks it; the others may get it twice, as from a client that is not acknowledged
    if not taken:
        return LINK_NO_MEMBER
    if t != NULL and t.changes != changes:
        if batch_needed(t, f.durability):
            batch[0] = links_of(b).batch
        if f.identity:
            record_identity(b, slot, links_of(b).links.peers[slot].inward.log, f.identity, f.part)
    return LINK_TAKEN
