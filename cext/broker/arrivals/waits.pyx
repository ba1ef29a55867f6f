"""Make acknowledgements wait for other workers. This module knows clients and waiters of the links. It does not know messages or packets.

A waiter's context is a LinkWait with the handle of the client, which may end before: then the release finds no client.
"""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from cext.base.slab cimport slab_at, slab_end, slab_get, slab_give, slab_take
from cext.base.wheel cimport Timer, wheel_add, wheel_remove
from cext.broker.core.bridge_state cimport bridges_of
from cext.broker.core.broker cimport Broker
from cext.broker.core.client cimport client_doom
from cext.broker.core.client_state cimport Client, TIMER_LINK_WAIT
from cext.broker.core.durable cimport Durable, batch_changed, batch_needed, durable_of
from cext.broker.core.job_state cimport Job
from cext.broker.core.jobs cimport fanout_of_client
from cext.broker.core.link_state cimport (
    BrokerLinks, LINK_WAIT_ACK, LINK_WAIT_ENDED, LINK_WAIT_PACKET, LINK_WAIT_REPLAY, LINK_WAIT_ROUTED, LINK_WAIT_WILL, LinkWait, links_of, waiter_take,
)
from cext.broker.core.pending_packet cimport pending_packet_resume
from cext.broker.core.settings cimport DURABILITY_GROUP, DURABILITY_STRICT
from cext.broker.persist.pending_acks cimport ack_now, pending_ack_due, pending_ack_linked
from cext.broker.persist.persist cimport persist_inbound, persist_inbound_end, persist_waiting_will_end
from cext.broker.routing.session_release cimport session_release
from cext.codec.frame cimport T_PUBACK, T_PUBCOMP
from cext.codec.reason cimport RC_QUOTA_EXCEEDED
from cext.link.links cimport link_identity_end, link_wait_commit, link_wait_current, link_wait_routes, link_waiter_cancel, link_waiter_close, link_waiter_new
from cext.link.state cimport LinkWaiter
from cext.session.message cimport MESSAGE_LOCAL_DONE, Message, message_ref, message_unref
from cext.session.session cimport SESSION_ENDED, Session


cdef LinkWait* wait_new(BrokerLinks* l, Client* c, int kind) noexcept nogil:
    cdef LinkWait* k = <LinkWait*>slab_take(&l.waits)
    if k != NULL:
        k.kind = <uint8_t>kind
        k.client_index = c.slab.index
        k.client_generation = c.slab.generation
    return k


cdef void ack_when_linked(Broker* b, Client* c, uint16_t pid, uint8_t rc, uint64_t changes, const Message* m, uint8_t durability) noexcept nogil:
    cdef LinkWaiter* w = waiter_take(b)
    cdef BrokerLinks* l = links_of(b)
    cdef Durable* t = durable_of(b)
    cdef LinkWait* k = wait_new(l, c, LINK_WAIT_ACK)
    cdef Job* rest = fanout_of_client(b, c, m)
    if k == NULL or not pending_ack_linked(b, c, T_PUBACK, pid, rc, &k.position):
        client_doom(b, c, RC_QUOTA_EXCEEDED)
        if k != NULL:
            slab_give(&l.waits, k)
        link_waiter_close(&l.links, w)
        return
    if t != NULL and t.lacks > changes:
        client_doom(b, c, RC_QUOTA_EXCEEDED)         # not recorded: the client gets no acknowledgement and publishes again
    w.context = k
    if rest != NULL:
        rest.waiter = w                  # a job records the deliveries in slices
        return
    if t != NULL and t.changes != changes and batch_needed(t, durability) and link_wait_commit(&l.links, w, l.batch) != 0:
        client_doom(b, c, RC_QUOTA_EXCEEDED)
    link_waiter_close(&l.links, w)


cdef void wait_of_job_done(Broker* b, LinkWaiter* w, uint8_t durability) noexcept nogil:
    cdef BrokerLinks* l = links_of(b)
    cdef Durable* t = durable_of(b)
    if t != NULL and durability == DURABILITY_STRICT:
        batch_changed(t, 0)              # a batch that is synced also syncs those before it
    if t != NULL and batch_needed(t, durability):
        link_wait_commit(&l.links, w, l.batch if t.dirty else l.batch - 1)
    link_waiter_close(&l.links, w)


