"""Write the state of a quiet broker into a memory file. This module knows what a session and a connection consist of. It does not know
the reader of the file.

With a store, what the store has is not written again: the new process reads it from the disk. A session is in the file if its client is
connected, if the store does not have it, if its queue has QoS 0 deliveries, if it reads a stream, or if a delivery waits for a plugin. Each delivery names its message in the file, or refers to
the record in the store. The state of a broker does not change here.
Cost: one copy of all messages without a record, and about 0.2 us for each session, subscription and delivery.
"""

from libc.errno cimport ENOMEM
from libc.stdint cimport uint8_t, uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy, memset, strlen

from cext.base.slab cimport slab_at, slab_end
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport Client
from cext.broker.core.handover_state cimport Handover, MOVES
from cext.broker.core.session_refs cimport session_client
from cext.broker.handover.image cimport (
    ITEM_BROKER, ITEM_CURSOR, ITEM_CURSOR_PART, ITEM_DELIVERY, ITEM_END, ITEM_FILTER, ITEM_GATED, ITEM_INBOX, ITEM_MESSAGE, ITEM_RETAINED, ITEM_SESSION, ITEM_SOURCE,
    ImageBroker, ImageCursor, ImageCursorPart, ImageDelivery, ImageFilter, ImageGated, ImageInbox, ImageMessage, ImageRetained, ImageSession, ImageSource, MOVED_SESSION_FLAGS, NO_USER_NAME, image_begin,
    image_end,
)
from cext.broker.handover.save_clients cimport client_left_save, client_save, client_stays, connection_stays, secrets_save
from cext.broker.handover.saving cimport Saving, bytes_put, part_put, struct_put
from cext.broker.replay.cursor cimport cursor_next
from cext.broker.replay.cursor_state cimport Cursor
from cext.broker.routing.plugin_gate cimport GATED_DROPPED, GatedDelivery, PluginGate, gated_at, plugin_gate_waiting, session_plugin_gate
from cext.broker.routing.retain cimport message_in, publisher_record_of
from cext.session.message cimport Message
from cext.session.queue cimport D_DONE, D_RELEASED, Delivery, InboundQos2, is_paged, queue_at
from cext.session.record cimport RecordFrom
from cext.session.session cimport Session, session_sub_id, sessions_first, sessions_next
from cext.topic.index cimport SUBSCRIPTION_TEXT_BYTES, Subscription, subscription_read
from cext.topic.retained cimport retained_visit


# ---------------------------------------------------------------- messages

cdef uint32_t message_saved(Saving* v, const Message* m) noexcept nogil:
    """Return the number of a message, which is written when it is first needed; 0 = none."""
    cdef ImageMessage r
    cdef uint8_t* out
    cdef uint64_t at
    if m == NULL:
        return 0
    at = (<uintptr_t>m >> 4) * <uint64_t>0x9E3779B97F4A7C15 >> 20 & v.mask
    while v.seen[at] != NULL:
        if v.seen[at] == m:
            return v.numbers[at]
        at = (at + 1) & v.mask
    memset(&r, 0, sizeof(r))
    r.qos = m.qos
    r.retain = m.retain
    r.flags = m.flags
    r.topic_n = m.topic.n
    r.props_n = m.props.n
    r.payload_n = m.payload.n
    r.expires_ms = m.expires_ms
    r.source_hash = m.source_hash
    r.arrived_ms = m.arrived_ms
    out = <uint8_t*>struct_put(v, ITEM_MESSAGE, sizeof(r), <uint64_t>m.topic.n + m.props.n + m.payload.n)
    if out == NULL:
        return 0
    out = bytes_put(out, &r, sizeof(r))
    out = bytes_put(out, m.topic.p, m.topic.n)
    out = bytes_put(out, m.props.p, m.props.n)
    bytes_put(out, m.payload.p, m.payload.n)
    v.n_messages += 1
    v.seen[at] = m
    v.numbers[at] = v.n_messages
    return v.n_messages


# ---------------------------------------------------------------- sessions

cdef inline bint is_in_store(const Session* s, const Delivery* d) noexcept nogil:
    """Messages without durability, such as the records of a stream, are in no store."""
    return s.store_session_id != 0 and d.qos & 3 and (d.message == NULL or is_paged(d) or d.message.lsn != 0)


cdef uint32_t deliveries_of(const Session* s, bint* all_stored) noexcept nogil:
    """Count the deliveries that are not done."""
    cdef uint32_t i = s.queue.floor, n = 0
    cdef Delivery* d
    all_stored[0] = 1
    while i != s.queue.tail:
        d = queue_at(&(<Session*>s).queue, i)
        if d.state != D_DONE:
            n += 1
            all_stored[0] = all_stored[0] and is_in_store(s, d)
        i += 1
    return n


cdef void filters_save(Saving* v, Session* s) noexcept nogil:
    cdef uint8_t text[SUBSCRIPTION_TEXT_BYTES]
    cdef ImageFilter r
    cdef Subscription* sub = s.owner.head
    cdef uint32_t n
    cdef uint8_t* out
    while sub != NULL:
        memset(&r, 0, sizeof(r))
        sub = subscription_read(sub, text, &n, &r.options, &r.sub_id)
        out = <uint8_t*>struct_put(v, ITEM_FILTER, sizeof(r), n)
        if out != NULL:
            bytes_put(bytes_put(out, &r, sizeof(r)), text, n)


