"""Rebuild the broker's state from the records of its store, in the order in which they were written. This module knows the
contents of records, not how they were stored.

A later record for the same thing replaces an earlier one. So a record that was copied (clean.pyx) or came twice changes nothing.
A record that names something that does not exist is skipped: the end of that thing was recorded, and its beginning is deleted.

There are two walks. A session's own record is written again whenever its client comes or goes, and cleaning copies it, so it may
lie behind the records that belong to the session. The first walk makes the sessions; the second gives them their subscriptions
and deliveries. A store session id may have had several owners. Records before the last RECORD_END of an id belong to no session.

Packet ids, positions and order are the same as before. Deliveries that may have been sent are sent again with DUP: all of them,
if the client was connected; otherwise those before RecordSession.next.
Cost: linear in the records; about 0.2 us each.
"""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp, memcpy, memset

from cext.base.clock cimport clock_wall_ms
from cext.base.hash cimport hash_bytes
from cext.base.view cimport View
from cext.broker.core.access cimport origin_read, security_of_origin
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport TIMER_SESSION
from cext.broker.core.durable cimport Durable, RestoredWill, durable_of, session_at
from cext.broker.core.publication_state cimport Publication
from cext.broker.core.settings cimport OVERFLOW_LAST_VALUE
from cext.broker.lifecycle.session_lifecycle cimport session_watch
from cext.broker.links.records cimport link_record_apply
from cext.broker.persist.persist cimport array_grown, store_session_id_reserve
from cext.broker.persist.publication cimport publication_fini, publication_of
from cext.broker.routing.plugin_gate cimport plugin_gate_left, plugin_gate_restore
from cext.broker.routing.pump cimport session_clear
from cext.broker.routing.paged cimport message_of_record, monotonic_of
from cext.broker.routing.retain cimport retain_store, retained_from
from cext.broker.routing.share cimport share_restored
from cext.broker.storage.waiting_wills cimport restored_will_at, restored_will_drop
from cext.session.message cimport MESSAGE_AGAIN, MESSAGE_JOURNALLED, MESSAGE_LOCAL_DONE, Message, message_new, message_ref, message_unref
from cext.session.queue cimport (
    D_DONE, D_RELEASED, D_SENT, D_WAITING, Delivery, InboundQos2, Queue, delivery_page, delivery_release, inbox_add, inbox_find,
    inbox_remove, queue_at, queue_pid_used, queue_place, queue_restored,
)
from cext.session.record cimport (
    RECORD_ACKS, RECORD_CLIENT_WILL, RECORD_CLIENT_WILL_GONE, RECORD_CONNECTED, RECORD_END, RECORD_ENTRY_RETAIN, RECORD_ENTRY_SHARED, RECORD_GATED,
    RECORD_GATED_DONE, RECORD_HAS_ORIGIN, RECORD_INBOX, RECORD_INBOX_DONE, RECORD_LINK, RECORD_LINK_CHOICE, RECORD_LINK_RUN, RECORD_LINK_WILL, RECORD_MSG, RECORD_RELEASED, RECORD_RETAINED_FROM,
    RECORD_RETAINED_GONE, RECORD_RETAINED_SET, RECORD_SESSION, RECORD_STREAMS, RECORD_SUB, RECORD_UNDELIVERED, RECORD_UNSUB, RECORD_WAITING_WILL, RECORD_WAITING_WILL_GONE,
    RECORD_WILL, RECORD_WILL_GONE, RecordAck, RecordClientWill, RecordEntry, RecordFrom, RecordInbox, RecordMessage, RecordMsg,
    RecordSession, RecordSub, RecordUndelivered, RecordWaitingWill, RecordWill, record_ack_next, record_acks_check, record_client_id_read, record_client_will_read,
    record_end_read, record_entry_next, record_from_read, record_inbox_done_read, record_inbox_read, record_msg_read,
    record_released_check, record_released_next, record_session_read, record_streams_check, record_sub_read, record_topic_read,
    record_undelivered_read, record_unsub_read, record_waiting_will_gone_read, record_waiting_will_read, record_will_read,
)
from cext.session.session cimport (
    EXPIRY_NEVER, SESSION_BRIDGE, SESSION_ENDED, SESSION_ORIGIN_UNKNOWN, SESSION_WILL_STORED, Session, session_free, session_new,
    session_text, sessions_add, sessions_find, sessions_first, sessions_next, sessions_remove,
)
from cext.store.state cimport STORE_WHY_MAX, StoreLoss, StoreRecord
from cext.store.store cimport store_recover, store_scan
from cext.topic.index cimport index_add, index_remove, index_remove_some
from cext.topic.name cimport Filter, filter_parse

