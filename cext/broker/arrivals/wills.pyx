"""Keep the record of a will until all workers that got it have committed it. This module knows the records of wills, and waiters of the links. It does
not know when a will is due, or which client may send it.

    a will is due -> its record ends, RECORD_LINK_WILL begins, deliveries of this worker: one batch
                  -> committed: the links send it
                  -> all workers have acknowledged it: RECORD_LINK_WILL ends -> committed: the identity of QoS 2 ends
    the process ends before that -> the next start sends it to the other workers only, with the same identity

A will without a record, such as that of a client that the disk did not accept, is sent once.
"""

from libc.stdint cimport uint32_t, uint64_t

from cext.base.slab cimport slab_at, slab_end, slab_take
from cext.broker.core.broker cimport Broker
from cext.broker.core.durable cimport RestoredWill, durable_of, durable_is_stuck
from cext.broker.core.link_state cimport BrokerLinks, LINK_WAIT_WILL, LinkWait, links_of, waiter_take
from cext.broker.core.publication_state cimport Publication, SCOPE_REMOTE, SCOPE_WILL
from cext.broker.core.settings cimport DURABILITY_GROUP
from cext.broker.links.retained cimport retained_owner
from cext.broker.persist.persist cimport is_sys_message, persist_sent_will, persist_waiting_will_end
from cext.broker.persist.publication cimport publication_fini, publication_of
from cext.broker.routing.route cimport route
from cext.link.links cimport link_identity_end, link_waiter_close
from cext.link.state cimport LinkWaiter
from cext.session.message cimport MESSAGE_AGAIN


cdef void sent_will_prepare(Broker* b, Publication* p, bint stored) noexcept nogil:
    # nothing below $SYS outlives the process: after the next start such a will could replace what its client has published since
    if b.links != NULL and stored and not is_sys_message(p.message) and b.durable != NULL and durable_of(b).level >= DURABILITY_GROUP and not durable_is_stuck(b):
        p.scope |= SCOPE_WILL


cdef void sent_will_hold(Broker* b, Publication* p) noexcept nogil:
    if p.scope & SCOPE_WILL:
        record_hold(b, p, 0, 0)


cdef void record_hold(Broker* b, Publication* p, uint64_t number, uint64_t identity) noexcept nogil:
    """Let the record wait for the workers that got the will. Without a number it is a new one."""
    cdef BrokerLinks* l = links_of(b)
    cdef LinkWaiter* w = waiter_take(b)
    cdef LinkWait* k
    if w == NULL:                    # no other worker has got it
        persist_waiting_will_end(b, number)
        link_identity_end(&l.links, identity)
        return
    k = <LinkWait*>w.context
    if k == NULL:
        k = <LinkWait*>slab_take(&l.waits)
    if k != NULL:                    # otherwise no memory: a new record is not written, an older one stays until the next start
        k.identity = identity or k.identity
        k.kind = LINK_WAIT_WILL
        k.will = number or persist_sent_will(b, p.source, p.message, k.identity)
        w.context = k
    link_waiter_close(&l.links, w)


cdef void sent_will_again(Broker* b, RestoredWill* w) noexcept nogil:
    cdef Publication p
    w.session.will.flags |= MESSAGE_AGAIN
    publication_of(&p, w.session.will)
    p.source = w.session
    if b.links == NULL:              # a store of workers, and a broker that is alone: it is not known which sessions have it
        route(b, &p, NULL)
        persist_waiting_will_end(b, w.number)
        publication_fini(b, &p)
        return
    p.scope = SCOPE_REMOTE | SCOPE_WILL
    links_of(b).identity = w.identity
    if p.retain and b.settings.retain_available:
        p.owner = retained_owner(b, p.topic)
    if p.expires_ms == 0 or p.expires_ms > b.reactor.now_ms:
        route(b, &p, NULL)
    links_of(b).identity = 0
    record_hold(b, &p, w.number, w.identity)
    publication_fini(b, &p)


cdef bint is_sent_will(Broker* b, uint64_t number) noexcept nogil:
    cdef BrokerLinks* l = links_of(b)
    cdef LinkWait* k
    cdef uint32_t i
    for i in range(slab_end(&l.waits) if l != NULL else 0):
        k = <LinkWait*>slab_at(&l.waits, i)
        if k != NULL and k.kind == LINK_WAIT_WILL and k.will == number:
            return 1
    return 0
