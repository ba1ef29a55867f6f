"""Record changes as they happen. This module knows sessions, messages and the bodies of their records. It does not know when records are written,
or which clients wait for that.

    a message with durable subscribers -> Pending: one per message and batch, with its deliveries
        acknowledged by all of them while its batch is open -> no record, and the publisher is acknowledged at once (elided)
        else, when the batch is sealed -> RECORD_MSG
    a delivery that waits in a plugin gate -> PendingGated; if it still waits when the batch is sealed -> RECORD_GATED
    an acknowledgement of a recorded message -> StoredAck -> RECORD_ACKS
    sessions, subscriptions, wills, inbound QoS 2, PUBRECs, removed retained messages -> their record, at once, into the open batch

Invariant: positions of a session below `logged` are in sealed batches; later positions are in the open batch or not recorded.
Cost: about 20 ns for an elided QoS 1 message. No allocation, except for arrays that grow to their largest size.
"""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport realloc
from libc.string cimport memcpy, memset, strlen

from cext.base.clock cimport clock_wall_ms
from cext.base.slab cimport slab_get
from cext.base.view cimport View
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport Client, Will
from cext.broker.core.durable cimport StoredAck, Durable, PENDING, Pending, PendingDelivery, PendingGated, batch_changed, batch_opened, durable_lacks_memory, durable_is_stuck, durable_of
from cext.broker.persist.accounts cimport account_begin
from cext.broker.persist.pending_acks cimport pending_acks_release, waiter_add
from cext.session.message cimport (
    MESSAGE_AGAIN, MESSAGE_JOURNALLED, MESSAGE_LOCAL_DONE, MESSAGE_RETAINED, Message, RECORD_ROOM, message_bytes, message_ref,
)
from cext.session.queue cimport Delivery
from cext.session.record cimport (
    RECORD_AGAIN, RECORD_CLIENT_WILL, RECORD_CLIENT_WILL_GONE, RECORD_CONNECTED, RECORD_END, RECORD_END_BYTES, RECORD_ENTRY_RETAIN, RECORD_INBOX,
    RECORD_INBOX_DONE, RECORD_INBOX_DONE_BYTES, RECORD_HAS_ORIGIN, RECORD_LINK, RECORD_LINK_WILL, RECORD_RELEASED, RECORD_RELEASED_BYTES,
    RECORD_RETAIN, RECORD_RETAINED_GONE, RECORD_SESSION, RECORD_SUB, RECORD_UNSUB, RECORD_WILL, RECORD_WILL_GONE, RecordAck,
    RECORD_WAITING_WILL, RECORD_WAITING_WILL_GONE, RECORD_WAITING_WILL_GONE_BYTES,
    RecordClientWill, RecordInbox, RecordMessage, RecordPublisher, RecordSession, RecordSub, RecordWaitingWill, RecordWill, record_client_will_put,
    record_client_will_size, record_end_put, record_inbox_done_put, record_inbox_put, record_inbox_size, record_publisher_put, record_publisher_size, record_released_put,
    record_session_put, record_session_size, record_sub_put, record_sub_size, record_unsub_put, record_unsub_size,
    record_waiting_will_gone_put, record_waiting_will_put, record_waiting_will_size, record_will_put, record_will_size,
)
from cext.session.session cimport (
    SESSION_BRIDGE, SESSION_ENDED, SESSION_ORIGIN_UNKNOWN, SESSION_WAITS, SESSION_WILL_STORED, Session, session_sub_id,
)
from cext.store.store cimport store_append, store_record_bytes, store_reserve

cdef enum:
    MANY = 256                   # first size of an array
    MORE = 0x100000000u          # unit of the upper half of Durable.changes
    FEW = 8                      # records that persist_reserve allows for


# ---------------------------------------------------------------- the open batch

cdef uint8_t* record(Broker* b, int kind, uint64_t n) noexcept nogil:
    cdef uint64_t lsn
    return record_room(b, kind, n, &lsn)


cdef bint persist_reserve(Broker* b, const Session* s, uint64_t bytes) noexcept nogil:
    cdef Durable* t = durable_of(b)
    if t == NULL or t.loading or (s != NULL and s.store_session_id == 0) or store_reserve(&t.store, bytes + FEW * store_record_bytes(3)):
        return 1
    durable_lacks_memory(b)
    return 0


