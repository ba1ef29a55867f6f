"""Copy the live records of the oldest segment, so that the segment can be deleted. This module knows what a record is about and
whether it is still true. It does not know segments.

A record is copied if its content is true now: a delivery that is not done, a retained message that is its topic's current one, an
existing session, subscription, will or inbound message. All other records are dropped. Only the oldest segment is ever deleted,
so a record that replaces or ends such a thing is in a later segment. For a session and for a subscription, the copy contains the
*current* state, once per segment.
On a full disk a pass before counts the copies (Durable.counting): the same functions run, but record_room appends nothing.
Cost: a slice is up to RECORDS records of a chunk of 256 KiB.
"""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy, memset

from cext.base.hash cimport HashKey, hash_bytes
from cext.base.view cimport View
from cext.broker.auth.auth_requests cimport AuthRequest, auth_request_of
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport Client, Will
from cext.broker.core.durable cimport Durable, MEMORY_PAUSE_MS, PENDING, Pending, RestoredWill, changes_of, durable_of, lacks_since, session_at
from cext.broker.core.job_state cimport JOB_FANOUT, Job
from cext.broker.core.session_refs cimport session_client
from cext.broker.links.records cimport link_record_copy
from cext.broker.arrivals.waits cimport routed_message
from cext.broker.arrivals.wills cimport is_sent_will
from cext.broker.persist.persist cimport (
    client_will_recorded, pending_delivery_release, persist_inbound, persist_reserve, persist_subscription, persist_waiting_will, persist_will,
    record, record_room, session_recorded,
)
from cext.broker.persist.streams cimport streams_again
from cext.broker.routing.retain cimport retained_from_bytes, retained_from_record, retained_message
from cext.broker.storage.gated cimport gated_copy
from cext.session.message cimport Message
from cext.session.queue cimport (
    D_DONE, D_RELEASED, Delivery, InboundQos2, delivery_message, delivery_moved, inbox_find, is_paged, paged_lsn, queue_at,
)
from cext.session.record cimport (
    RECORD_CLIENT_WILL, RECORD_GATED, RECORD_INBOX, RECORD_LINK_CHOICE, RECORD_LINK_RUN, RECORD_LINK_WILL, RECORD_MSG, RECORD_RELEASED, RECORD_RETAINED_SET, RECORD_SESSION, RECORD_STREAMS,
    RECORD_SUB, RECORD_WAITING_WILL, RECORD_WILL, RecordAck, RecordClientWill, RecordEntry, RecordInbox, RecordMessage, RecordMsg, RecordSession,
    RecordSub, RecordWaitingWill, RecordWill, record_client_will_read, record_entry_next, record_entry_put, record_entry_size, record_inbox_read,
    record_msg_end_put, record_msg_put, record_msg_read, record_msg_size, record_released_check, record_released_next,
    record_session_read, record_sub_read, record_waiting_will_read, record_will_read,
)
from cext.session.session cimport SESSION_WILL_STORED, Session, sessions_find
from cext.store.state cimport StoreRecord
from cext.store.store cimport store_clean_again, store_clean_chunk, store_clean_count, store_clean_counts, store_clean_done
from cext.topic.index cimport Entry, index_entry
from cext.topic.name cimport Filter, filter_parse

cdef enum:
    RECORDS = 256
    SEEN_MIN = 1024


cdef Delivery* pending_delivery_at(Durable* t, uint32_t store_session_id, uint32_t position) noexcept nogil:
    """Return the delivery at this position of the session; NULL = it is done."""
    cdef Session* s = session_at(t, store_session_id)
    cdef Delivery* d
    if s == NULL or <int>(position - s.queue.floor) < 0 or <int>(position - s.queue.tail) >= 0:
        return NULL
    d = queue_at(&s.queue, position)
    return d if d.state != D_DONE else NULL


# ---------------------------------------------------------------- messages

cdef bint is_retained(Broker* b, const RecordMsg* r, uint64_t lsn) noexcept nogil:
    cdef Message* m
    if not r.message.flags & RECORD_RETAINED_SET:
        return 0
    m = retained_message(b, r.message.topic)
    return m != NULL and m.lsn == lsn


cdef bint is_recorded_by(Durable* t, const Delivery* d, const RecordMsg* r, uint64_t lsn) noexcept nogil:
    """Return whether this record is the one that stores the delivery. It is not if there is a newer copy, or a newer value has
    replaced the message. A message whose record is still to be written gets that record behind the copy."""
    cdef const Message* m = delivery_message(d)
    if m == NULL:
        return is_paged(d) and paged_lsn(d) == lsn
    return m.lsn == lsn or m.lsn & PENDING or same_record(&r.message, m)