cdef enum:
    STORE_SESSION_ID_MAX = 1 << 26
    ODD = 1                      # result of a *_apply function: the record was skipped
    RECOVER_SLICE = 1000


ctypedef struct StoreIdHistory:           # owners of a store session id
    uint64_t owner              # hash of the client id in the last session record; 0 = none since the last end
    uint32_t ends               # number of owners that have ended in the whole store
    uint32_t ended              # number of owners that have ended so far, in the second walk


ctypedef struct Load:
    Broker* b
    StoreIdHistory* histories                 # by store session id
    uint32_t n_histories
    uint32_t cap_histories
    bint second_walk                  # in the second walk
    Durable* t
    uint64_t now_wall_ms
    uint32_t streams_cap
    Recovered* out


cdef inline Session* owner_of(Load* l, uint32_t store_session_id) noexcept nogil:
    """Return the session that a record of the second walk belongs to; NULL = it has ended."""
    if store_session_id < l.n_histories and l.histories[store_session_id].ended != l.histories[store_session_id].ends:
        return NULL
    return session_at(l.t, store_session_id)


cdef int history_at(Load* l, uint32_t store_session_id) noexcept nogil:
    """Make room for the history of this id. Returns -1 if there is no memory."""
    cdef StoreIdHistory* histories
    while l.n_histories <= store_session_id:
        if l.n_histories == l.cap_histories:
            histories = <StoreIdHistory*>array_grown(l.histories, &l.cap_histories, sizeof(StoreIdHistory))
            if histories == NULL:
                return -1
            l.histories = histories
        memset(&l.histories[l.n_histories], 0, sizeof(StoreIdHistory))
        l.n_histories += 1
    return 0


cdef int owner_apply(Load* l, const StoreRecord* r) noexcept nogil:
    """Count ended owners, in the same way in both walks. A new client id under the same store session id means that the record of
    the end is missing."""
    cdef RecordSession record
    cdef StoreIdHistory* history
    cdef uint64_t owner = 0
    cdef uint32_t store_session_id
    if r.kind == RECORD_END:
        if record_end_read(r.body, &store_session_id) != 0:
            return 0
    elif record_session_read(r.body, &record) != 0:
        return 0
    else:
        store_session_id = record.store_session_id
        owner = hash_bytes(&l.b.key, record.id.p, record.id.n) | 1
    if store_session_id == 0 or store_session_id > STORE_SESSION_ID_MAX:
        return 0
    if history_at(l, store_session_id) != 0:
        return -1
    history = &l.histories[store_session_id]
    if owner == 0 or (history.owner and history.owner != owner):
        if l.second_walk:
            history.ended += 1
        else:
            history.ends += 1
    history.owner = owner
    if l.second_walk and owner and owner_of(l, store_session_id) != NULL:
        queue_pid_used(&owner_of(l, store_session_id).queue, record.last_pid, 1)
    return 0


# ---------------------------------------------------------------- sessions

cdef int store_id_reserve(Durable* t, uint32_t store_session_id) noexcept nogil:
    """Make room for this store session id. Returns -1 if there is no memory."""
    cdef Session** sessions_by_store_id
    while t.n_store_ids <= store_session_id:
        if t.n_store_ids == t.cap_store_ids:
            sessions_by_store_id = <Session**>array_grown(t.sessions_by_store_id, &t.cap_store_ids, sizeof(Session*))
            if sessions_by_store_id == NULL:
                return -1
            t.sessions_by_store_id = sessions_by_store_id
        t.sessions_by_store_id[t.n_store_ids] = NULL
        t.n_store_ids += 1
    return 0