cdef void queue_save(Saving* v, Session* s) noexcept nogil:
    cdef ImageDelivery r
    cdef Delivery* d
    cdef uint8_t* out
    cdef uint32_t i = s.queue.floor
    while i != s.queue.tail:
        d = queue_at(&s.queue, i)
        if d.state != D_DONE:
            memset(&r, 0, sizeof(r))
            r.position = i
            r.sub_id = session_sub_id(s, d)
            r.message = 0 if is_in_store(s, d) or d.state == D_RELEASED else message_saved(v, d.message)
            r.pid = d.pid
            r.qos = d.qos
            r.state = d.state
            out = <uint8_t*>struct_put(v, ITEM_DELIVERY, sizeof(r), 0)
            if out != NULL:
                bytes_put(out, &r, sizeof(r))
        i += 1


cdef void inbox_save(Saving* v, Session* s) noexcept nogil:
    cdef ImageInbox r
    cdef InboundQos2* held
    cdef uint8_t* out
    cdef uint32_t i
    for i in range(s.inbox.mask + 1 if s.inbox.slots != NULL else 0):
        held = &s.inbox.slots[i]
        if held.pid == 0:
            continue
        memset(&r, 0, sizeof(r))
        r.message = 0 if s.store_session_id else message_saved(v, held.message)
        r.pid = held.pid
        r.turn = held.turn
        r.copies_turn = held.copies_turn
        r.copies = held.copies
        r.flags = held.message.flags if held.message != NULL else 0
        out = <uint8_t*>struct_put(v, ITEM_INBOX, sizeof(r), 0)
        if out != NULL:
            bytes_put(out, &r, sizeof(r))


cdef void cursors_save(Saving* v, Session* s) noexcept nogil:
    cdef ImageCursor r
    cdef uint8_t* out
    cdef Cursor* c = cursor_next(v.b, s, NULL)
    cdef uint32_t i
    while c != NULL:
        memset(&r, 0, sizeof(r))
        r.where = c.read_request.parts[0].where
        r.sub_id = c.sub_id
        r.options = c.options
        out = <uint8_t*>struct_put(v, ITEM_CURSOR, sizeof(r), c.filter.n)
        if out != NULL:
            part_put(bytes_put(out, &r, sizeof(r)), c.filter)
        for i in range(1, c.stream.n_parts):
            cursor_part_save(v, c, i)
        c = cursor_next(v.b, s, c)


cdef void cursor_part_save(Saving* v, const Cursor* c, uint32_t part) noexcept nogil:
    cdef ImageCursorPart r
    cdef uint8_t* out = <uint8_t*>struct_put(v, ITEM_CURSOR_PART, sizeof(r), c.filter.n)
    memset(&r, 0, sizeof(r))
    r.where = c.read_request.parts[part].where
    r.number = c.stream.parts[part].number
    if out != NULL:
        part_put(bytes_put(out, &r, sizeof(r)), c.filter)


cdef void gated_save(Saving* v, Session* s) noexcept nogil:
    cdef PluginGate* g = session_plugin_gate(s)
    cdef GatedDelivery* h
    cdef ImageGated r
    cdef uint8_t* out
    cdef uint32_t i
    for i in range(plugin_gate_waiting(s)):
        h = gated_at(g, g.head + i)
        if h.state == GATED_DROPPED:
            continue
        memset(&r, 0, sizeof(r))
        r.position = g.head + i
        r.sub_id = h.sub_id
        r.message = message_saved(v, h.message)
        r.qos = h.qos
        r.retain = h.retain
        out = <uint8_t*>struct_put(v, ITEM_GATED, sizeof(r), 0)
        if out != NULL:
            bytes_put(out, &r, sizeof(r))


cdef void session_head_save(Saving* v, Session* s, uint32_t n_deliveries) noexcept nogil:
    cdef ImageSession r
    cdef uint32_t user_n = <uint32_t>strlen(s.username) if s.username != NULL else 0
    cdef uint32_t mount_n = <uint32_t>strlen(s.mount_point) if s.mount_point != NULL else 0
    cdef uint8_t* out
    memset(&r, 0, sizeof(r))
    r.will = 0 if s.store_session_id else message_saved(v, s.will)
    r.store_session_id = s.store_session_id
    r.flags = s.flags & MOVED_SESSION_FLAGS
    r.origin = s.origin
    r.expiry_s = s.expiry_s
    r.floor = s.queue.floor
    r.next = s.queue.next
    r.tail = s.queue.tail
    r.unsent = s.unsent
    r.n_deliveries = n_deliveries
    r.user_n = user_n if s.username != NULL else <uint32_t>NO_USER_NAME
    r.inherited = s.inbox.inherited
    r.ends_ms = s.ends_ms
    r.will_due_ms = s.will_due_ms
    r.id_n = s.id_len
    r.mount_n = <unsigned short>mount_n
    r.last_pid = s.queue.last_pid
    r.turn = s.inbox.turn
    out = <uint8_t*>struct_put(v, ITEM_SESSION, sizeof(r), <uint64_t>s.id_len + user_n + mount_n)
    if out != NULL:
        out = bytes_put(out, &r, sizeof(r))
        out = bytes_put(out, s.client_id, s.id_len)
        out = bytes_put(out, s.username, user_n)
        bytes_put(out, s.mount_point, mount_n)