cdef uint8_t* record_room(Broker* b, int kind, uint64_t n, uint64_t* lsn) noexcept nogil:
    """Make room for a body in the open batch. NULL: no memory; the client that caused the record gets no acknowledgement."""
    cdef Durable* t = durable_of(b)
    cdef uint8_t* out
    if t.counting:
        t.counted += store_record_bytes(<uint32_t>n)
        return NULL
    batch_changed(t, n)
    t.changes += MORE
    out = store_append(&t.store, <uint8_t>kind, 0, <uint32_t>n, lsn) if n <= 0x7FFFFFFF else NULL
    if out == NULL:
        t.lacks = t.changes
    return out


cdef void* array_grown(void* array, uint32_t* cap, uint32_t item_bytes) noexcept nogil:
    """Return a larger array; NULL without memory, and the array is unchanged."""
    cdef uint32_t more = cap[0] * 2 if cap[0] else MANY
    cdef void* out = realloc(array, <size_t>more * item_bytes)
    if out != NULL:
        cap[0] = more
    return out


cdef uint64_t wall_of(Broker* b, uint64_t monotonic_ms) noexcept nogil:
    """Return the wall clock time of a monotonic time. 0 (never) stays 0."""
    cdef uint64_t now = clock_wall_ms()
    if monotonic_ms == 0:
        return 0
    if monotonic_ms >= b.reactor.now_ms:
        return now + (monotonic_ms - b.reactor.now_ms)
    return now - (b.reactor.now_ms - monotonic_ms)


cdef void message_recorded(Broker* b, const Message* m, RecordMessage* out) noexcept nogil:
    out.flags = m.qos | (RECORD_RETAIN if m.retain else 0) | (RECORD_AGAIN if m.flags & MESSAGE_AGAIN else 0)
    out.expires_wall_ms = wall_of(b, m.expires_ms) if m.expires_ms else 0
    out.source_hash = 0          # each process has another key
    out.topic = m.topic
    out.props = m.props
    out.payload = m.payload


# ---------------------------------------------------------------- numbers of sessions

cdef bint store_session_id_reserve(Broker* b) noexcept nogil:
    """Make room for one more session, also for the return of its id."""
    cdef Durable* t = durable_of(b)
    cdef Session** sessions_by_store_id
    cdef uint32_t* free_store_ids
    if t == NULL:
        return 1
    if t.n_free <= t.n_freed and t.n_store_ids + 1 >= t.cap_store_ids:
        sessions_by_store_id = <Session**>array_grown(t.sessions_by_store_id, &t.cap_store_ids, sizeof(Session*))
        if sessions_by_store_id == NULL:
            return 0
        t.sessions_by_store_id = sessions_by_store_id
    if t.cap_free < t.cap_store_ids:
        free_store_ids = <uint32_t*>realloc(t.free_store_ids, <size_t>t.cap_store_ids * sizeof(uint32_t))
        if free_store_ids == NULL:
            return 0
        t.free_store_ids = free_store_ids
        t.cap_free = t.cap_store_ids
    return 1


cdef int store_session_id_take(Broker* b, Session* s) noexcept nogil:
    """Give the session a store session id. -1: no memory. Freed ids are used again, but not in the batch in which they were freed."""
    cdef Durable* t = durable_of(b)
    if not store_session_id_reserve(b):
        durable_lacks_memory(b)
        return -1
    if t.n_free > t.n_freed:
        t.n_free -= 1
        s.store_session_id = t.free_store_ids[t.n_free - t.n_freed]
        t.free_store_ids[t.n_free - t.n_freed] = t.free_store_ids[t.n_free]
    else:
        if t.n_store_ids == 0:
            t.sessions_by_store_id[0] = NULL   # 0 is no session
            t.n_store_ids = 1
        s.store_session_id = t.n_store_ids
        t.n_store_ids += 1
    t.sessions_by_store_id[s.store_session_id] = s
    s.logged = s.safe = s.queue.tail
    if b.accounts != NULL:
        account_begin(b, s)
    return 0


cdef void number_give(Durable* t, uint32_t store_session_id) noexcept nogil:
    t.sessions_by_store_id[store_session_id & ~<uint32_t>END_NOT_RECORDED] = NULL
    t.free_store_ids[t.n_free] = store_session_id
    t.n_free += 1
    t.n_freed += 1


