"""Keep copies of the retained messages that other workers own, and send those of this worker to a new connection. This module knows the tree of retained
messages. It does not know which message comes first: its owner gives the order.

A copy is in memory only. The store has the messages that this worker owns.
Cost: the end of a snapshot walks over the tree once, and once more for each STALE_SLICE copies that are stale.
"""

from libc.stdint cimport uint16_t, uint32_t, uint64_t

from cext.base.view cimport View
from cext.broker.arrivals.arrival cimport arrival_from, publication_of_frame
from cext.broker.core.broker cimport Broker
from cext.broker.core.link_state cimport PeerLog, links_of
from cext.broker.core.publication_state cimport Publication, SCOPE_COPY, SCOPE_LOCAL
from cext.broker.links.retained cimport retained_owner
from cext.broker.persist.publication cimport publication_fini
from cext.broker.routing.retain cimport copy_count, copy_generation, message_in, retain_store, retained_from, value_free
from cext.link.frame cimport LinkFrame
from cext.link.links cimport link_retained_to
from cext.session.message cimport MESSAGE_COPY, Message, message_bytes
from cext.session.record cimport RecordFrom
from cext.topic.retained cimport retained_close, retained_next, retained_open, retained_remove, retained_visit

cdef enum:
    WALK_NODES = 1000           # nodes of one slice
    STALE_SLICE = 512           # copies that one walk over the tree finds

ctypedef struct StaleCopies:
    Broker* b
    uint32_t slot
    uint32_t n
    uint64_t generation
    Message* found[512]


cdef void copy_arrived(void* broker, uint32_t slot, const LinkFrame* f, uint16_t generation) noexcept nogil:
    cdef Broker* b = <Broker*>broker
    cdef Publication p
    cdef RecordFrom publisher
    cdef bint known
    publication_of_frame(b, f, &p)
    p.retain = 1
    p.scope = SCOPE_LOCAL | SCOPE_COPY
    known = f.payload.n and arrival_from(b, f.publisher, &p, &publisher)
    retain_store(b, &p)
    if known:
        retained_from(b, &publisher)
    copy_count(b, f.text, generation)
    publication_fini(b, &p)


cdef void stale_add(void* context, void* value) noexcept nogil:
    cdef StaleCopies* s = <StaleCopies*>context
    cdef Message* m = message_in(value)
    if m.flags & MESSAGE_COPY and copy_generation(value) != s.generation and retained_owner(s.b, m.topic) == s.slot + 1 and s.n < STALE_SLICE:
        s.found[s.n] = m
        s.n += 1


cdef void copies_end(void* broker, uint32_t slot, uint16_t generation) noexcept nogil:
    """Remove the copies that the snapshot has not named."""
    cdef StaleCopies s
    cdef Broker* b = <Broker*>broker
    cdef uint32_t i
    s.b = b
    s.slot = slot
    s.generation = generation
    while True:
        s.n = 0
        retained_visit(b.retained, stale_add, &s)
        for i in range(s.n):
            value_free(b, retained_remove(b.retained, s.found[i].topic.p, s.found[i].topic.n))
        if s.n < STALE_SLICE:
            return


cdef void walk_close(Broker* b, uint32_t slot) noexcept nogil:
    cdef PeerLog* log = &links_of(b).peers[slot]
    if log.walks:
        retained_close(b.retained, &log.walk)
    log.walks = 0


cdef int copies_walk(void* broker, uint32_t slot, uint64_t* cursor, uint32_t bytes) noexcept nogil:
    cdef Broker* b = <Broker*>broker
    cdef PeerLog* log = &links_of(b).peers[slot]
    cdef uint32_t budget = WALK_NODES
    cdef uint64_t done = 0
    cdef void* value
    cdef Message* m
    cdef View all_topics
    all_topics.p = b"#"
    all_topics.n = 1
    if cursor[0] == 0:
        walk_close(b, slot)
        if retained_open(b.retained, &log.walk, all_topics) != 0:
            return 0             # no memory: the next turn tries again
        log.walks = 1
        cursor[0] = 1
    while done < bytes:
        value = retained_next(b.retained, &log.walk, &budget)
        if value == NULL and budget == 0:
            return 0
        if value == NULL:
            walk_close(b, slot)
            return 1
        m = message_in(value)
        if retained_owner(b, m.topic) == 0:
            done += message_bytes(m)
            link_retained_to(&links_of(b).links, slot, m)
    return 0
