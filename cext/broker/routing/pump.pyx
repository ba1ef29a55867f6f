"""Send the deliveries of a session's queue while the inflight window and the output buffer have room. This module knows queues
and connections. It does not know how a delivery came into the queue.

Invariant: deliveries are sent in the order of the queue, which alone knows the progress of QoS 1 and 2.
"""

from libc.stdint cimport uint32_t

from cext.base.view cimport View
from cext.broker.auth.bridge cimport bridge_choose_lines, bridge_default_lines
from cext.broker.core.bounds cimport HIGH_WATER_BYTES
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport CF_BRIDGE, Client
from cext.broker.core.log cimport LOG_TRACE, log_wanted
from cext.broker.core.publication_state cimport Publication
from cext.broker.core.session_refs cimport session_client
from cext.broker.core.stats cimport DROP_ACL_READ, DROP_EXPIRED, DROP_NO_NAME, DROP_REASONS
from cext.broker.persist.accounts cimport (
    ACCOUNT_ACKNOWLEDGED, ACCOUNT_DROPPED, ACCOUNT_EXPIRED, ACCOUNT_GONE, account_left, account_sent,
)
from cext.broker.persist.pending_acks cimport ack_after_all
from cext.broker.persist.persist cimport is_sendable, pending_delivery_done, pending_delivery_release
from cext.broker.persist.publication cimport drop, drop_unlogged, publication_fini, publication_of
from cext.broker.routing.delivery_rules cimport is_expired
from cext.broker.routing.encode_publish cimport NO_ROOM, WROTE, publish_flags
from cext.broker.routing.paged cimport pages_request
from cext.broker.routing.plugin_gate cimport plugin_gate_may_read
from cext.broker.routing.write_publish cimport write_fail_reason, write_publish
from cext.broker.trace.events cimport trace_queued
from cext.codec.frame cimport T_PUBREL
from cext.net.conn_state cimport CONN_CLOSED, CONN_CLOSING, CONN_HUNGRY
from cext.session.message cimport MESSAGE_AGAIN, Message, message_unref
from cext.session.queue cimport (
    D_DONE, D_RELEASED, D_SENT, D_WAITING, Delivery, Queue, delivery_bytes, delivery_message, delivery_release,
    delivery_topic, inbox_fini, is_paged, queue_at, queue_done, queue_pid_rises, queue_position, room_leave,
)
from cext.session.session cimport SESSION_DROPPING, SESSION_RECHECK, SESSION_STRANGER, Session, session_sub_id


cdef void delivery_done(Broker* b, Session* s, Delivery* d, int way) noexcept nogil:
    account_left(b, s, d.qos, way)
    if s.store_session_id:
        pending_delivery_done(b, s, d.message, queue_position(&s.queue, d))
    s.queue.inflight_bytes -= delivery_bytes(d)
    room_leave(&s.queue, d)
    delivery_release(&b.messages, &b.reactor.buffers, d)
    queue_done(&s.queue, d)


cdef bint window_open(Broker* b, Client* c, Queue* q) noexcept nogil:
    if q.inflight >= c.window or q.next - q.floor >= 65534:
        return 0
    if not queue_pid_rises(q):
        return 0
    # As in Mosquitto, messages are sent until the limit is reached: the last one may exceed it.
    return b.settings.max_inflight_bytes == 0 or q.inflight == 0 or q.inflight_bytes < b.settings.max_inflight_bytes


cdef bint may_read_again(Broker* b, Session* s, View topic) noexcept nogil:
    """Return whether the session may still read the topic of a delivery that was queued before the session was resumed. A
    plugin's verdict about another user is not valid for this user, and this place cannot wait for a new auth request."""
    cdef int verdict
    if s.queue.next + 1 == s.queue.tail:
        s.flags &= ~<uint32_t>SESSION_RECHECK
    verdict = plugin_gate_may_read(b, s, topic)
    return verdict == 1 or (verdict < 0 and not s.flags & SESSION_STRANGER)


cdef void release_unnamed(Broker* b, Session* s, Delivery* d) noexcept nogil:
    """Release a QoS 2 delivery whose topic has no name on this bridge any more. If the PUBLISH has arrived at the remote broker,
    it counts there under the name that it had."""
    drop(b, s, DROP_NO_NAME, d.message.topic)
    s.queue.waiting_bytes -= d.message.payload.n
    room_leave(&s.queue, d)
    message_unref(&b.messages, &b.reactor.buffers, d.message)
    d.message = NULL
    d.state = D_RELEASED
    pending_delivery_release(b, s, d, queue_position(&s.queue, d))