cdef void session_forget(Load* l, Session* s) noexcept nogil:
    if s.store_session_id:
        l.t.sessions_by_store_id[s.store_session_id] = NULL
        s.store_session_id = 0
    sessions_remove(&l.b.sessions, s)
    session_clear(l.b, s, -1)
    if s.will != NULL:
        message_unref(&l.b.messages, &l.b.reactor.buffers, s.will)
    while index_remove_some(l.b.index, &s.owner, RECOVER_SLICE):
        pass
    session_free(&l.b.sessions, s)


cdef Session* session_made(Load* l, View id) noexcept nogil:
    """Return a new session of this client id; NULL without memory."""
    cdef Session* s = session_new(&l.b.sessions, id)
    if s != NULL:
        s.timer.kind = TIMER_SESSION
        s.access_epoch = l.b.access_epoch - 1
        sessions_add(&l.b.sessions, s)
    return s


cdef int origin_restore(Load* l, Session* s, uint32_t security, View user, View mount) noexcept nogil:
    """Set the user name and the mount point, and the rules of the listener, which count until a client resumes the session, also for its
    will. Return -1 without memory; then the names have not changed."""
    cdef char* username = session_text(user) if user.p != NULL else NULL
    cdef char* mount_point = session_text(mount) if mount.n else NULL
    if (user.p != NULL and username == NULL) or (mount.n and mount_point == NULL):
        free(username)
        free(mount_point)
        return -1
    free(s.username)
    free(s.mount_point)
    s.username = username
    s.mount_point = mount_point
    s.origin = origin_read(l.b, security)
    s.security = security_of_origin(l.b, s.origin)
    return 0


cdef int session_apply(Load* l, View body) noexcept nogil:
    cdef RecordSession r
    cdef Session* s
    if record_session_read(body, &r) != 0 or r.store_session_id == 0 or r.store_session_id > STORE_SESSION_ID_MAX:
        return ODD
    if store_id_reserve(l.t, r.store_session_id) != 0:
        return -1
    s = l.t.sessions_by_store_id[r.store_session_id]
    if s != NULL and (s.id_len != r.id.n or memcmp(s.client_id, r.id.p, r.id.n) != 0):
        session_forget(l, s)     # the end record of the former session is missing
        s = NULL
    if s == NULL:
        s = sessions_find(&l.b.sessions, r.id)
        if s != NULL:
            session_forget(l, s)
        s = session_made(l, r.id)
        if s == NULL:
            return -1
        s.store_session_id = r.store_session_id
        l.t.sessions_by_store_id[r.store_session_id] = s
    if origin_restore(l, s, r.security, r.user, r.mount) != 0:
        return -1
    s.expiry_s = r.expiry_s
    s.unsent = r.next
    s.ends_ms = r.ends_wall_ms       # wall time until all records are read
    s.access_turn = 1 if r.flags & RECORD_CONNECTED else 0       # 1 = the client was connected, until all records are read
    s.flags = s.flags & ~<uint32_t>(SESSION_BRIDGE | SESSION_ORIGIN_UNKNOWN) | (SESSION_BRIDGE if r.flags & RECORD_LINK else 0) | (
        0 if r.flags & RECORD_HAS_ORIGIN else SESSION_ORIGIN_UNKNOWN)
    return 0


cdef int end_apply(Load* l, View body) noexcept nogil:
    cdef uint32_t store_session_id
    cdef Session* s
    if record_end_read(body, &store_session_id) != 0:
        return ODD
    s = session_at(l.t, store_session_id)
    if s != NULL:
        session_forget(l, s)
    return 0


cdef int sub_apply(Load* l, View body, bint is_subscribed) noexcept nogil:
    cdef RecordSub r
    cdef Filter f
    cdef Session* s
    if (record_sub_read(body, &r) if is_subscribed else record_unsub_read(body, &r)) != 0:
        return ODD
    if filter_parse(r.filter.p, r.filter.n, &f) != 0:
        return ODD
    s = owner_of(l, r.store_session_id)
    if s == NULL:
        return 0
    if not is_subscribed:
        index_remove(l.b.index, &s.owner, &f)
    elif index_add(l.b.index, &s.owner, s, &f, <uint8_t>r.options, r.sub_id) < 0:
        return -1
    return 0