cdef int pending_ends_record(Durable* t) noexcept nogil:
    """Write the RECORD_END records for which memory was missing. -1: it is still missing."""
    cdef uint64_t lsn
    cdef uint8_t* out
    cdef uint32_t* store_session_id
    cdef uint32_t i
    for i in range(t.n_freed):
        store_session_id = &t.free_store_ids[t.n_free - t.n_freed + i]
        if store_session_id[0] & END_NOT_RECORDED:
            out = store_append(&t.store, RECORD_END, 0, RECORD_END_BYTES, &lsn)
            if out == NULL:
                return -1
            store_session_id[0] &= ~<uint32_t>END_NOT_RECORDED
            record_end_put(out, store_session_id[0])
    return 0


# ---------------------------------------------------------------- sessions

cdef void persist_session(Broker* b, Session* s) noexcept nogil:
    cdef Durable* t = durable_of(b)
    if t == NULL or (s.store_session_id == 0 and (s.expiry_s == 0 or store_session_id_take(b, s) != 0)):
        return
    session_recorded(b, s)


cdef void session_recorded(Broker* b, Session* s) noexcept nogil:
    cdef RecordSession r
    cdef uint8_t* out
    memset(&r, 0, sizeof(r))
    r.store_session_id = s.store_session_id
    r.expiry_s = s.expiry_s
    r.next = s.unsent
    r.flags = (RECORD_CONNECTED if s.client != NULL else 0) | (RECORD_LINK if s.flags & SESSION_BRIDGE else 0)
    r.ends_wall_ms = wall_of(b, s.ends_ms) if s.client == NULL else 0
    r.id.p = s.client_id
    r.id.n = s.id_len
    if s.username != NULL:
        r.user.p = <const uint8_t*>s.username
        r.user.n = <uint32_t>strlen(s.username)
    r.security = s.origin
    if not s.flags & SESSION_ORIGIN_UNKNOWN:
        r.flags |= RECORD_HAS_ORIGIN
        r.mount.p = <const uint8_t*>s.mount_point
        r.mount.n = <uint32_t>strlen(s.mount_point) if s.mount_point != NULL else 0
    r.last_pid = s.queue.last_pid
    out = record(b, RECORD_SESSION, record_session_size(&r))
    if out != NULL:
        record_session_put(out, &r)


cdef bint end_recorded(Broker* b, int kind, uint32_t store_session_id) noexcept nogil:
    """Write the record of an end: RECORD_END or RECORD_WILL_GONE."""
    cdef uint8_t* out = record(b, kind, RECORD_END_BYTES)
    if out != NULL:
        record_end_put(out, store_session_id)
    return out != NULL


cdef void persist_session_end(Broker* b, Session* s) noexcept nogil:
    if s.store_session_id:
        number_give(durable_of(b), s.store_session_id if end_recorded(b, RECORD_END, s.store_session_id) else s.store_session_id | END_NOT_RECORDED)


cdef void filter_recorded(Broker* b, Session* s, int kind, View filter, uint8_t options, uint32_t sub_id) noexcept nogil:
    cdef RecordSub r
    cdef uint8_t* out
    if s.store_session_id == 0:
        return
    r.store_session_id = s.store_session_id
    r.sub_id = sub_id
    r.options = options
    r.filter = filter
    out = record(b, kind, record_sub_size(&r) if kind == RECORD_SUB else record_unsub_size(&r))
    if out != NULL and kind == RECORD_SUB:
        record_sub_put(out, &r)
    elif out != NULL:
        record_unsub_put(out, &r)


cdef void persist_subscription(Broker* b, Session* s, View filter, uint8_t options, uint32_t sub_id) noexcept nogil:
    filter_recorded(b, s, RECORD_SUB, filter, options, sub_id)


cdef void persist_subscription_end(Broker* b, Session* s, View filter) noexcept nogil:
    filter_recorded(b, s, RECORD_UNSUB, filter, 0, 0)


# ---------------------------------------------------------------- deliveries

cdef void publisher_set(Broker* b, const Session* s, uint16_t pid) noexcept nogil:
    cdef Durable* t = durable_of(b)
    if t != NULL:
        t.publisher = s
        t.publisher_pid = pid


cdef void publisher_note(Durable* t, Pending* p) noexcept nogil:
    """Keep the publisher until the batch is sealed. Without memory the message is stored without it."""
    cdef RecordPublisher r
    cdef uint64_t n
    cdef uint8_t* publishers
    r.security = t.publisher.origin
    r.pid = t.publisher_pid
    r.id.p = t.publisher.client_id
    r.id.n = t.publisher.id_len
    r.user.p = <const uint8_t*>t.publisher.username
    r.user.n = <uint32_t>strlen(t.publisher.username) if t.publisher.username != NULL else 0
    n = record_publisher_size(&r)
    if t.n_publishers + n > t.cap_publishers:
        if t.n_publishers + n > 1 << 30:
            return
        publishers = <uint8_t*>realloc(t.publishers, 2 * (t.n_publishers + n))
        if publishers == NULL:
            return
        t.publishers = publishers
        t.cap_publishers = <uint32_t>(2 * (t.n_publishers + n))
    record_publisher_put(t.publishers + t.n_publishers, &r)
    p.publisher = t.n_publishers + 1
    p.publisher_n = <uint32_t>n
    t.n_publishers += <uint32_t>n