cdef bint send_next(Broker* b, Session* s, Client* c, Delivery* d, Publication* p) noexcept nogil:
    """Send the delivery at `next` for the first time in this connection. Returns 0 if the caller must try again later."""
    cdef Queue* q = &s.queue
    cdef Message* m = d.message
    cdef Publication single
    cdef int wrote
    # a QoS 2 delivery without a committed record was never sent [v5 4.3.3]
    cdef int dup = d.state == D_SENT or (m.flags & MESSAGE_AGAIN and d.qos & 3 == 1)
    cdef uint32_t sub_id = session_sub_id(s, d)
    cdef uint32_t flags
    cdef uint32_t n_sub_ids = 1 if sub_id else 0
    cdef int why = DROP_EXPIRED if not dup and is_expired(b, m.expires_ms) else -1
    if s.flags & SESSION_RECHECK and not may_read_again(b, s, m.topic):
        why = DROP_ACL_READ
    if why < 0 and c.flags & CF_BRIDGE and not bridge_choose_lines(c, q.next, q.floor, m.topic):
        if d.state == D_SENT and d.qos & 3 == 2:
            release_unnamed(b, s, d)
            return 1
        why = DROP_NO_NAME
    if why >= 0:
        q.next += 1
        q.waiting_bytes -= m.payload.n
        q.inflight_bytes += m.payload.n
        drop(b, s, why, m.topic)
        delivery_done(b, s, d, ACCOUNT_EXPIRED if why == DROP_EXPIRED else ACCOUNT_DROPPED)
        return 1
    flags = publish_flags(d.qos & 3, d.qos >> 7, dup, d.pid)
    if p != NULL and p.message == m:
        wrote = write_publish(b, c, p, flags, &sub_id, n_sub_ids)
    else:
        publication_of(&single, m)
        single.shaped = 0           # one client: an encoding for reuse would cost one more copy
        wrote = write_publish(b, c, &single, flags, &sub_id, n_sub_ids)
        publication_fini(b, &single)
    if c.flags & CF_BRIDGE:
        bridge_default_lines(c)
    if wrote == NO_ROOM:
        return 0
    q.next += 1
    q.waiting_bytes -= m.payload.n
    q.inflight_bytes += m.payload.n
    if wrote != WROTE:           # [v5 3.1.2-24, 3.1.2-25] treated as if it had been completed
        drop(b, s, write_fail_reason(wrote), m.topic)
        delivery_done(b, s, d, ACCOUNT_DROPPED)
    elif d.qos & 3:
        account_sent(b, s, d.state == D_SENT)
        d.state = D_SENT
        q.inflight += 1
    else:
        delivery_done(b, s, d, ACCOUNT_ACKNOWLEDGED)
    if s.flags & SESSION_DROPPING:
        s.flags &= ~<uint32_t>SESSION_DROPPING
    return 1


cdef inline void pump_waits(Broker* b, Session* s, const Publication* p) noexcept nogil:
    """Put a new delivery that is not sent at once into traces."""
    if p != NULL and log_wanted(&b.log, LOG_TRACE):
        trace_queued(b, s, p.topic, queue_at(&s.queue, s.queue.tail - 1).qos & 3)


cdef void pump(Broker* b, Session* s, Publication* p) noexcept nogil:
    cdef Queue* q = &s.queue
    cdef Client* c = session_client(s)
    cdef Delivery* d
    while q.next != q.tail:
        if c.conn.flags & (CONN_CLOSED | CONN_CLOSING):
            return
        if c.conn.out_bytes > HIGH_WATER_BYTES:
            c.conn.flags |= CONN_HUNGRY      # on_drained calls pump again
            pump_waits(b, s, p)
            return
        d = queue_at(q, q.next)
        if d.state == D_DONE:
            q.next += 1
        elif is_paged(d):
            pages_request(b, s)
            pump_waits(b, s, p)
            return               # until the storage thread has read it
        elif d.qos & 3 and not window_open(b, c, q):
            pump_waits(b, s, p)
            return
        elif d.qos & 3 == 2 and d.state == D_WAITING and not is_sendable(s, q.next):
            pump_waits(b, s, p)
            return               # until its record is committed
        elif d.state == D_RELEASED:
            q.next += 1
            q.inflight += 1
            ack_after_all(b, c, T_PUBREL, d.pid)
        elif not send_next(b, s, c, d, p):
            return


cdef void session_clear(Broker* b, Session* s, int drop_reason) noexcept nogil:
    cdef Queue* q = &s.queue
    cdef Delivery* d
    cdef uint32_t i
    if s.inbox.slots != NULL:
        for i in range(s.inbox.mask + 1):
            if s.inbox.slots[i].pid and s.inbox.slots[i].message != NULL:
                message_unref(&b.messages, &b.reactor.buffers, s.inbox.slots[i].message)
        inbox_fini(&s.inbox)
    while q.floor != q.tail:
        d = queue_at(q, q.floor)
        if d.state != D_DONE:
            q.pending -= 1
            account_left(b, s, d.qos, ACCOUNT_GONE)
        if d.message != NULL:
            if s.store_session_id:
                pending_delivery_done(b, s, delivery_message(d), q.floor)
            if 0 <= drop_reason < DROP_REASONS and d.state == D_WAITING:
                drop_unlogged(b, s, drop_reason, delivery_topic(d))
            delivery_release(&b.messages, &b.reactor.buffers, d)
        q.floor += 1
