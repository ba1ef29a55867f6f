"""What of the oldest segment still counts is recorded again, so that the segment can go. Knows what a record is about and whether that is still
so; not segments.

A record is copied when what it says is true now: a delivery that is not done, a retained message that is its topic's, a session, a
subscription, a will, an inbound message that are there. All else is dropped: only the oldest segment ever goes, so whatever took its place, or
said its end, lies behind it. Of a session and of a subscription what is true *now* is recorded, once per segment.
Cost: a slice is up to RECORDS records, of a chunk of 256 KiB.
"""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy

from cext.base.hash cimport HashKey, hash_bytes
from cext.base.view cimport View
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport Client
from cext.broker.core.durable cimport Durable, PAUSE_MS, PENDING, Pending, changes_of, durable_of, lacks_since, session_at
from cext.broker.core.job_state cimport JOB_FANOUT, Job
from cext.broker.core.session_refs cimport session_client
from cext.broker.persist.persist cimport (
    pending_delivery_release, persist_inbound, persist_reserve, persist_subscription, persist_will, record_at, session_recorded,
)
from cext.broker.persist.streams cimport streams_again
from cext.broker.routing.retain cimport retained_from_bytes, retained_from_kept, retained_message
from cext.session.message cimport Message
from cext.session.queue cimport (
    D_DONE, D_RELEASED, Delivery, InboundQos2, delivery_message, delivery_moved, inbox_find, is_paged, paged_lsn, queue_at,
)
from cext.session.record cimport (
    RECORD_INBOX, RECORD_MSG, RECORD_RELEASED, RECORD_RETAINED_SET, RECORD_SESSION, RECORD_STREAMS, RECORD_SUB, RECORD_WILL,
    RecordAck, RecordEntry, RecordInbox, RecordMessage, RecordMsg, RecordSession, RecordSub, RecordWill, record_entry_next,
    record_entry_put, record_entry_size, record_inbox_read, record_msg_end_put, record_msg_put, record_msg_read,
    record_msg_size, record_released_check, record_released_next, record_session_read, record_sub_read, record_will_read,
)
from cext.session.session cimport Session
from cext.store.store cimport StoreRecord, store_clean_again, store_clean_chunk, store_clean_done
from cext.topic.index cimport Entry, index_entry
from cext.topic.name cimport Filter, filter_parse

cdef enum:
    RECORDS = 256
    SEEN_MIN = 1024


cdef Delivery* pending_delivery_at(Durable* t, uint32_t store_session_id, uint32_t position) noexcept nogil:
    """NULL: it is done."""
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


cdef bint is_of(Durable* t, const Delivery* d, const RecordMsg* r, uint64_t lsn) noexcept nogil:
    """Does this record say what is owed there? Not if a newer copy does, or a newer value has taken the place of that message; one whose
    record is still to be written comes behind the copy."""
    cdef const Message* m = delivery_message(d)
    if m == NULL:
        return is_paged(d) and paged_lsn(d) == lsn
    return m.lsn == lsn or m.lsn & PENDING or same(&r.message, m)


cdef inline Delivery* said_of(Durable* t, const RecordEntry* e, const RecordMsg* r, uint64_t lsn) noexcept nogil:
    """The delivery for which this record must be there; NULL: none is."""
    cdef Delivery* d = pending_delivery_at(t, e.store_session_id, e.position)
    return d if d != NULL and d.state != D_RELEASED and is_of(t, d, r, lsn) else NULL


cdef inline bint same(const RecordMessage* r, const Message* m) noexcept nogil:
    return r.payload.n == m.payload.n and r.topic.n == m.topic.n and r.props.n == m.props.n \
        and memcmp(r.payload.p, m.payload.p, m.payload.n) == 0 and memcmp(r.topic.p, m.topic.p, m.topic.n) == 0 \
        and (m.props.n == 0 or memcmp(r.props.p, m.props.p, m.props.n) == 0)


cdef void moved(Durable* t, Delivery* d, uint64_t before, uint64_t lsn) noexcept nogil:
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


cdef inline View kind_of_message() noexcept nogil:
    # what is_first tells messages from subscriptions by: no filter is like it
    cdef View v
    v.p = <const uint8_t*>"\0msg"
    v.n = 4
    return v


cdef void message_again(Broker* b, Durable* t, const StoreRecord* old) noexcept nogil:
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
        elif is_of(t, d, &r, old.lsn):
            exact = exact or is_paged(d) or d.message.lsn == old.lsn
            if n == 0:
                first = <uint64_t>e.store_session_id << 32 | e.position
            bytes += record_entry_size(&e)
            n += 1
    if n == 0 and not retained:
        return
    # two copies come of a kill between a copy and the end of its segment: what is live of one is live of the other, unless somebody goes by this one
    if not retained and not exact and not is_first(b, t, first, kind_of_message()):
        return
    r.message.flags &= ~<uint32_t>RECORD_RETAINED_SET
    if retained:
        r.message.flags |= RECORD_RETAINED_SET
    bytes = record_msg_size(&r.message, bytes)
    if not persist_reserve(b, NULL, bytes + (retained_from_bytes(b, r.message.topic) if retained else 0)):
        return
    out = record_at(b, RECORD_MSG, bytes, &lsn)
    if out == NULL:
        return
    out = record_msg_put(out, &r.message, n)
    entries = r.entries
    while record_entry_next(&entries, &e):
        if said_of(t, &e, &r, old.lsn) != NULL:
            out = record_entry_put(out, &e)
    record_msg_end_put(out, &r.message)
    entries = r.entries          # a message in memory may be that of several: nothing is noted before all were looked at
    while record_entry_next(&entries, &e):
        d = said_of(t, &e, &r, old.lsn)
        if d != NULL:
            moved(t, d, old.lsn, lsn)
    if retained:
        retained_message(b, r.message.topic).lsn = lsn
        retained_from_kept(b, r.message.topic)


