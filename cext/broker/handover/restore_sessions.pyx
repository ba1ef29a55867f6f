"""Restore sessions: subscriptions, queues, inbound messages. This module knows the items that belong to a session, and what a recovery from the
store has made of it before.
"""

from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memcmp

from cext.base.view cimport View
from cext.base.wheel cimport wheel_remove
from cext.broker.core.access cimport origin_read, security_of_origin
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport TIMER_SESSION
from cext.broker.core.durable cimport durable_of, session_at
from cext.broker.handover.image cimport ImageCursor, ImageCursorPart, ImageDelivery, ImageFilter, ImageGated, ImageInbox, ImageSession, MOVED_SESSION_FLAGS, NO_USER_NAME, image_head, image_part
from cext.broker.handover.restoring cimport Restoring, message_known, message_numbered, refused
from cext.broker.lifecycle.session_lifecycle cimport session_watch
from cext.broker.replay.cursor cimport cursor_restore, cursor_restore_part, cursor_wanted
from cext.broker.replay.cursor_state cimport PLACE_TIME
from cext.broker.routing.plugin_gate cimport gated_at, plugin_gate_needs, plugin_gate_restore, session_plugin_gate
from cext.broker.routing.share cimport share_restored
from cext.journal.format cimport JOURNAL_SHARDS_MAX
from cext.session.message cimport MESSAGE_AGAIN, Message, message_unref
from cext.session.queue cimport (
    DELIVERY_RETAIN, DELIVERY_SHARED, D_DONE, D_RELEASED, D_WAITING, Delivery, InboundQos2, Queue, delivery_bytes, delivery_release,
    inbox_add, inbox_find, queue_at, queue_place, queue_restored,
)
from cext.session.session cimport (
    SESSION_BRIDGE, SESSION_WILL_STORED, Session, session_free, session_new, session_text, sessions_add, sessions_find, sessions_remove,
)
from cext.topic.index cimport index_add
from cext.topic.name cimport Filter, filter_parse

cdef enum:
    QUEUE_SPAN_RESTORED = 1 << 26       # positions of one queue, as in a recovery


cdef void stand_in_free(Broker* b, Session* s) noexcept nogil:
    """Free the session that a recovery made for the will of a connected client: the client is still there, with its will."""
    wheel_remove(&b.wheel, &s.timer)
    sessions_remove(&b.sessions, s)
    if s.will != NULL:
        message_unref(&b.messages, &b.reactor.buffers, s.will)
    session_free(&b.sessions, s)


cdef int session_names_arrive(Session* s, View user, bint has_user, View mount) noexcept nogil:
    if has_user:
        s.username = session_text(user)
    if mount.n:
        s.mount_point = session_text(mount)
    return -1 if (has_user and s.username == NULL) or (mount.n and s.mount_point == NULL) else 0


cdef int session_new_arrives(Restoring* l, View id, View user, View mount) noexcept nogil:
    """Make a session that the store does not have."""
    cdef ImageSession* r = &l.head
    cdef Session* s = sessions_find(&l.b.sessions, id)
    if s != NULL and (s.store_session_id or not s.flags & SESSION_WILL_STORED):
        return refused(l, "a session occurs twice")
    if s != NULL:
        stand_in_free(l.b, s)
    s = session_new(&l.b.sessions, id)
    if s == NULL:
        return refused(l, "no memory")
    s.timer.kind = TIMER_SESSION
    s.access_epoch = l.b.access_epoch - 1
    sessions_add(&l.b.sessions, s)
    l.session = s
    if session_names_arrive(s, user, r.user_n != NO_USER_NAME, mount) != 0:
        return refused(l, "no memory")
    s.origin = origin_read(l.b, r.origin)
    s.security = security_of_origin(l.b, s.origin)
    s.expiry_s = r.expiry_s
    s.ends_ms = r.ends_ms
    s.will = message_numbered(l, r.will)
    s.will_due_ms = r.will_due_ms
    return 0


