"""Send a message to the workers that have subscribers of it. This module knows what a match has found and the links. It does not know local
subscribers.

    match -> the workers among its subscribers, each once, with the highest QoS of their routes
          -> a link is full: the publication is refused, before anything is done
          -> QoS 0, or no route above it: link_send0
          -> otherwise link_send, whose acknowledgement the publisher waits for

A match that is not complete goes to all workers, which match it themselves: this one would know too late whether a link has room.
Cost: short lists are read once more; in long ones a hash finds each worker.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memset

from cext.broker.core.bounds cimport LEND_MIN_BYTES
from cext.broker.core.broker cimport Broker
from cext.broker.core.link_state cimport BrokerLinks, PeerLog, links_of
from cext.broker.core.publication_state cimport Publication
from cext.broker.core.stats cimport DROP_MEMORY
from cext.broker.persist.publication cimport dropped, publication_store
from cext.link.frame cimport LINK_EXPIRES, LINK_PLAIN, LINK_RETAIN, LinkFrame
from cext.link.links cimport link_full, link_send, link_send0, link_waiter_new
from cext.link.state cimport LinkSend, LinkWaiter
from cext.session.message cimport message_bytes
from cext.session.session cimport SESSION_PEER, Session
from cext.topic.index cimport Entry, LONG_FROM, List, list_entry, subscriber_entry
from cext.topic.match cimport Match


# ---------------------------------------------------------------- who gets it

cdef inline void found_add(BrokerLinks* l, const Entry* e) noexcept nogil:
    cdef Session* s = <Session*>e.subscriber
    cdef uint32_t slot
    if s == NULL or not s.flags & SESSION_PEER:
        return
    slot = (<PeerLog*>s).slot
    if not l.found >> slot & 1:
        l.found |= <uint64_t>1 << slot
        l.found_qos[slot] = 0
    if e.options & 3 > l.found_qos[slot]:
        l.found_qos[slot] = e.options & 3


cdef void found_in_list(Broker* b, BrokerLinks* l, List* list) noexcept nogil:
    cdef Entry* e
    cdef uint32_t i
    if list.n < LONG_FROM:
        for i in range(list.n):
            found_add(l, list_entry(list, i))
        return
    for i in range(l.n):
        e = subscriber_entry(b.index, list, &l.peers[i].session.owner)
        if e != NULL:
            found_add(l, e)


# ---------------------------------------------------------------- sending

cdef void frame_of(Broker* b, const Publication* p, LinkFrame* f) noexcept nogil:
    memset(f, 0, sizeof(LinkFrame))
    f.flags = p.qos | (LINK_RETAIN if p.retain else 0)
    f.text = p.topic
    f.props = p.props
    f.payload = p.payload
    expiry_put(b, p.expires_ms, f)


cdef void expiry_put(Broker* b, uint64_t expires_ms, LinkFrame* f) noexcept nogil:
    if expires_ms:
        f.flags |= LINK_EXPIRES
        f.expiry = <uint32_t>((expires_ms - b.reactor.now_ms + EXPIRY_SECOND_MS - 1) // EXPIRY_SECOND_MS) if expires_ms > b.reactor.now_ms else 0


cdef bint has_room(BrokerLinks* l, const Publication* p) noexcept nogil:
    cdef uint32_t slot
    for slot in range(l.n):
        if l.found >> slot & 1 and l.found_qos[slot] and link_full(&l.links, slot, 1, p.topic.n + p.props.n + p.payload.n):
            return 0
    return 1


cdef void send_numbered(Broker* b, BrokerLinks* l, Publication* p, uint32_t slot, bint waits) noexcept nogil:
    cdef LinkSend s
    if publication_store(b, p) == NULL:
        dropped(b, p.source, DROP_MEMORY, p.topic)
        return
    if waits and p.waiter == NULL:
        p.waiter = link_waiter_new(&l.links, NULL)
    memset(&s, 0, sizeof(s))
    s.flags = p.qos | (LINK_RETAIN if p.retain else 0) | LINK_PLAIN
    s.bytes = message_bytes(p.message)
    s.identity = p.identity
    if link_send(&l.links, slot, p.message, &s, <LinkWaiter*>p.waiter) != 0:
        dropped(b, p.source, DROP_MEMORY, p.topic)


cdef void send_plain(Broker* b, BrokerLinks* l, Publication* p, bint waits) noexcept nogil:
    cdef LinkFrame f
    cdef uint32_t slot
    if p.payload.n >= LEND_MIN_BYTES:
        publication_store(b, p)              # so that all outputs share one payload
    frame_of(b, p, &f)
    f.flags |= LINK_PLAIN
    for slot in range(l.n):
        if not l.found >> slot & 1:
            continue
        if p.qos and l.found_qos[slot]:
            send_numbered(b, l, p, slot, waits)
        else:
            link_send0(&l.links, slot, &f, p.message)


cdef void found_all(BrokerLinks* l) noexcept nogil:
    cdef uint32_t slot
    for slot in range(l.n):
        l.found_qos[slot] = 2
    l.found = (<uint64_t>1 << l.n) - 1 & ~(<uint64_t>1 << l.links.self) if l.n < 64 else ~(<uint64_t>1 << l.links.self)


cdef bint links_take(Broker* b, Publication* p, Match* m, bint part, bint waits) noexcept nogil:
    cdef BrokerLinks* l = links_of(b)
    cdef uint32_t i
    l.found = 0
    if part:
        found_all(l)
    else:
        for i in range(m.n_lists):
            found_in_list(b, l, m.lists[i])
    if l.found == 0:
        return 1
    if p.qos and waits and not has_room(l, p):
        return 0
    send_plain(b, l, p, waits)
    return 1