cdef Pending* pending_of(Durable* t, Message* m) noexcept nogil:
    """Return the message's place in the open batch; NULL without memory."""
    cdef Pending* pendings
    cdef Pending* p
    if m.lsn & PENDING:
        return &t.pendings[m.lsn & ~<uint64_t>PENDING]
    if t.n_pendings == t.cap_pendings:
        pendings = <Pending*>array_grown(t.pendings, &t.cap_pendings, sizeof(Pending))
        if pendings == NULL:
            return NULL
        t.pendings = pendings
    p = &t.pendings[t.n_pendings]
    memset(p, 0, sizeof(Pending))
    p.message = message_ref(m)
    p.lsn_before = m.lsn
    if t.publisher != NULL:
        publisher_note(t, p)
    m.lsn = PENDING | t.n_pendings
    t.n_pendings += 1
    t.changes += MORE
    return p


cdef int pending_delivery_wait(Broker* b, Session* s, const Delivery* d) noexcept nogil:
    cdef Durable* t = durable_of(b)
    if d.qos & 3 != 2 or s.flags & SESSION_WAITS:
        return 0
    if waiter_add(t, t.serial) != 0:
        return -1
    s.flags |= SESSION_WAITS
    s.records += 1
    t.waiters[(t.waiters_tail - 1) & t.waiters_mask].session = s
    batch_changed(t, 0)
    return 0


cdef int pending_delivery_record(Broker* b, Session* s, Message* m, const Delivery* d, uint32_t position) noexcept nogil:
    cdef Durable* t = durable_of(b)
    cdef Pending* p
    cdef PendingDelivery* o
    cdef PendingDelivery* pending_deliveries
    if t.n_pending_deliveries == t.cap_pending_deliveries:
        pending_deliveries = <PendingDelivery*>array_grown(t.pending_deliveries, &t.cap_pending_deliveries, sizeof(PendingDelivery))
        if pending_deliveries == NULL:
            return -1
        t.pending_deliveries = pending_deliveries
    if pending_delivery_wait(b, s, d) != 0:
        return -1
    p = pending_of(t, m)
    if p == NULL:
        return -1
    o = &t.pending_deliveries[t.n_pending_deliveries]
    t.n_pending_deliveries += 1
    o.session = s
    o.position = position
    o.sub_id = session_sub_id(s, d)
    o.pid = d.pid
    o.qos = d.qos
    o.next = 0
    if p.last:
        t.pending_deliveries[p.last - 1].next = t.n_pending_deliveries
    else:
        p.first = t.n_pending_deliveries
    p.last = t.n_pending_deliveries
    p.n += 1
    p.live += 1
    if s.client == NULL:
        t.urgent = 1             # it is written, however long its batch waits
    s.records += 1
    batch_changed(t, 16 if p.n > 1 else message_bytes(m) + RECORD_ROOM)
    return 0


cdef void pending_delivery_done(Broker* b, Session* s, Message* m, uint32_t position) noexcept nogil:
    cdef Durable* t = durable_of(b)
    cdef Pending* p
    cdef StoredAck* acks
    cdef Client* c
    if t == NULL:
        return                   # the broker ends
    if <int>(position - s.logged) >= 0:
        if m == NULL or not m.lsn & PENDING:
            return               # it never had a record
        p = &t.pendings[m.lsn & ~<uint64_t>PENDING]
        p.live -= 1
        if p.live == 0 and p.owner_generation and not m.flags & MESSAGE_RETAINED:
            c = <Client*>slab_get(&b.clients, p.owner_index, p.owner_generation)
            if c != NULL:
                pending_acks_release(b, c)
        return
    if s.flags & SESSION_ENDED:
        return                   # its RECORD_END covers this
    if t.n_acks == t.cap_acks:
        acks = <StoredAck*>array_grown(t.acks, &t.cap_acks, sizeof(StoredAck))
        if acks == NULL:
            return               # it would be sent again after a crash
        t.acks = acks
    t.acks[t.n_acks].store_session_id = s.store_session_id
    t.acks[t.n_acks].position = position
    t.n_acks += 1
    batch_changed(t, sizeof(StoredAck))