cdef inline Delivery* delivery_of_entry(Durable* t, const RecordEntry* e, const RecordMsg* r, uint64_t lsn) noexcept nogil:
    """Return the delivery that needs this record; NULL = none."""
    cdef Delivery* d = pending_delivery_at(t, e.store_session_id, e.position)
    return d if d != NULL and d.state != D_RELEASED and is_recorded_by(t, d, r, lsn) else NULL


cdef inline bint same_record(const RecordMessage* r, const Message* m) noexcept nogil:
    return r.payload.n == m.payload.n and r.topic.n == m.topic.n and r.props.n == m.props.n \
        and memcmp(r.payload.p, m.payload.p, m.payload.n) == 0 and memcmp(r.topic.p, m.topic.p, m.topic.n) == 0 \
        and (m.props.n == 0 or memcmp(r.props.p, m.props.p, m.props.n) == 0)


cdef void delivery_relocate(Durable* t, Delivery* d, uint64_t before, uint64_t lsn) noexcept nogil:
    cdef Message* m = delivery_message(d)
    cdef Pending* p
    if is_paged(d):
        delivery_moved(d, lsn)
    elif m.lsn == before:
        m.lsn = lsn
    elif m.lsn & PENDING:
        p = &t.pendings[m.lsn & ~<uint64_t>PENDING]
        if p.lsn_before == before:
            p.lsn_before = lsn


cdef inline View marker(const char* name) noexcept nogil:
    # is_first distinguishes messages and waiting wills from subscriptions by a name that is no valid filter
    cdef View v
    v.p = <const uint8_t*>name
    v.n = 4
    return v


cdef void message_copy(Broker* b, Durable* t, const StoreRecord* old) noexcept nogil:
    cdef RecordMsg r
    cdef RecordEntry e
    cdef View entries
    cdef Delivery* d
    cdef uint64_t bytes = 0
    cdef uint64_t lsn
    cdef uint32_t n = 0
    cdef uint64_t first = 0
    cdef bint retained, exact = 0
    cdef uint8_t* out
    if record_msg_read(old.body, &r) != 0:
        return
    retained = is_retained(b, &r, old.lsn)
    entries = r.entries
    while record_entry_next(&entries, &e):
        d = pending_delivery_at(t, e.store_session_id, e.position)
        if d == NULL:
            continue
        if d.state == D_RELEASED:
            pending_delivery_release(b, session_at(t, e.store_session_id), d, e.position)
        elif is_recorded_by(t, d, &r, old.lsn):
            exact = exact or is_paged(d) or d.message.lsn == old.lsn
            if n == 0:
                first = <uint64_t>e.store_session_id << 32 | e.position
            bytes += record_entry_size(&e)
            n += 1
    if n == 0 and not retained:
        return
    # A kill between a copy and the deletion of its segment leaves two copies. The live entries of one are live in the other, so
    # one is enough, unless a delivery refers to exactly this one.
    if not retained and not exact and not is_first(b, t, first, marker("\0msg")):
        return
    r.message.flags &= ~<uint32_t>RECORD_RETAINED_SET
    if retained:
        r.message.flags |= RECORD_RETAINED_SET
    bytes = record_msg_size(&r.message, bytes)
    if not persist_reserve(b, NULL, bytes + (retained_from_bytes(b, r.message.topic) if retained else 0)):
        return
    out = record_room(b, RECORD_MSG, bytes, &lsn)
    if out == NULL:
        return
    out = record_msg_put(out, &r.message, n)
    entries = r.entries
    while record_entry_next(&entries, &e):
        if delivery_of_entry(t, &e, &r, old.lsn) != NULL:
            out = record_entry_put(out, &e)
    record_msg_end_put(out, &r.message)
    # a message in memory may belong to several entries: positions are updated only after all entries were looked at
    entries = r.entries
    while record_entry_next(&entries, &e):
        d = delivery_of_entry(t, &e, &r, old.lsn)
        if d != NULL:
            delivery_relocate(t, d, old.lsn, lsn)
    if retained:
        retained_message(b, r.message.topic).lsn = lsn
        retained_from_record(b, r.message.topic)


cdef void released_copy(Broker* b, Durable* t, View body) noexcept nogil:
    cdef RecordAck a
    cdef Delivery* d
    if record_released_check(body) != 0:
        return
    while record_released_next(&body, &a):
        d = pending_delivery_at(t, a.store_session_id, a.position)
        if d != NULL and d.state == D_RELEASED:
            pending_delivery_release(b, session_at(t, a.store_session_id), d, a.position)


# ---------------------------------------------------------------- sessions and their state