cdef int session_arrives(Restoring* l, View body) noexcept nogil:
    cdef ImageSession* r = &l.head
    cdef View id, user, mount
    cdef Session* s
    if not image_head(&body, r, sizeof(ImageSession)) or not image_part(&body, r.id_n, &id):
        return refused(l, "a session is too short")
    if not image_part(&body, r.user_n if r.user_n != NO_USER_NAME else 0, &user) or not image_part(&body, r.mount_n, &mount) or body.n:
        return refused(l, "a session is too short")
    if r.tail - r.floor > QUEUE_SPAN_RESTORED or r.next - r.floor > r.tail - r.floor or not message_known(l, r.will) or r.user_n != NO_USER_NAME and r.user_n > 65535:
        return refused(l, "a session has an impossible value")
    if r.store_session_id:
        s = session_at(durable_of(l.b), r.store_session_id) if l.b.durable != NULL else NULL
        if s == NULL or s.id_len != id.n or memcmp(s.client_id, id.p, id.n) != 0 or r.will:
            return refused(l, "the store does not have one of the sessions")
        l.session = s
    elif session_new_arrives(l, id, user, mount) != 0:
        return -1
    s = l.session
    s.flags = s.flags & ~<uint32_t>MOVED_SESSION_FLAGS | r.flags & <uint32_t>MOVED_SESSION_FLAGS
    s.unsent = r.unsent
    s.inbox.turn = r.turn
    l.n_deliveries = 0
    l.place = s.queue.floor if s.queue.floor != s.queue.tail else r.floor
    return 0


cdef int filter_arrives(Restoring* l, View body) noexcept nogil:
    cdef ImageFilter r
    cdef Filter f
    if l.session == NULL or l.session.store_session_id or not image_head(&body, &r, sizeof(r)) or filter_parse(body.p, body.n, &f) != 0:
        return refused(l, "a subscription has an impossible value")
    if index_add(l.b.index, &l.session.owner, l.session, &f, r.options, r.sub_id) < 0:
        return refused(l, "no memory")
    return 0


cdef void deliveries_done(Restoring* l, uint32_t end) noexcept nogil:
    """Complete the recovered deliveries in [place, end): the process before had completed them."""
    cdef Queue* q = &l.session.queue
    cdef Delivery* d
    while l.place != end:
        if <int>(l.place - q.floor) >= 0 and <int>(l.place - q.tail) < 0:
            d = queue_at(q, l.place)
            if d.state != D_DONE:
                delivery_release(&l.b.messages, &l.b.reactor.buffers, d)
                d.state = D_DONE
        l.place += 1


cdef bint delivery_is_possible(const Restoring* l, const ImageDelivery* r) noexcept nogil:
    if r.position - l.head.floor >= l.head.tail - l.head.floor or <int>(r.position - l.place) < 0 or l.n_deliveries >= l.head.n_deliveries:
        return 0
    if r.state > D_RELEASED or r.qos & ~<uint8_t>(DELIVERY_RETAIN | DELIVERY_SHARED | 3) or r.qos & 3 == 3 or not message_known(l, r.message):
        return 0
    if r.state == D_RELEASED:
        return r.qos & 3 == 2 and r.message == 0
    if r.qos & 3 == 0 and r.state != D_WAITING:
        return 0
    return r.message != 0 or l.session.store_session_id != 0


cdef int delivery_arrives(Restoring* l, View body) noexcept nogil:
    cdef ImageDelivery r
    cdef Delivery* d
    if l.session == NULL or not image_head(&body, &r, sizeof(r)) or body.n or not delivery_is_possible(l, &r):
        return refused(l, "a delivery has an impossible value")
    deliveries_done(l, r.position)
    d = queue_place(&l.session.queue, r.position)
    if d == NULL:
        return refused(l, "no memory")
    l.place = r.position + 1
    l.n_deliveries += 1
    if l.session.store_session_id and r.message == 0 and (d.state != D_DONE or r.state != D_RELEASED):
        if d.state == D_DONE or d.pid != r.pid or (d.state == D_RELEASED) != (r.state == D_RELEASED):
            return refused(l, "the store does not have one of the deliveries")
        d.state = r.state
        return 0
    if d.state != D_DONE:
        return refused(l, "a delivery occurs twice")
    d.message = message_numbered(l, r.message)
    d.sub_id = r.sub_id
    d.pid = r.pid
    d.qos = r.qos
    d.state = r.state
    return 0


cdef int inbox_arrives(Restoring* l, View body) noexcept nogil:
    cdef ImageInbox r
    cdef InboundQos2* held
    if l.session == NULL or not image_head(&body, &r, sizeof(r)) or body.n or r.pid == 0 or not message_known(l, r.message):
        return refused(l, "an inbound message has an impossible value")
    held = inbox_find(&l.session.inbox, r.pid)
    if l.session.store_session_id:
        if held == NULL or r.message:
            return refused(l, "the store does not have one of the inbound messages")
        if held.message != NULL:
            held.message.flags = held.message.flags & ~<uint8_t>MESSAGE_AGAIN | r.flags & <uint8_t>MESSAGE_AGAIN
    elif held != NULL or inbox_add(&l.session.inbox, r.pid, message_numbered(l, r.message)) != 0:
        return refused(l, "an inbound message occurs twice")
    held = inbox_find(&l.session.inbox, r.pid)
    held.turn = r.turn
    held.copies_turn = r.copies_turn
    held.copies = r.copies
    return 0