# ---------------------------------------------------------------- messages

cdef void delivery_gone(Load* l, Delivery* d) noexcept nogil:
    delivery_release(&l.b.messages, &l.b.reactor.buffers, d)
    d.state = D_DONE


cdef Message* message_of(Load* l, const RecordMessage* r, uint64_t lsn) noexcept nogil:
    return message_of_record(l.b, r, lsn, l.now_wall_ms)


cdef int entry_apply(Load* l, const RecordEntry* e, const RecordMessage* r, uint64_t lsn, Message** m,
                     bint is_only) noexcept nogil:
    """Apply one delivery of a message's record. The message stays on the disk until its turn comes. *m is the message if it must
    be in memory; it is made when it is first needed. Returns 1 if the delivery was placed, 0 if its session is gone, -1 if there
    is no memory."""
    cdef Session* s = owner_of(l, e.store_session_id)
    cdef Delivery* d
    if s == NULL:
        return 0
    d = queue_place(&s.queue, e.position)
    if d == NULL:
        l.out.odd += 1
        return 0
    delivery_gone(l, d)          # an older copy
    if e.qos & 3:
        queue_pid_used(&s.queue, e.pid, 0)
    d.sub_id = e.sub_id
    d.pid = e.pid
    d.qos = e.qos
    d.state = D_WAITING
    if l.b.settings.overflow != OVERFLOW_LAST_VALUE and not e.qos & RECORD_ENTRY_SHARED and delivery_page(
            &l.b.messages, &l.b.reactor.buffers, &s.queue, d, lsn, r.payload.n,
            r.topic.n + r.props.n if is_only and m[0] == NULL else -1):
        return 1
    if m[0] == NULL:
        m[0] = message_of(l, r, lsn)
    if m[0] == NULL:
        d.state = D_DONE
        return -1
    d.message = message_ref(m[0])
    return 1


cdef int msg_apply(Load* l, View body, uint64_t lsn) noexcept nogil:
    cdef RecordMsg r
    cdef RecordEntry e
    cdef Message* m = NULL
    cdef Publication p
    cdef bint is_only = 1
    cdef int rc = 0
    if record_msg_read(body, &r) != 0:
        return ODD
    if r.message.flags & RECORD_RETAINED_SET:
        m = message_of(l, &r.message, lsn)
        if m == NULL:
            return -1
        publication_of(&p, m)
        retain_store(l.b, &p)
        publication_fini(l.b, &p)
    while rc >= 0 and record_entry_next(&r.entries, &e):
        rc = entry_apply(l, &e, &r.message, lsn, &m, is_only)
        is_only = is_only and rc == 0
    if m != NULL:
        message_unref(&l.b.messages, &l.b.reactor.buffers, m)
    return -1 if rc < 0 else 0


cdef Delivery* delivery_of_ack(Load* l, const RecordAck* a) noexcept nogil:
    cdef Session* s = owner_of(l, a.store_session_id)
    if s == NULL or <int>(a.position - s.queue.floor) < 0 or <int>(a.position - s.queue.tail) >= 0:
        return NULL
    return queue_at(&s.queue, a.position)


cdef int acks_apply(Load* l, View body) noexcept nogil:
    cdef RecordAck a
    cdef Delivery* d
    if record_acks_check(body) != 0:
        return ODD
    while record_ack_next(&body, &a):
        d = delivery_of_ack(l, &a)
        if d != NULL:
            delivery_gone(l, d)
    return 0


cdef int released_apply(Load* l, View body) noexcept nogil:
    cdef RecordAck a
    cdef Delivery* d
    cdef Session* s
    if record_released_check(body) != 0:
        return ODD
    while record_released_next(&body, &a):
        s = owner_of(l, a.store_session_id)
        d = queue_place(&s.queue, a.position) if s != NULL else NULL
        if d == NULL:
            continue
        delivery_gone(l, d)
        d.state = D_RELEASED
        d.qos = 2
        d.pid = a.pid
    return 0