cdef void session_copy(Broker* b, Durable* t, View body) noexcept nogil:
    cdef RecordSession r
    cdef Session* s
    if record_session_read(body, &r) != 0:
        return
    s = session_at(t, r.store_session_id)
    if s != NULL and s.cleaned != t.clean_pass:
        s.cleaned = t.clean_pass
        session_recorded(b, s)


cdef bint copied_grow(Durable* t) noexcept nogil:
    cdef uint32_t cap = (t.seen_mask + 1) * 2 if t.seen != NULL else SEEN_MIN
    cdef uint64_t* pairs = <uint64_t*>calloc(<size_t>cap * 2, sizeof(uint64_t))
    cdef uint32_t i, at
    if pairs == NULL:
        return 0
    for i in range(t.seen_mask + 1 if t.seen != NULL else 0):
        if t.seen[2 * i]:
            at = <uint32_t>t.seen[2 * i] & (cap - 1)
            while pairs[2 * at]:
                at = (at + 1) & (cap - 1)
            memcpy(&pairs[2 * at], &t.seen[2 * i], 16)
    free(t.seen)
    t.seen = pairs
    t.seen_mask = cap - 1
    return 1


cdef bint is_first(Broker* b, Durable* t, uint64_t about, View name) noexcept nogil:
    """Return whether this item was not copied yet in this pass. 128 bits of keyed hash identify it; a client cannot make two that
    are equal."""
    cdef HashKey other
    cdef uint64_t first, second
    cdef uint32_t at
    other.k0 = b.key.k1
    other.k1 = ~b.key.k0
    about *= <uint64_t>0x9E3779B97F4A7C15u
    first = (hash_bytes(&b.key, name.p, name.n) ^ about) | 1
    second = hash_bytes(&other, name.p, name.n) ^ about
    if (t.seen == NULL or t.n_seen * 2 > t.seen_mask) and not copied_grow(t):
        return 1                 # no memory: it is copied once more than needed
    at = <uint32_t>(second & t.seen_mask)
    while t.seen[2 * at]:
        if t.seen[2 * at] == first and t.seen[2 * at + 1] == second:
            return 0
        at = (at + 1) & t.seen_mask
    t.seen[2 * at] = first
    t.seen[2 * at + 1] = second
    t.n_seen += 1
    return 1


cdef inline bint is_first_of(Broker* b, Durable* t, uint32_t store_session_id, int kind, uint16_t pid) noexcept nogil:
    cdef View no_name
    no_name.p = NULL
    no_name.n = 0
    return is_first(b, t, <uint64_t>store_session_id << 32 | <uint64_t>kind << 16 | pid, no_name)


cdef void subscription_copy(Broker* b, Durable* t, View body) noexcept nogil:
    cdef RecordSub r
    cdef Filter f
    cdef Entry* e
    cdef Session* s
    if record_sub_read(body, &r) != 0 or filter_parse(r.filter.p, r.filter.n, &f) != 0:
        return
    s = session_at(t, r.store_session_id)
    e = index_entry(b.index, &s.owner, &f) if s != NULL else NULL
    if e != NULL and is_first(b, t, <uint64_t>r.store_session_id << 32, r.filter):
        persist_subscription(b, s, r.filter, e.options, e.sub_id)


cdef void inbox_copy(Broker* b, Durable* t, View body) noexcept nogil:
    cdef RecordInbox r
    cdef Session* s
    cdef InboundQos2* h
    cdef Job* j = NULL
    cdef Message* m = NULL
    cdef uint64_t identity = 0
    if record_inbox_read(body, &r) != 0:
        return
    s = session_at(t, r.store_session_id)
    h = inbox_find(&s.inbox, r.pid) if s != NULL else NULL
    if s != NULL and h == NULL:  # it was released; a fan-out job may still deliver it
        j = b.jobs
        while j != NULL and not (j.kind == JOB_FANOUT and j.session == s and j.released_pid == r.pid):
            j = j.next
    if h != NULL:
        m = h.message
        identity = h.identity
    elif j != NULL:
        m = j.message
        identity = j.released_identity
    elif s != NULL:
        m = routed_message(b, s, r.pid, &identity)
    if (h != NULL or m != NULL) and is_first_of(b, t, r.store_session_id, RECORD_INBOX, r.pid):
        persist_inbound(b, s, r.pid, m, identity)


cdef void will_copy(Broker* b, Durable* t, View body) noexcept nogil:
    cdef RecordWill r
    cdef Session* s
    cdef Client* c
    if record_will_read(body, &r) != 0:
        return
    s = session_at(t, r.store_session_id)
    if s == NULL or not is_first_of(b, t, r.store_session_id, RECORD_WILL, 0):
        return
    c = session_client(s)
    if s.will != NULL:
        persist_will(b, s, s.will, r.delay_s, s.will_due_ms)
    elif c != NULL and c.will != NULL:
        persist_will(b, s, c.will.message, c.will.delay_s, 0)