cdef void pending_delivery_release(Broker* b, Session* s, const Delivery* d, uint32_t position) noexcept nogil:
    cdef RecordAck r
    cdef uint8_t* out
    if s.store_session_id == 0:
        return
    r.store_session_id = s.store_session_id
    r.position = position
    r.pid = d.pid
    out = record(b, RECORD_RELEASED, RECORD_RELEASED_BYTES)
    if out != NULL:
        record_released_put(out, &r)


# ---------------------------------------------------------------- plugin gates

cdef int persist_gated(Broker* b, Session* s, Message* m, uint32_t position, uint8_t qos, uint8_t retain,     # parameters: a delivery
                       uint32_t sub_id) noexcept nogil:
    cdef Durable* t = durable_of(b)
    cdef PendingGated* gated
    if s.store_session_id == 0:
        return 0
    if t.n_gated == t.cap_gated:
        gated = <PendingGated*>array_grown(t.gated, &t.cap_gated, sizeof(PendingGated))
        if gated == NULL:
            return -1
        t.gated = gated
    gated = &t.gated[t.n_gated]
    gated.session = s
    gated.message = message_ref(m)
    gated.position = position
    gated.sub_id = sub_id
    gated.qos = qos | (RECORD_ENTRY_RETAIN if retain else 0)
    t.n_gated += 1
    t.changes += MORE            # no acknowledgement of a subscriber makes it unnecessary
    s.records += 1
    batch_changed(t, message_bytes(m) + RECORD_ROOM if t.n_gated == 1 or t.gated[t.n_gated - 2].message != m else 16)
    return 0


cdef void persist_gated_done(Broker* b, Session* s, uint32_t position) noexcept nogil:
    cdef Durable* t = durable_of(b)
    cdef StoredAck* done
    if t == NULL or s.store_session_id == 0 or s.flags & SESSION_ENDED:
        return
    if t.n_gated_done == 0 or t.gated_done[t.n_gated_done - 1].store_session_id != s.store_session_id:
        if t.n_gated_done == t.cap_gated_done:
            done = <StoredAck*>array_grown(t.gated_done, &t.cap_gated_done, sizeof(StoredAck))
            if done == NULL:
                return           # after a crash a plugin would be asked about it again
            t.gated_done = done
        t.gated_done[t.n_gated_done].store_session_id = s.store_session_id
        t.n_gated_done += 1
        batch_opened(t, sizeof(StoredAck))
    t.gated_done[t.n_gated_done - 1].position = position


# ---------------------------------------------------------------- retained messages

cdef void persist_retained(Broker* b, Message* m) noexcept nogil:
    cdef Durable* t = durable_of(b)
    m.flags |= MESSAGE_RETAINED
    if t == NULL or t.loading or is_sys_message(m):
        return
    if pending_of(t, m) == NULL:
        durable_lacks_memory(b)
    t.changes += MORE            # it is written even if all subscribers acknowledge it
    batch_changed(t, message_bytes(m) + RECORD_ROOM)


cdef void persist_retained_end(Broker* b, Message* m, bint replaced) noexcept nogil:
    cdef uint8_t* out
    m.flags &= ~<uint32_t>MESSAGE_RETAINED
    if b.durable == NULL or replaced or not m.lsn or durable_of(b).loading:
        return
    out = record(b, RECORD_RETAINED_GONE, m.topic.n)
    if out != NULL:
        memcpy(out, m.topic.p, m.topic.n)


# ---------------------------------------------------------------- inbound QoS 2, wills

cdef int persist_inbound(Broker* b, Session* s, uint16_t pid, const Message* m, uint64_t identity) noexcept nogil:
    cdef RecordInbox r
    cdef uint8_t* out
    if s.store_session_id == 0:
        return 0
    memset(&r, 0, sizeof(r))
    r.store_session_id = s.store_session_id
    r.pid = pid
    r.refused = m == NULL
    if m != NULL:
        r.journalled = (m.flags & MESSAGE_JOURNALLED) != 0
        r.local_done = (m.flags & MESSAGE_LOCAL_DONE) != 0
        r.identity = identity
        message_recorded(b, m, &r.message)
    out = record(b, RECORD_INBOX, record_inbox_size(&r))
    if out == NULL:
        return -1
    record_inbox_put(out, &r)
    return 0


