"""Deliver a publication to one session: send it now, queue it, or drop it with a counted reason. This module knows sessions,
access rules and plugin gates. write_publish.pyx writes packets, overflow.pyx limits queues and pump.pyx sends from them. This
module does not know topics or the subscription index.

Invariants: a publication is stored at most once and encoded at most once per shape (version, QoS, retain), whatever the size of
its fan-out. QoS 0 to a connected client is never stored. QoS 1 and 2 always pass through the queue, which alone knows their
progress.
Cost of a QoS 0 delivery: the copy of its bytes and about 20 ns.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from cext.broker.auth.bridge cimport bridge_queues_qos0, session_queued
from cext.broker.core.access cimport access_allows
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport Client
from cext.broker.core.durable cimport durable_lacks_memory
from cext.broker.core.listener cimport Security
from cext.broker.core.log cimport LOG_TRACE, log_wanted
from cext.broker.core.publication_state cimport Publication
from cext.broker.core.session_refs cimport session_client, session_security
from cext.broker.core.settings cimport OVERFLOW_LAST_VALUE
from cext.broker.core.stats cimport DROP_ACL_READ, DROP_EXPIRED, DROP_MEMORY, DROP_OUTPUT_BYTES, DROP_QOS0_BLOCKED
from cext.broker.persist.accounts cimport (
    ACCOUNT_DROPPED, ACCOUNT_EXPIRED, account_published, account_queued, account_refused, account_turned_away, account_unpublished,
)
from cext.broker.persist.publication cimport drop, publication_fini, publication_message, publication_of
from cext.broker.routing.delivery_rules cimport is_expired
from cext.broker.routing.encode_publish cimport WROTE, publish_flags
from cext.broker.routing.overflow cimport make_room, record_delivery, replace_older
from cext.broker.routing.paged cimport memory_is_full, page_out_some
from cext.broker.routing.plugin_gate cimport GATED_READY, GatedDelivery, plugin_gate_next, plugin_gate_takes
from cext.broker.routing.pump cimport pump
from cext.broker.routing.write_publish cimport write_fail_reason, write_publish
from cext.broker.rules.acl cimport ACL_READ
from cext.broker.trace.events cimport trace_queued
from cext.net.conn_output cimport conn_flush
from cext.net.conn_state cimport CONN_BLOCKED, CONN_CLOSED, CONN_CLOSING, FLUSH_EARLY_BYTES
from cext.session.message cimport Message, message_unref
from cext.session.queue cimport DELIVERY_RETAIN, DELIVERY_SHARED, Delivery, queue_pop, queue_push
from cext.session.session cimport SESSION_BRIDGE, SESSION_DROPPING, Session, session_share


cdef inline bint is_gated(const Security* security) noexcept nogil:
    return security.authorize or security.transform_out != NULL


cdef bint passes(Broker* b, Session* s, Publication* p, uint8_t qos, uint8_t retain, const uint32_t* sub_ids,
                 uint32_t n_sub_ids) noexcept nogil:
    """Return 1 if the publication may be delivered now; 0 = it was dropped, or it waits in the plugin gate for a verdict."""
    if is_gated(session_security(s)):
        return not plugin_gate_takes(b, s, p, qos, retain, sub_ids, n_sub_ids)
    if access_allows(b, s, p.topic, ACL_READ):
        return 1
    drop(b, s, DROP_ACL_READ, p.topic)
    return 0


cdef int qos0_crowded(Broker* b, Client* c, Publication* p) noexcept nogil:
    """Return the reason to drop a QoS 0 delivery, or -1 if it fits. QoS 0 has no queue but the socket's output: while the socket
    is full, up to max_queued_messages packets may wait, as in Mosquitto."""
    if not c.conn.flags & CONN_BLOCKED:
        conn_flush(&b.reactor, &c.conn)
    if c.conn.flags & (CONN_CLOSED | CONN_CLOSING):
        return DROP_QOS0_BLOCKED
    if <uint64_t>c.conn.out_bytes + p.payload.n > b.settings.max_output_bytes and c.conn.out_bytes:
        return DROP_OUTPUT_BYTES
    if c.conn.flags & CONN_BLOCKED and b.settings.max_queued_messages and c.out_packets >= b.settings.max_queued_messages:
        return DROP_QOS0_BLOCKED
    return -1


cdef void enqueue_failed(Broker* b, Session* s, Publication* p, uint8_t qos) noexcept nogil:
    if p.patient and s.store_session_id:
        p.lacks = 1
        account_unpublished(b, s, qos)
        return
    drop(b, s, DROP_MEMORY, p.topic)
    account_refused(b, s, qos, ACCOUNT_DROPPED)
    if s.store_session_id:
        durable_lacks_memory(b)               # the publisher gets no acknowledgement


cdef void enqueue(Broker* b, Session* s, Publication* p, uint8_t qos, uint8_t retain, const uint32_t* sub_ids,
                  uint32_t n_sub_ids) noexcept nogil:
    cdef bint last_value = b.settings.overflow == OVERFLOW_LAST_VALUE
    cdef Message* m
    cdef Delivery* d
    cdef uint32_t sub_id = sub_ids[0] if n_sub_ids == 1 else 0
    account_published(b, s, qos)
    if not last_value and not make_room(b, s, p, qos):
        return
    m = publication_message(b, p, sub_ids, n_sub_ids)
    if m == NULL:
        enqueue_failed(b, s, p, qos)
        return
    if p.share:
        qos |= DELIVERY_SHARED
        sub_id = p.share - 1
    if last_value:
        if replace_older(b, s, m, p, qos | (DELIVERY_RETAIN if retain else 0), sub_id):
            return
        if not make_room(b, s, p, qos):
            message_unref(&b.messages, &b.reactor.buffers, m)
            return
    d = queue_push(&s.queue, m, qos, retain, sub_id)
    if d == NULL:
        message_unref(&b.messages, &b.reactor.buffers, m)
        enqueue_failed(b, s, p, qos)
        return
    if s.store_session_id and record_delivery(b, s, m, d, p) != 0:
        queue_pop(&s.queue)
        message_unref(&b.messages, &b.reactor.buffers, m)
        enqueue_failed(b, s, p, qos)
        return
    account_queued(b, s, qos)
    b.work += 1
    if s.store_session_id and memory_is_full(b):
        page_out_some(b, s)
    if s.client != NULL:
        pump(b, s, p)
        return
    if s.flags & SESSION_BRIDGE:
        session_queued(b, s)
    if log_wanted(&b.log, LOG_TRACE):
        trace_queued(b, s, p.topic, qos & 3)


cdef void deliver_now(Broker* b, Session* s, Publication* p, uint8_t qos, uint8_t retain, const uint32_t* sub_ids,
                      uint32_t n_sub_ids) noexcept nogil:
    cdef Client* c = session_client(s)
    cdef int wrote, why
    if is_expired(b, p.expires_ms):
        drop(b, s, DROP_EXPIRED, p.topic)
        account_turned_away(b, s, qos, ACCOUNT_EXPIRED)
        return
    if c == NULL:
        if qos or b.settings.queue_qos0 or (s.flags & SESSION_BRIDGE and bridge_queues_qos0(b, s, p.payload.n)):
            enqueue(b, s, p, qos, retain, sub_ids, n_sub_ids)
        return
    if qos:
        enqueue(b, s, p, qos, retain, sub_ids, n_sub_ids)
        return
    if c.conn.flags & (CONN_BLOCKED | CONN_CLOSED | CONN_CLOSING) or c.conn.out_bytes > FLUSH_EARLY_BYTES:
        why = qos0_crowded(b, c, p)
        if why >= 0:
            drop(b, s, why, p.topic)
            return
    wrote = write_publish(b, c, p, publish_flags(0, retain, 0, 0), sub_ids, n_sub_ids)
    if wrote != WROTE:
        drop(b, s, write_fail_reason(wrote), p.topic)
    elif s.flags & SESSION_DROPPING and not c.conn.flags & CONN_BLOCKED:
        s.flags &= ~<uint32_t>SESSION_DROPPING


cdef void deliver(Broker* b, Session* s, Publication* p, uint8_t qos, uint8_t retain, const uint32_t* sub_ids,
                  uint32_t n_sub_ids) noexcept nogil:
    b.work += 1                  # also for a delivery that is dropped
    if s.security != NULL and session_security(s).guards and not passes(b, s, p, qos, retain, sub_ids, n_sub_ids):
        return
    deliver_now(b, s, p, qos, retain, sub_ids, n_sub_ids)


cdef void deliver_readable(Broker* b, Session* s, Publication* p, uint8_t qos, uint8_t retain, const uint32_t* sub_ids,
                           uint32_t n_sub_ids) noexcept nogil:
    b.work += 1
    if s.security != NULL and is_gated(session_security(s)) and plugin_gate_takes(b, s, p, qos, retain, sub_ids, n_sub_ids):
        return
    deliver_now(b, s, p, qos, retain, sub_ids, n_sub_ids)


cdef void deliver_gated(Broker* b, Session* s) noexcept nogil:
    cdef GatedDelivery h
    cdef Publication p
    while plugin_gate_next(b, s, &h):
        if h.state == GATED_READY:
            publication_of(&p, h.message)
            p.shaped = 0         # one client: an encoding for reuse would cost one more copy
            if h.shared:
                p.share = session_share(s, h.group, h.sub_id, 0)
            deliver_now(b, s, &p, h.qos, h.retain, &h.sub_id, 1 if h.sub_id else 0)
            publication_fini(b, &p)
        if h.message != NULL:
            message_unref(&b.messages, &b.reactor.buffers, h.message)