cdef void ack_when_routed(Broker* b, Client* c, LinkWaiter* w, uint16_t pid, Message* m, uint64_t identity, uint8_t durability) noexcept nogil:      # parameters: a message, and what waits for it
    cdef BrokerLinks* l = links_of(b)
    cdef Durable* t = durable_of(b)
    cdef LinkWait* k = wait_new(l, c, LINK_WAIT_ROUTED)
    cdef Job* rest = fanout_of_client(b, c, m)
    if k == NULL or not pending_ack_linked(b, c, T_PUBCOMP, pid, 0, &k.position):
        client_doom(b, c, RC_QUOTA_EXCEEDED)         # the record stays: the next start releases the message again
        if k != NULL:
            slab_give(&l.waits, k)
        link_waiter_close(&l.links, w)
        return
    k.pid = pid
    k.session = c.session
    k.session.jobs += 1
    k.message = message_ref(m)
    k.identity = identity
    k.strict = durability == DURABILITY_STRICT
    w.context = k
    if rest != NULL:
        rest.waiter = w                  # its last slice makes the record
        return
    if c.session.store_session_id:
        m.flags |= MESSAGE_LOCAL_DONE
        persist_inbound(b, c.session, pid, m, identity)      # in the batch of the deliveries here, so they are not made twice
    if t != NULL and t.dirty and batch_needed(t, durability):
        link_wait_commit(&l.links, w, l.batch)
    link_waiter_close(&l.links, w)


cdef void routed(Broker* b, LinkWait* k, Client* c) noexcept nogil:
    """All workers have the message: its record ends, and PUBCOMP waits for the commit of that."""
    cdef Session* s = k.session
    cdef bint recorded = s.store_session_id != 0 and not s.flags & SESSION_ENDED
    if recorded:
        persist_inbound_end(b, s, k.pid)
        if k.strict:
            durable_of(b).strict = 1
    s.jobs -= 1
    message_unref(&b.messages, &b.reactor.buffers, k.message)
    k.session = NULL
    k.message = NULL
    session_release(b, s)
    end_committed(b, k, recorded and durable_of(b).level >= DURABILITY_GROUP, c)


cdef void end_committed(Broker* b, LinkWait* k, bint recorded, Client* c) noexcept nogil:
    """The end of a record is in the open batch, if `recorded`: when that is committed, the identity ends, and c (or NULL) gets what it waits for."""
    cdef BrokerLinks* l = links_of(b)
    cdef LinkWaiter* w = link_waiter_new(&l.links, k)
    k.kind = LINK_WAIT_ENDED
    if w == NULL:
        wait_ended(b, k, c)
        return
    if recorded:
        link_wait_commit(&l.links, w, l.batch)
    link_waiter_close(&l.links, w)


cdef void wait_ended(Broker* b, LinkWait* k, Client* c) noexcept nogil:
    cdef uint32_t position = k.position
    link_identity_end(&links_of(b).links, k.identity)
    slab_give(&links_of(b).waits, k)
    if c != NULL:
        pending_ack_due(b, c, position)


cdef LinkWait* routed_find(Broker* b, const Session* s, uint16_t pid) noexcept nogil:
    """Return the wait of a message that is routed and whose record has not ended; NULL = none."""
    cdef BrokerLinks* l = links_of(b)
    cdef LinkWait* k
    cdef uint32_t i
    for i in range(slab_end(&l.waits)):
        k = <LinkWait*>slab_at(&l.waits, i)
        if k != NULL and k.kind == LINK_WAIT_ROUTED and k.session == s and k.pid == pid:
            return k
    return NULL


cdef bint routed_again(Broker* b, Client* c, uint16_t pid) noexcept nogil:
    cdef LinkWait* k = routed_find(b, c.session, pid)
    if k == NULL:
        return 0
    if k.client_index == c.slab.index and k.client_generation == c.slab.generation:
        ack_now(b, c, T_PUBCOMP, pid, 0)         # behind the one that waits on this connection
    elif pending_ack_linked(b, c, T_PUBCOMP, pid, 0, &k.position):
        k.client_index = c.slab.index
        k.client_generation = c.slab.generation
    return 1


cdef Message* routed_message(Broker* b, const Session* s, uint16_t pid, uint64_t* identity) noexcept nogil:
    cdef LinkWait* k = routed_find(b, s, pid) if b.links != NULL else NULL
    if k == NULL:
        return NULL
    identity[0] = k.identity
    return k.message