cdef int persist_inbound_end(Broker* b, Session* s, uint16_t pid) noexcept nogil:
    cdef uint8_t* out
    if s.store_session_id == 0:
        return 0
    out = record(b, RECORD_INBOX_DONE, RECORD_INBOX_DONE_BYTES)
    if out == NULL:
        return -1
    record_inbox_done_put(out, s.store_session_id, pid)
    return 0


cdef void persist_will(Broker* b, Session* s, const Message* m, uint32_t delay_s, uint64_t due_ms) noexcept nogil:
    cdef RecordWill r
    cdef uint8_t* out
    if s.store_session_id == 0:
        return
    memset(&r, 0, sizeof(r))
    r.store_session_id = s.store_session_id
    r.delay_s = delay_s
    r.due_wall_ms = wall_of(b, due_ms)
    message_recorded(b, m, &r.message)
    out = record(b, RECORD_WILL, record_will_size(&r))
    if out != NULL:
        record_will_put(out, &r)


cdef void persist_client_will(Broker* b, Session* s, const Will* w) noexcept nogil:
    if s.store_session_id:
        persist_will(b, s, w.message, w.delay_s, 0)
    elif b.durable != NULL and not durable_is_stuck(b):       # a client without a stored session must not depend on the disk
        client_will_recorded(b, s, w)


cdef void client_will_fill(Broker* b, const Session* s, const Message* m, RecordClientWill* out) noexcept nogil:
    memset(out, 0, sizeof(RecordClientWill))
    out.security = s.origin
    out.id.p = s.client_id
    out.id.n = s.id_len
    if s.username != NULL:
        out.user.p = <const uint8_t*>s.username
        out.user.n = <uint32_t>strlen(s.username)
    out.mount.p = <const uint8_t*>s.mount_point
    out.mount.n = <uint32_t>strlen(s.mount_point) if s.mount_point != NULL else 0
    message_recorded(b, m, &out.message)


cdef void client_will_recorded(Broker* b, Session* s, const Will* w) noexcept nogil:
    cdef RecordClientWill r
    cdef uint8_t* out
    client_will_fill(b, s, w.message, &r)
    r.has_expiry = w.has_expiry
    r.expiry_s = w.expiry_s
    out = record(b, RECORD_CLIENT_WILL, record_client_will_size(&r))
    if out != NULL:
        record_client_will_put(out, &r)
        s.flags |= SESSION_WILL_STORED


cdef void persist_will_end(Broker* b, Session* s) noexcept nogil:
    cdef uint8_t* out
    if s.store_session_id:
        end_recorded(b, RECORD_WILL_GONE, s.store_session_id)
    elif s.flags & SESSION_WILL_STORED:
        s.flags &= ~<uint32_t>SESSION_WILL_STORED
        out = record(b, RECORD_CLIENT_WILL_GONE, s.id_len)
        if out != NULL:
            memcpy(out, s.client_id, s.id_len)


cdef uint64_t persist_waiting_will(Broker* b, const Session* s, const Message* m, uint64_t number,       # parameters: a will and its request
                                   uint64_t handle) noexcept nogil:
    if b.durable == NULL or not (number or s.store_session_id or s.flags & SESSION_WILL_STORED):
        return 0
    return numbered_will_recorded(b, RECORD_WAITING_WILL, s, m, number, handle)


cdef uint64_t persist_sent_will(Broker* b, const Session* s, const Message* m, uint64_t identity) noexcept nogil:
    return numbered_will_recorded(b, RECORD_LINK_WILL, s, m, 0, identity)


cdef uint64_t numbered_will_recorded(Broker* b, int kind, const Session* s, const Message* m, uint64_t number,  # parameters: a will and what it waits for
                                     uint64_t handle) noexcept nogil:
    cdef Durable* t = durable_of(b)
    cdef RecordWaitingWill r
    cdef uint8_t* out
    r.number = number
    if number == 0:
        t.last_will += 1
        r.number = t.last_will
    r.handle = handle
    client_will_fill(b, s, m, &r.will)
    out = record(b, kind, record_waiting_will_size(&r))
    if out != NULL:
        record_waiting_will_put(out, &r)
    return r.number


cdef void persist_waiting_will_end(Broker* b, uint64_t number) noexcept nogil:
    cdef uint8_t* out
    if number == 0 or b.durable == NULL:
        return
    out = record(b, RECORD_WAITING_WILL_GONE, RECORD_WAITING_WILL_GONE_BYTES)
    if out != NULL:
        record_waiting_will_gone_put(out, number)
