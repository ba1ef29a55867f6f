"""The limits of a session's queue, and the policies above them: drop the newest or the oldest delivery, or keep last values. This
module knows queues and their limits. It does not know sockets.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp

from cext.base.view cimport View
from cext.broker.auth.bridge cimport bridge_settled
from cext.broker.core.bounds cimport LAST_VALUES_MAX, QUEUE_SPAN_MAX
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport Client
from cext.broker.core.durable cimport durable_lacks_memory
from cext.broker.core.publication_state cimport Publication
from cext.broker.core.session_refs cimport session_client
from cext.broker.core.settings cimport DURABILITY_NONE, OVERFLOW_NEWEST
from cext.broker.core.stats cimport DROP_QUEUE_BYTES, DROP_QUEUE_MESSAGES, DROP_REPLACED
from cext.broker.persist.accounts cimport ACCOUNT_DROPPED, account_left, account_refused
from cext.broker.persist.persist cimport (
    pending_delivery_done, pending_delivery_record, pending_delivery_wait,
)
from cext.broker.persist.publication cimport drop, dropped
from cext.session.message cimport MESSAGE_SPREAD, Message, message_unref
from cext.session.queue cimport (
    D_DONE, D_WAITING, Delivery, Queue, delivery_bytes, delivery_message, delivery_release, delivery_topic, is_paged,
    queue_at, queue_done, queue_position, queue_waiting, room_leave, room_take,
)
from cext.session.session cimport SESSION_BRIDGE, Session


cdef bint queue_bytes_full(Broker* b, Session* s) noexcept nogil:
    """Return whether max_queued_bytes is reached. As in Mosquitto it counts payloads beyond the inflight window, and
    max_inflight_bytes is added while the client is connected. An offline session has nothing in flight. Deliveries that are in the
    window and wait for the socket count as in flight; they have the mean size of those that wait."""
    cdef Queue* q = &s.queue
    cdef Client* c = session_client(s)
    cdef uint64_t most = b.settings.max_queued_bytes
    cdef uint64_t bytes = q.waiting_bytes
    cdef uint32_t waiting = queue_waiting(q)
    cdef uint32_t room
    if most == 0:
        return 0
    if c != NULL:
        most += b.settings.max_inflight_bytes
        room = c.window - q.inflight if c.window > q.inflight else 0
        if waiting <= room:
            return b.settings.max_inflight_bytes != 0 and bytes >= most
        bytes -= bytes // waiting * room
    return bytes >= most


cdef bint queue_has_room(Broker* b, Session* s, const Publication* p, int* why) noexcept nogil:
    """Return whether the queue has room for one more delivery. max_queued_messages and max_queued_bytes limit the deliveries that
    wait beyond the inflight window."""
    cdef Queue* q = &s.queue
    cdef Client* c = session_client(s)
    cdef uint64_t count = b.settings.max_queued_messages
    if count:
        if c != NULL:
            count += c.window
        if q.pending >= count:
            why[0] = DROP_QUEUE_MESSAGES
            return 0
    if queue_bytes_full(b, s):
        why[0] = DROP_QUEUE_BYTES
        return 0
    return 1


cdef void skip_done(Queue* q) noexcept nogil:
    """Move `next` and `floor` over deliveries that are done, so that these do not wait for their turn."""
    while q.next != q.tail and queue_at(q, q.next).state == D_DONE:
        q.next += 1
    while q.floor != q.next and queue_at(q, q.floor).state == D_DONE:
        q.floor += 1


cdef void unsent_done(Broker* b, Session* s, Delivery* d, int reason) noexcept nogil:
    drop(b, s, reason, delivery_topic(d))
    account_left(b, s, d.qos, ACCOUNT_DROPPED)
    if s.store_session_id:
        pending_delivery_done(b, s, delivery_message(d), queue_position(&s.queue, d))
    s.queue.waiting_bytes -= delivery_bytes(d)
    room_leave(&s.queue, d)
    delivery_release(&b.messages, &b.reactor.buffers, d)
    queue_done(&s.queue, d)
    skip_done(&s.queue)


cdef bint drop_oldest(Broker* b, Session* s, int reason) noexcept nogil:
    """Drop the oldest delivery that was never sent. Returns 0 if there is none."""
    cdef Queue* q = &s.queue
    cdef uint32_t i = q.next
    cdef Delivery* d
    if q.tail - q.floor >= QUEUE_SPAN_MAX:
        return 0                 # a delivery that was sent long ago is still unacknowledged
    while i != q.tail:
        d = queue_at(q, i)
        if d.state == D_WAITING:
            unsent_done(b, s, d, reason)
            return 1
        i += 1
    return 0


cdef bint make_room(Broker* b, Session* s, const Publication* p, uint8_t qos) noexcept nogil:
    cdef int why = 0
    while not queue_has_room(b, s, p, &why):
        if b.settings.overflow == OVERFLOW_NEWEST or not drop_oldest(b, s, why):
            drop(b, s, why, p.topic)
            account_refused(b, s, qos, ACCOUNT_DROPPED)
            return 0
    return 1


cdef int record_delivery(Broker* b, Session* s, Message* m, Delivery* d, const Publication* p) noexcept nogil:
    if p.durability == DURABILITY_NONE:
        # The message may have a record, because it is retained or is queued for another session. That record lacks this delivery.
        m.flags |= MESSAGE_SPREAD
        return pending_delivery_wait(b, s, d)
    return pending_delivery_record(b, s, m, d, queue_position(&s.queue, d))


cdef inline bint has_topic(const Delivery* d, View topic) noexcept nogil:
    return not is_paged(d) and d.message.topic.n == topic.n and memcmp(d.message.topic.p, topic.p, topic.n) == 0


cdef bint replace_older(Broker* b, Session* s, Message* m, Publication* p, uint8_t qos, uint32_t sub_id) noexcept nogil:
    cdef Queue* q = &s.queue
    cdef uint32_t i = q.tail
    cdef uint32_t end = bridge_settled(b, s) if s.flags & SESSION_BRIDGE else q.next
    cdef uint32_t looked = 0
    cdef Delivery* d
    while i != end and looked < LAST_VALUES_MAX:
        i -= 1
        looked += 1
        d = queue_at(q, i)
        if d.state == D_WAITING and (d.qos & 3 != 0) == (qos & 3 != 0) and has_topic(d, m.topic):
            dropped(b, s, DROP_REPLACED, m.topic)
            account_refused(b, s, qos, ACCOUNT_DROPPED)      # one dropped for one queued
            q.waiting_bytes += m.payload.n
            q.waiting_bytes -= d.message.payload.n
            room_take(q, m)
            room_leave(q, d)
            if s.store_session_id and <int>(i - s.logged) >= 0:
                pending_delivery_done(b, s, d.message, i)    # its record, if any, is replaced
            message_unref(&b.messages, &b.reactor.buffers, d.message)
            d.message = m
            d.qos = qos
            d.sub_id = sub_id
            # A record at the same position replaces the older one.
            if s.store_session_id and record_delivery(b, s, m, d, p) != 0:
                if p.patient:
                    p.lacks = 1
                else:
                    durable_lacks_memory(b)
            b.work += looked // 8
            return 1
    b.work += looked // 8
    return 0