cdef int gated_apply(Load* l, View body) noexcept nogil:
    cdef RecordMsg r
    cdef RecordEntry e
    cdef Session* s
    cdef Message* m = NULL
    cdef int rc = 0
    if record_msg_read(body, &r) != 0:
        return ODD
    while rc >= 0 and record_entry_next(&r.entries, &e):
        s = owner_of(l, e.store_session_id)
        if s == NULL:
            continue
        if m == NULL:
            m = message_of(l, &r.message, 0)
            if m == NULL:
                return -1
            m.flags |= MESSAGE_AGAIN         # with QoS 1 it may have left the gate and been sent, without a committed record of that
        rc = plugin_gate_restore(l.b, s, e.position, m, e.qos & 3, e.qos & RECORD_ENTRY_RETAIN != 0, e.sub_id)
        l.out.odd += rc > 0
    if m != NULL:
        message_unref(&l.b.messages, &l.b.reactor.buffers, m)
    return -1 if rc < 0 else 0


cdef int gated_done_apply(Load* l, View body) noexcept nogil:
    cdef RecordAck a
    cdef Session* s
    if record_acks_check(body) != 0:
        return ODD
    while record_ack_next(&body, &a):
        s = owner_of(l, a.store_session_id)
        if s != NULL:
            plugin_gate_left(l.b, s, a.position)
    return 0


cdef int retained_gone_apply(Load* l, View body) noexcept nogil:
    cdef Publication p
    cdef View empty
    cdef Message* m
    if record_topic_read(body) != 0:
        return ODD
    empty.p = NULL
    empty.n = 0
    m = message_new(&l.b.messages, body, empty, empty)
    if m == NULL:
        return -1
    publication_of(&p, m)
    retain_store(l.b, &p)
    publication_fini(l.b, &p)
    message_unref(&l.b.messages, &l.b.reactor.buffers, m)
    return 0


# ---------------------------------------------------------------- inbound QoS 2, wills

cdef void inbox_drop(Load* l, Session* s, uint16_t pid) noexcept nogil:
    cdef InboundQos2* h = inbox_find(&s.inbox, pid)
    cdef Message* m
    if h == NULL:
        return
    m = h.message
    inbox_remove(&s.inbox, h)
    if m != NULL:
        message_unref(&l.b.messages, &l.b.reactor.buffers, m)


cdef int inbox_apply(Load* l, View body, bint is_set) noexcept nogil:
    cdef RecordInbox r
    cdef Session* s
    cdef Message* m = NULL
    if (record_inbox_read(body, &r) if is_set else record_inbox_done_read(body, &r)) != 0 or r.pid == 0:
        return ODD
    s = owner_of(l, r.store_session_id)
    if s == NULL:
        return 0
    inbox_drop(l, s, r.pid)
    if not is_set:
        return 0
    if not r.refused:
        m = message_of(l, &r.message, 0)
        if m == NULL:
            return -1
        m.flags |= MESSAGE_AGAIN | (MESSAGE_JOURNALLED if r.journalled else 0) | (MESSAGE_LOCAL_DONE if r.local_done else 0)
    if inbox_add(&s.inbox, r.pid, m) != 0:
        return -1
    inbox_find(&s.inbox, r.pid).identity = r.identity
    return 0


cdef int will_apply(Load* l, View body, bint is_set) noexcept nogil:
    cdef RecordWill r
    cdef Session* s
    if not is_set:
        if record_end_read(body, &r.store_session_id) != 0:
            return ODD
    elif record_will_read(body, &r) != 0:
        return ODD
    s = owner_of(l, r.store_session_id)
    if s == NULL:
        return 0
    if s.will != NULL:
        message_unref(&l.b.messages, &l.b.reactor.buffers, s.will)
        s.will = NULL
    if not is_set:
        return 0
    s.will = message_of(l, &r.message, 0)
    # If the client was connected, the delay begins now: its connection ended with the process.
    s.will_due_ms = l.b.reactor.now_ms + <uint64_t>r.delay_s * 1000      # restored_wills_slice sends it if it is due
    if r.due_wall_ms:
        s.will_due_ms = min(s.will_due_ms, monotonic_of(l.b, r.due_wall_ms, l.now_wall_ms))
    return 0 if s.will != NULL else -1