cdef bint wait_for_routes(Broker* b, Client* c, bint retained, bint current) noexcept nogil:
    cdef BrokerLinks* l = links_of(b)
    cdef LinkWait* k = wait_new(l, c, LINK_WAIT_PACKET)
    cdef LinkWaiter* w
    cdef int rc
    if k == NULL:
        return 0
    w = link_waiter_new(&l.links, k)
    if w == NULL:
        slab_give(&l.waits, k)
        return 0
    k.waiter = w
    k.current = current
    k.timer.kind = TIMER_LINK_WAIT
    wheel_add(&b.wheel, &k.timer, b.reactor.now_ms + b.settings.route_timeout_ms)
    rc = link_wait_current(&l.links, w) if current else link_wait_routes(&l.links, w, retained)
    link_waiter_close(&l.links, w)       # it may be released in this call
    return rc == 0


cdef void replay_when_routed(Broker* b, Client* c) noexcept nogil:
    cdef BrokerLinks* l = links_of(b)
    cdef LinkWait* k = wait_new(l, c, LINK_WAIT_REPLAY)
    cdef LinkWaiter* w = link_waiter_new(&l.links, k) if k != NULL else NULL
    if w == NULL:
        if k != NULL:
            slab_give(&l.waits, k)
        bridges_of(b).ops.replay(b, c)       # no memory: those that are here
        return
    link_wait_routes(&l.links, w, 1)         # without memory it waits for fewer workers
    link_waiter_close(&l.links, w)


cdef void replay_routed(Broker* b, LinkWait* k, Client* c) noexcept nogil:
    cdef BrokerLinks* l = links_of(b)
    cdef LinkWaiter* w = link_waiter_new(&l.links, k) if c != NULL and not k.current else NULL
    if w != NULL:
        k.current = 1
        link_wait_current(&l.links, w)
        link_waiter_close(&l.links, w)
        return
    slab_give(&l.waits, k)
    if c != NULL:
        bridges_of(b).ops.replay(b, c)


cdef void wait_released(void* broker, void* context) noexcept nogil:
    cdef Broker* b = <Broker*>broker
    cdef LinkWait* k = <LinkWait*>context
    cdef Client* c = <Client*>slab_get(&b.clients, k.client_index, k.client_generation)
    if k.kind == LINK_WAIT_ROUTED:
        routed(b, k, c)
        return
    if k.kind == LINK_WAIT_ENDED:
        wait_ended(b, k, c)
        return
    if k.kind == LINK_WAIT_WILL:
        persist_waiting_will_end(b, k.will)
        end_committed(b, k, k.will != 0 and durable_of(b).level >= DURABILITY_GROUP, NULL)
        return
    if k.kind == LINK_WAIT_REPLAY:
        replay_routed(b, k, c)
        return
    if c != NULL and k.kind == LINK_WAIT_ACK:
        pending_ack_due(b, c, k.position)
    elif c != NULL and c.pending_packet != NULL:
        pending_packet_resume(b, c)
    wheel_remove(&b.wheel, &k.timer)
    slab_give(&links_of(b).waits, k)


cdef void wait_timed_out(Broker* b, Timer* t) noexcept nogil:
    """Give up: the filters that not all workers know are refused. If only retained messages are not known to be current, the client gets those that
    are here."""
    cdef LinkWait* k = <LinkWait*>(<uint8_t*>t - <size_t>&(<LinkWait*>NULL).timer)
    cdef Client* c = <Client*>slab_get(&b.clients, k.client_index, k.client_generation)
    link_waiter_cancel(&links_of(b).links, k.waiter)
    if c != NULL and c.pending_packet != NULL:
        c.pending_packet.timed_out = not k.current
        pending_packet_resume(b, c)
    slab_give(&links_of(b).waits, k)


cdef void waits_free(Broker* b) noexcept nogil:
    cdef BrokerLinks* l = links_of(b)
    cdef LinkWait* k
    cdef uint32_t i
    for i in range(slab_end(&l.waits)):
        k = <LinkWait*>slab_at(&l.waits, i)
        if k != NULL and k.session != NULL:
            k.session.jobs -= 1
            session_release(b, k.session)
            message_unref(&b.messages, &b.reactor.buffers, k.message)