cdef void client_will_copy(Broker* b, Durable* t, View body) noexcept nogil:
    cdef RecordClientWill r
    cdef Session* s
    cdef Client* c
    cdef Will restored          # by the start; its session has no client, and sends the will when the broker serves
    if record_client_will_read(body, &r) != 0:
        return
    s = sessions_find(&b.sessions, r.id)
    if s == NULL or not s.flags & SESSION_WILL_STORED or not is_first(b, t, RECORD_CLIENT_WILL, r.id):
        return
    c = session_client(s)
    if s.will != NULL:
        memset(&restored, 0, sizeof(restored))
        restored.message = s.will
        restored.has_expiry = r.has_expiry
        restored.expiry_s = r.expiry_s
        client_will_recorded(b, s, &restored)
    elif c != NULL and c.will != NULL:
        client_will_recorded(b, s, c.will)


cdef void waiting_will_copy(Broker* b, Durable* t, View body) noexcept nogil:
    cdef RecordWaitingWill r
    cdef AuthRequest* q
    cdef RestoredWill* w = t.restored_wills
    if record_waiting_will_read(body, &r) != 0 or not is_first(b, t, r.number, marker("\0wil")):
        return
    q = auth_request_of(b, r.handle)
    if q != NULL and q.waiting_will == r.number:
        persist_waiting_will(b, q.session, q.message, r.number, r.handle)
        return
    while w != NULL and w.number != r.number:
        w = w.next
    if w != NULL:
        persist_waiting_will(b, w.session, w.session.will, r.number, 0)


cdef void sent_will_copy(Broker* b, Durable* t, View body) noexcept nogil:
    cdef RecordWaitingWill r
    cdef uint8_t* out
    if record_waiting_will_read(body, &r) != 0 or not is_first(b, t, r.number, marker("\0wil")):
        return
    if restored_will_at(t, r.number)[0] != NULL or is_sent_will(b, r.number):
        out = record(b, RECORD_LINK_WILL, body.n)
        if out != NULL:
            memcpy(out, body.p, body.n)


# ---------------------------------------------------------------- the walk over the segment

cdef void record_copy(Broker* b, Durable* t, const StoreRecord* r) noexcept nogil:
    if r.kind == RECORD_MSG:
        message_copy(b, t, r)
    elif r.kind == RECORD_GATED:
        gated_copy(b, t, r)
    elif r.kind == RECORD_RELEASED:
        released_copy(b, t, r.body)
    elif r.kind == RECORD_SESSION:
        session_copy(b, t, r.body)
    elif r.kind == RECORD_SUB:
        subscription_copy(b, t, r.body)
    elif r.kind == RECORD_INBOX:
        inbox_copy(b, t, r.body)
    elif r.kind == RECORD_WILL:
        will_copy(b, t, r.body)
    elif r.kind == RECORD_CLIENT_WILL:
        client_will_copy(b, t, r.body)
    elif r.kind == RECORD_WAITING_WILL:
        waiting_will_copy(b, t, r.body)
    elif r.kind == RECORD_LINK_WILL:
        sent_will_copy(b, t, r.body)
    elif RECORD_LINK_RUN <= r.kind <= RECORD_LINK_CHOICE:
        link_record_copy(b, r.kind, r.body)
    elif r.kind == RECORD_STREAMS and b.streams != NULL and not t.counting:
        streams_again(b)


cdef bint clean_some(Broker* b) noexcept nogil:
    """Copy one slice of the segment. Returns 1 if there is more."""
    cdef Durable* t = durable_of(b)
    cdef StoreRecord records[RECORDS]
    cdef uint32_t n, i
    cdef uint64_t changes = changes_of(b)
    cdef bint more = 0
    if b.reactor.now_ms < t.pause_until_ms:
        return 0                 # the next commit continues
    t.counting = store_clean_counts(&t.store)
    t.counted = 0
    n = store_clean_chunk(&t.store, records, RECORDS)
    for i in range(n):
        record_copy(b, t, &records[i])
    if t.counting:
        t.counting = 0
        more = store_clean_count(&t.store, t.counted)
        if more and store_clean_counts(&t.store):
            return 1
    elif lacks_since(b, changes):
        store_clean_again(&t.store)      # no memory for all live records: the segment must stay
        t.pause_until_ms = b.reactor.now_ms + MEMORY_PAUSE_MS
    elif store_clean_done(&t.store):
        return 1
    t.clean_pass += 1            # the segment is counted or complete, or its next pass begins at the start
    free(t.seen)
    t.seen = NULL
    t.n_seen = t.seen_mask = 0
    return more