cdef void session_save(Saving* v, Session* s) noexcept nogil:
    cdef bint all_stored
    cdef uint32_t n = deliveries_of(s, &all_stored)
    cdef Client* c = session_client(s)
    if s.store_session_id and c == NULL and all_stored and cursor_next(v.b, s, NULL) == NULL and plugin_gate_waiting(s) == 0:
        return
    session_head_save(v, s, n)
    if s.store_session_id == 0:
        filters_save(v, s)
    queue_save(v, s)
    inbox_save(v, s)
    cursors_save(v, s)
    gated_save(v, s)
    v.h.counts.sessions += 1
    if c != NULL and connection_stays(c) == MOVES:
        client_save(v, c)
    elif c != NULL:
        client_left_save(v, c)


# ---------------------------------------------------------------- the whole broker

cdef void retained_save(void* ctx, void* value) noexcept nogil:
    cdef Saving* v = <Saving*>ctx
    cdef Message* m = message_in(value)
    cdef ImageRetained r
    cdef ImageSource source
    cdef RecordFrom publisher
    cdef uint8_t* out
    if m.topic.n >= 5 and memcmp(m.topic.p, <const uint8_t*>"$SYS/", 5) == 0:
        return                   # each process publishes those again
    memset(&r, 0, sizeof(r))
    r.message = message_saved(v, m)
    out = <uint8_t*>struct_put(v, ITEM_RETAINED, sizeof(r), 0)
    if out != NULL:
        bytes_put(out, &r, sizeof(r))
    if not publisher_record_of(v.b, m.topic, &publisher):
        return
    memset(&source, 0, sizeof(source))
    source.origin = publisher.security
    source.id_n = publisher.id.n
    source.user_n = publisher.user.n
    out = <uint8_t*>struct_put(v, ITEM_SOURCE, sizeof(source), <uint64_t>source.id_n + source.user_n)
    if out != NULL:
        out = part_put(bytes_put(out, &source, sizeof(source)), publisher.id)
        part_put(out, publisher.user)


cdef void broker_save(Saving* v) noexcept nogil:
    cdef ImageBroker r
    cdef Client* c
    cdef uint32_t i
    cdef uint8_t* out
    memset(&r, 0, sizeof(r))
    r.names_key = v.b.names_key
    r.stored = v.b.durable != NULL
    if r.stored:
        memcpy(r.store_id, v.h.store_id, sizeof(r.store_id))
    for i in range(slab_end(&v.b.clients)):
        c = <Client*>slab_at(&v.b.clients, i)
        if c != NULL and client_stays(c):
            v.h.counts.closed += 1
            v.h.counts.reasons[connection_stays(c)] += 1
        elif c != NULL:
            r.n_clients += connection_stays(c) == MOVES
    r.frozen_us = v.h.begun_us
    r.totals = v.b.handovers
    r.closed = v.h.counts.closed
    out = <uint8_t*>struct_put(v, ITEM_BROKER, sizeof(r), 0)
    if out != NULL:
        bytes_put(out, &r, sizeof(r))


cdef void all_saved(Saving* v) noexcept nogil:
    cdef uint64_t at = 0
    cdef uint32_t i
    cdef Session* s
    cdef Client* c
    broker_save(v)
    secrets_save(v)
    for i in range(slab_end(&v.b.clients)):          # before any session: an item belongs to the session before it
        c = <Client*>slab_at(&v.b.clients, i)
        if c != NULL and c.session == NULL and connection_stays(c) == MOVES:
            client_save(v, c)
    s = sessions_first(&v.b.sessions, &at)
    while s != NULL:
        session_save(v, s)
        s = sessions_next(&v.b.sessions, s, &at)
    if v.b.durable == NULL:
        retained_visit(v.b.retained, retained_save, v)
    struct_put(v, ITEM_END, 0, 0)


cdef int state_save(Broker* b, Handover* h) noexcept nogil:
    cdef Saving v
    cdef uint64_t room = 1024
    memset(&v, 0, sizeof(v))
    v.b = b
    v.h = h
    h.state_fd = -1
    while room < b.messages.count * 2:
        room *= 2
    v.mask = room - 1
    v.seen = <const Message**>calloc(room, sizeof(Message*))
    v.numbers = <uint32_t*>calloc(room, sizeof(uint32_t))
    if image_begin(&v.w) == 0:
        if v.seen == NULL or v.numbers == NULL:
            v.w.error = ENOMEM
        else:
            all_saved(&v)
    h.counts.messages = v.n_messages
    h.counts.bytes = v.w.n
    h.state_fd = image_end(&v.w)
    free(v.seen)
    free(v.numbers)
    return v.w.error