cdef void released_again(Broker* b, Durable* t, View body) noexcept nogil:
    cdef RecordAck a
    cdef Delivery* d
    if record_released_check(body) != 0:
        return
    while record_released_next(&body, &a):
        d = pending_delivery_at(t, a.store_session_id, a.position)
        if d != NULL and d.state == D_RELEASED:
            pending_delivery_release(b, session_at(t, a.store_session_id), d, a.position)


# ---------------------------------------------------------------- sessions and what is theirs

cdef void session_again(Broker* b, Durable* t, View body) noexcept nogil:
    cdef RecordSession r
    cdef Session* s
    if record_session_read(body, &r) != 0:
        return
    s = session_at(t, r.store_session_id)
    if s != NULL and s.cleaned != t.clean_pass:
        s.cleaned = t.clean_pass
        session_recorded(b, s)


cdef bint seen_grow(Durable* t) noexcept nogil:
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
    """Was this not written again in this pass? 128 bits of keyed hash stand for it: nobody can make two that are the same."""
    cdef HashKey other
    cdef uint64_t first, second
    cdef uint32_t at
    other.k0 = b.key.k1
    other.k1 = ~b.key.k0
    about *= <uint64_t>0x9E3779B97F4A7C15u
    first = (hash_bytes(&b.key, name.p, name.n) ^ about) | 1
    second = hash_bytes(&other, name.p, name.n) ^ about
    if (t.seen == NULL or t.n_seen * 2 > t.seen_mask) and not seen_grow(t):
        return 1                 # once more than need be
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
    cdef View nothing
    nothing.p = NULL
    nothing.n = 0
    return is_first(b, t, <uint64_t>store_session_id << 32 | <uint64_t>kind << 16 | pid, nothing)


cdef void subscription_again(Broker* b, Durable* t, View body) noexcept nogil:
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


cdef void inbox_again(Broker* b, Durable* t, View body) noexcept nogil:
    cdef RecordInbox r
    cdef Session* s
    cdef InboundQos2* h
    cdef Job* j = NULL
    if record_inbox_read(body, &r) != 0:
        return
    s = session_at(t, r.store_session_id)
    h = inbox_find(&s.inbox, r.pid) if s != NULL else NULL
    if s != NULL and h == NULL:  # released, and on its way?
        j = b.jobs
        while j != NULL and not (j.kind == JOB_FANOUT and j.session == s and j.released_pid == r.pid):
            j = j.next
    if (h != NULL or j != NULL) and is_first_of(b, t, r.store_session_id, RECORD_INBOX, r.pid):
        persist_inbound(b, s, r.pid, h.message if h != NULL else j.message)


cdef void will_again(Broker* b, Durable* t, View body) noexcept nogil:
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


# ---------------------------------------------------------------- the walk

cdef void look_at(Broker* b, Durable* t, const StoreRecord* r) noexcept nogil:
    if r.kind == RECORD_MSG:
        message_again(b, t, r)
    elif r.kind == RECORD_RELEASED:
        released_again(b, t, r.body)
    elif r.kind == RECORD_SESSION:
        session_again(b, t, r.body)
    elif r.kind == RECORD_SUB:
        subscription_again(b, t, r.body)
    elif r.kind == RECORD_INBOX:
        inbox_again(b, t, r.body)
    elif r.kind == RECORD_WILL:
        will_again(b, t, r.body)
    elif r.kind == RECORD_STREAMS and b.streams != NULL:
        streams_again(b)


cdef bint clean_some(Broker* b) noexcept nogil:
    """1: there is more of the segment to look at."""
    cdef Durable* t = durable_of(b)
    cdef StoreRecord records[RECORDS]
    cdef uint32_t n, i
    cdef uint64_t changes = changes_of(b)
    if b.reactor.now_ms < t.pause_until_ms:
        return 0                 # the next commit comes back to it
    n = store_clean_chunk(&t.store, records, RECORDS)
    for i in range(n):
        look_at(b, t, &records[i])
    if lacks_since(b, changes):
        store_clean_again(&t.store)      # without memory for all that counts of it the segment must not go
        t.pause_until_ms = b.reactor.now_ms + PAUSE_MS
    elif store_clean_done(&t.store):
        return 1
    t.clean_pass += 1            # the segment was looked at to its end, or what comes next is looked at anew
    free(t.seen)
    t.seen = NULL
    t.n_seen = t.seen_mask = 0
    return 0