cdef Session* will_owner_of(Load* l, View id) noexcept nogil:
    """Return the session that stands for a client without a stored session; NULL = none."""
    cdef Session* s = sessions_find(&l.b.sessions, id)
    return s if s != NULL and s.store_session_id == 0 else NULL


cdef int client_will_apply(Load* l, View body) noexcept nogil:
    """Make a session that ends at once and then sends the will: restored_wills_slice."""
    cdef RecordClientWill r
    cdef Session* s
    if record_client_will_read(body, &r) != 0:
        return ODD
    s = sessions_find(&l.b.sessions, r.id)
    if s != NULL and s.store_session_id:
        return 0                 # the client has a stored session since then: the record of the will's end is missing
    if s != NULL:
        session_forget(l, s)
    s = session_made(l, r.id)
    if s == NULL:
        return -1
    s.flags |= SESSION_WILL_STORED
    s.will = message_of(l, &r.message, 0)
    if s.will == NULL or origin_restore(l, s, r.security, r.user, r.mount) != 0:
        return -1
    if r.has_expiry:
        s.will.expires_ms = l.b.reactor.now_ms + <uint64_t>r.expiry_s * 1000
    s.will_due_ms = l.b.reactor.now_ms
    return 0


cdef int client_will_gone_apply(Load* l, View body) noexcept nogil:
    cdef Session* s
    if record_client_id_read(body) != 0:
        return ODD
    s = will_owner_of(l, body)
    if s != NULL:
        session_forget(l, s)
    return 0


cdef int waiting_will_apply(Load* l, View body, bint sent) noexcept nogil:
    """Keep a will that waited for a plugin, or for other workers (sent). A session that has ended stands for its client: the client may be here again."""
    cdef RecordWaitingWill r
    cdef RestoredWill* w
    if record_waiting_will_read(body, &r) != 0:
        return ODD
    w = restored_will_new(l, r.number, &r.will, 0)
    if w == NULL:
        return -1
    w.sent = sent
    w.identity = r.handle if sent else 0
    return 0


cdef RestoredWill* restored_will_new(Load* l, uint64_t number, const RecordClientWill* will, uint64_t room) noexcept nogil:
    """Append it to the list, with `room` for bytes of the caller behind it. Returns NULL without memory."""
    cdef RestoredWill** at
    cdef RestoredWill* w
    l.t.last_will = max(l.t.last_will, number)
    restored_will_drop(l.b, restored_will_at(l.t, number))       # an older copy
    at = restored_will_at(l.t, number)
    w = <RestoredWill*>calloc(1, sizeof(RestoredWill) + room)
    if w == NULL:
        return NULL
    at[0] = w
    w.number = number
    w.session = session_new(&l.b.sessions, will.id)
    if w.session == NULL:
        return NULL
    w.session.flags |= SESSION_ENDED
    w.session.access_epoch = l.b.access_epoch - 1
    w.session.will = message_of(l, &will.message, 0)
    if w.session.will == NULL or origin_restore(l, w.session, will.security, will.user, will.mount) != 0:
        return NULL
    return w


cdef int undelivered_apply(Load* l, View body) noexcept nogil:
    """Keep a message that some sessions lack. A session that has ended stands for its publisher."""
    cdef RecordUndelivered r
    cdef RestoredWill* w
    cdef uint8_t* room
    if record_undelivered_read(body, &r) != 0:
        return ODD
    w = restored_will_new(l, r.number, &r.will, <uint64_t>r.sessions.n + r.group.n)
    if w == NULL:
        return -1
    w.undelivered = 1
    w.unjournalled = r.unjournalled
    w.retained = r.will.message.flags & RECORD_RETAINED_SET != 0
    w.session.will.source_hash = w.session.hash
    room = <uint8_t*>(w + 1)
    w.sessions.p, w.sessions.n = room, r.sessions.n
    w.group.p, w.group.n = room + r.sessions.n, r.group.n
    memcpy(room, r.sessions.p, r.sessions.n)
    memcpy(room + r.sessions.n, r.group.p, r.group.n)
    return 0