cdef int cursor_arrives(Restoring* l, View body) noexcept nogil:
    cdef ImageCursor r
    cdef Filter f
    if l.session == NULL or not image_head(&body, &r, sizeof(r)) or filter_parse(body.p, body.n, &f) != 0 or (
            r.where.place > PLACE_TIME or r.where.shard >= JOURNAL_SHARDS_MAX):
        return refused(l, "a subscription to a stream has an impossible value")
    if cursor_wanted(l.b, f.filter):
        cursor_restore(l.b, l.session, &f, r.options, r.sub_id, &r.where)
    return 0


cdef int cursor_part_arrives(Restoring* l, View body) noexcept nogil:
    cdef ImageCursorPart r
    if l.session == NULL or not image_head(&body, &r, sizeof(r)) or r.where.place > PLACE_TIME or r.where.shard >= JOURNAL_SHARDS_MAX:
        return refused(l, "a subscription to a stream has an impossible value")
    cursor_restore_part(l.b, l.session, body, r.number, &r.where)
    return 0


cdef int gated_arrives(Restoring* l, View body) noexcept nogil:
    """Put a delivery into the plugin gate, unless the store had it there. Its plugins are asked again when the loop begins."""
    cdef ImageGated r
    cdef Message* m
    if l.session == NULL or not image_head(&body, &r, sizeof(r)) or body.n or r.message == 0 or not message_known(l, r.message) or r.qos > 2 or r.retain > 1:
        return refused(l, "a delivery that waits for a plugin has an impossible value")
    if plugin_gate_needs(l.session, r.position):
        m = gated_at(session_plugin_gate(l.session), r.position).message
        m.flags = m.flags & ~<uint8_t>MESSAGE_AGAIN | l.messages[r.message - 1].flags & <uint8_t>MESSAGE_AGAIN     # it was not sent
        return 0
    if plugin_gate_restore(l.b, l.session, r.position, l.messages[r.message - 1], r.qos, r.retain, r.sub_id) != 0:
        return refused(l, "a delivery that waits for a plugin has an impossible position, or memory is missing")
    return 0


cdef int queue_complete(Restoring* l) noexcept nogil:
    """Set the progress of the session's queue. Deliveries before `next` are in flight if the client is connected."""
    cdef Session* s = l.session
    cdef Queue* q = &s.queue
    cdef Delivery* d
    if q.floor != q.tail:
        deliveries_done(l, q.tail)
    if l.head.floor == l.head.tail:
        q.floor = q.next = q.tail = l.head.tail
    elif queue_place(q, l.head.floor) == NULL or queue_place(q, l.head.tail - 1) == NULL:
        return refused(l, "no memory")
    queue_restored(q)
    if s.client != NULL and <int>(l.head.next - q.floor) > 0:
        while q.next != l.head.next:
            d = queue_at(q, q.next)
            if d.state == D_WAITING:
                return refused(l, "a delivery has an impossible value")
            if d.state != D_DONE:
                q.inflight += 1
                q.waiting_bytes -= delivery_bytes(d)
                q.inflight_bytes += delivery_bytes(d)
            q.next += 1
    q.last_pid = l.head.last_pid
    s.logged = s.safe = s.paged = q.tail
    return 0


cdef int session_complete(Restoring* l) noexcept nogil:
    """Complete the session whose items have all arrived."""
    cdef Session* s = l.session
    if s == NULL:
        return 0
    if l.n_deliveries != l.head.n_deliveries or l.head.inherited > s.inbox.n:
        return refused(l, "a session is not complete")
    if queue_complete(l) != 0:
        return -1
    s.inbox.inherited = l.head.inherited
    if s.store_session_id == 0:
        share_restored(l.b, s)
        if s.client == NULL:
            if s.flags & SESSION_BRIDGE:
                s.ends_ms = 1        # unless its bridge takes it, as after a recovery
            session_watch(l.b, s)
    l.session = NULL
    l.client = NULL
    l.counts.sessions += 1
    return 0