cdef int waiting_will_gone_apply(Load* l, View body) noexcept nogil:
    cdef uint64_t number
    if record_waiting_will_gone_read(body, &number) != 0:
        return ODD
    l.t.last_will = max(l.t.last_will, number)
    restored_will_drop(l.b, restored_will_at(l.t, number))
    return 0


cdef int publisher_apply(Load* l, View body) noexcept nogil:
    cdef RecordFrom r
    if record_from_read(body, &r) != 0:
        return ODD
    retained_from(l.b, &r)
    return 0


cdef int streams_apply(Load* l, View body) noexcept nogil:
    """Remember the positions of the streams. The last record counts: records behind that position in the journals were never
    committed."""
    cdef uint8_t* p
    if record_streams_check(body) != 0:
        return ODD
    if body.n > l.streams_cap:
        p = <uint8_t*>realloc(<void*>l.t.streams.p, body.n)
        if p == NULL:
            return -1
        l.t.streams.p = p
        l.streams_cap = body.n
    memcpy(<void*>l.t.streams.p, body.p, body.n)
    l.t.streams.n = body.n
    return 0


# ---------------------------------------------------------------- all of it

cdef int session_record_apply(void* ctx, const StoreRecord* r) noexcept nogil:
    cdef Load* l = <Load*>ctx
    cdef int rc
    if r.kind != RECORD_SESSION and r.kind != RECORD_END:
        return 0
    if owner_apply(l, r) != 0:
        return -1
    rc = session_apply(l, r.body) if r.kind == RECORD_SESSION else end_apply(l, r.body)
    if rc > 0:
        l.out.odd += 1
        return 0
    return rc


cdef int record_apply(void* ctx, const StoreRecord* r) noexcept nogil:
    cdef Load* l = <Load*>ctx
    cdef int rc = 0
    l.out.records += 1
    if r.kind == RECORD_MSG:
        rc = msg_apply(l, r.body, r.lsn)
    elif r.kind == RECORD_ACKS:
        rc = acks_apply(l, r.body)
    elif r.kind == RECORD_GATED:
        rc = gated_apply(l, r.body)
    elif r.kind == RECORD_GATED_DONE:
        rc = gated_done_apply(l, r.body)
    elif r.kind == RECORD_SESSION or r.kind == RECORD_END:
        rc = owner_apply(l, r)
    elif r.kind == RECORD_SUB or r.kind == RECORD_UNSUB:
        rc = sub_apply(l, r.body, r.kind == RECORD_SUB)
    elif r.kind == RECORD_RELEASED:
        rc = released_apply(l, r.body)
    elif r.kind == RECORD_INBOX or r.kind == RECORD_INBOX_DONE:
        rc = inbox_apply(l, r.body, r.kind == RECORD_INBOX)
    elif r.kind == RECORD_RETAINED_GONE:
        rc = retained_gone_apply(l, r.body)
    elif r.kind == RECORD_WILL or r.kind == RECORD_WILL_GONE:
        rc = will_apply(l, r.body, r.kind == RECORD_WILL)
    elif r.kind == RECORD_RETAINED_FROM:
        rc = publisher_apply(l, r.body)
    elif r.kind == RECORD_STREAMS:
        rc = streams_apply(l, r.body)
    elif r.kind == RECORD_CLIENT_WILL:
        rc = client_will_apply(l, r.body)
    elif r.kind == RECORD_CLIENT_WILL_GONE:
        rc = client_will_gone_apply(l, r.body)
    elif r.kind == RECORD_WAITING_WILL or r.kind == RECORD_LINK_WILL:
        rc = waiting_will_apply(l, r.body, r.kind == RECORD_LINK_WILL)
    elif r.kind == RECORD_WAITING_WILL_GONE:
        rc = waiting_will_gone_apply(l, r.body)
    elif r.kind == RECORD_UNDELIVERED:
        rc = undelivered_apply(l, r.body)
    elif RECORD_LINK_RUN <= r.kind <= RECORD_LINK_CHOICE:
        rc = link_record_apply(l.b, r.kind, r.body)
    if rc > 0:
        l.out.odd += 1
        return 0
    return rc


cdef void deliveries_restore(Load* l, Session* s, bint was_connected) noexcept nogil:
    cdef Queue* q = &s.queue
    cdef Delivery* d
    cdef uint32_t i
    if s.unsent != 0 and (q.floor == q.tail or <int>(s.unsent - q.tail) > 0):
        d = queue_place(q, s.unsent - 1)     # positions continue where they were
    i = q.floor
    while i != q.tail:
        d = queue_at(q, i)
        if d.state == D_WAITING and d.qos & 3 and (was_connected or <int>(i - s.unsent) < 0):
            d.state = D_SENT
        i += 1
    queue_restored(q)
    s.logged = s.safe = s.paged = q.tail
    if was_connected:
        s.unsent = q.tail
    l.out.messages += q.pending


cdef void session_restore(Load* l, Session* s) noexcept nogil:
    cdef bint was_connected = s.access_turn
    s.access_turn = 0
    deliveries_restore(l, s, was_connected)
    # upper limit, for the case that the clock was set back
    cdef uint64_t last_ms = l.b.reactor.now_ms + <uint64_t>s.expiry_s * 1000 + 1
    if s.flags & SESSION_BRIDGE:
        s.ends_ms = 1           # ends now, unless its bridge still exists, which takes the session before any timer (local_begin)
    elif was_connected:
        if s.expiry_s == 0:
            s.will_due_ms = l.b.reactor.now_ms       # a session that has ended waits for no delay
        s.ends_ms = 0 if s.expiry_s == EXPIRY_NEVER else last_ms
    elif s.ends_ms:
        s.ends_ms = min(last_ms, monotonic_of(l.b, s.ends_ms, l.now_wall_ms))
    share_restored(l.b, s)
    session_watch(l.b, s)        # also for a session that is over already: its will is sent first
    l.out.sessions += 1


cdef int free_ids_restore(Durable* t) noexcept nogil:
    """Fill the list of free store session ids. Returns -1 if there is no memory."""
    cdef uint32_t store_session_id
    cdef uint32_t* free_store_ids
    for store_session_id in range(1, t.n_store_ids):
        if t.sessions_by_store_id[store_session_id] != NULL:
            continue
        if t.n_free == t.cap_free:
            free_store_ids = <uint32_t*>array_grown(t.free_store_ids, &t.cap_free, sizeof(uint32_t))
            if free_store_ids == NULL:
                return -1
            t.free_store_ids = free_store_ids
        t.free_store_ids[t.n_free] = store_session_id
        t.n_free += 1
    return 0


cdef int durable_recover(Broker* b, StoreLoss* loss, Recovered* out) noexcept nogil:
    cdef Load l
    cdef uint64_t at = 0
    cdef Session* s
    cdef int rc
    cdef StoreLoss first_loss
    cdef uint32_t store_session_id
    memset(out, 0, sizeof(Recovered))
    memset(&l, 0, sizeof(Load))
    l.b = b
    l.t = durable_of(b)
    l.now_wall_ms = clock_wall_ms()
    l.out = out
    l.t.loading = 1
    rc = store_scan(l.t.store.dir, &l.t.store.files, 0, session_record_apply, &l, &first_loss, l.t.store.shared.why, STORE_WHY_MAX)
    for store_session_id in range(l.n_histories):
        l.histories[store_session_id].owner = 0
    l.second_walk = 1
    if rc == 0:
        rc = store_recover(&l.t.store, record_apply, &l, loss)
    free(l.histories)
    if rc == 0:
        rc = store_id_reserve(l.t, 0) | free_ids_restore(l.t) | (0 if store_session_id_reserve(b) else -1)
    l.t.loading = 0
    if rc != 0:
        return -1
    s = sessions_first(&b.sessions, &at)
    while s != NULL:
        if s.store_session_id:
            session_restore(&l, s)
        out.denied += s.security == b.denied
        s = sessions_next(&b.sessions, s, &at)
    out.subscriptions = b.index.stats.subscriptions + b.index.stats.shared
    out.retained = b.retained.count
    return 0
