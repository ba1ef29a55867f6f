"""Keep the account of each durable session: the messages published to it with QoS 1 and 2, and what became of them.

    restored + published = acknowledged + expired + dropped + gone + queued

The last term is the queue's own count. If both sides differ, one of them has a defect, and readers of the stream see it.

This module knows sessions and counters. It does not know packets, or how a record is written. A record is written when a client leaves, when its
session ends, and UPDATE_MS after the first change since the last record: changed accounts are in a list by that time, and one timer works it off,
ACCOUNTS_SLICE at a time. Each process begins a new counting: a kill loses the same on both sides.
Cost: 104 bytes per such session while a stream has events, in blocks that are not freed; about 5 ns per count and 1 us per record. Sessions that
end with their connection cost nothing; without events a count costs one branch.
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memset, strlen

from cext.base.clock cimport clock_wall_us
from cext.base.view cimport View
from cext.base.wheel cimport timer_armed, wheel_add, wheel_remove
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport TIMER_ACCOUNTS
from cext.broker.core.durable cimport durable_of, session_at
from cext.broker.persist.events cimport event_started_write, event_subscribed_write
from cext.broker.persist.streams cimport (
    stream_event, streams_events_fit, streams_events_lose, streams_filters, streams_want_events,
)
from cext.journal.record cimport JOURNAL_ACCOUNT
from cext.session.queue cimport D_DONE, Queue, queue_at
from cext.session.session cimport Session
from cext.topic.index cimport SUBSCRIPTION_TEXT_BYTES, Subscription, subscription_read

cdef enum:
    ACCOUNT_BLOCK = 64
    UPDATE_MS = 60000
    CROWDED_MS = 250             # pause before the next check for room in the stream
    ACCOUNTS_SLICE = 1000                 # accounts checked, or records written, per slice
    FOUND_SUBSCRIPTIONS_MAX = 4096      # subscriptions reported for one session; the rest is a gap
    ACCOUNT_PAYLOAD_MAX = 512


cdef inline Accounts* accounts_of(Broker* b) noexcept nogil:
    return <Accounts*>b.accounts


cdef inline SessionAccount* account_at(Accounts* t, uint32_t store_session_id) noexcept nogil:
    """Return the account's place; NULL if there is none."""
    cdef uint32_t i = store_session_id // ACCOUNT_BLOCK
    return t.blocks[i] + store_session_id % ACCOUNT_BLOCK if i < t.n_blocks and t.blocks[i] != NULL else NULL


cdef SessionAccount* account_find(Broker* b, const Session* s) noexcept nogil:
    cdef SessionAccount* a = account_at(accounts_of(b), s.store_session_id) if b.accounts != NULL and s.store_session_id != 0 else NULL
    return a if a != NULL and a.session == s else NULL       # the id may belong to another session now


cdef SessionAccount* account_touched(Broker* b, const Session* s) noexcept nogil:
    cdef SessionAccount* a = account_find(b, s)
    if a != NULL and not a.changed:
        a.changed = 1
        if not a.listed:
            accounts_list_add(b, accounts_of(b), a)
    return a


cdef void accounts_list_add(Broker* b, Accounts* t, SessionAccount* a) noexcept nogil:
    a.listed = 1
    a.next = NULL
    a.due_ms = b.reactor.now_ms + UPDATE_MS
    if t.last != NULL:
        t.last.next = a
    else:
        t.first = a
    t.last = a
    if not timer_armed(&t.timer):
        wheel_add(&b.wheel, &t.timer, a.due_ms)


cdef void accounts_list_pop(Accounts* t) noexcept nogil:
    t.first.listed = 0
    t.first = t.first.next
    if t.first == NULL:
        t.last = NULL


# ---------------------------------------------------------------- beginning

cdef bint place_make(Accounts* t, uint32_t store_session_id) noexcept nogil:
    """Make a place for the account. Return 0 without memory."""
    cdef uint32_t i = store_session_id // ACCOUNT_BLOCK
    cdef uint32_t n = t.n_blocks * 2 if t.n_blocks * 2 > i else i + 1
    cdef SessionAccount** blocks
    if i >= t.n_blocks:
        blocks = <SessionAccount**>realloc(t.blocks, n * sizeof(SessionAccount*))
        if blocks == NULL:
            return 0
        memset(blocks + t.n_blocks, 0, (n - t.n_blocks) * sizeof(SessionAccount*))
        t.blocks = blocks
        t.n_blocks = n
    if t.blocks[i] == NULL:
        t.blocks[i] = <SessionAccount*>calloc(ACCOUNT_BLOCK, sizeof(SessionAccount))
    return t.blocks[i] != NULL


cdef void queue_counted(Queue* q, SessionAccount* a) noexcept nogil:
    cdef uint32_t i = q.floor
    while i != q.tail:
        if queue_at(q, i).state != D_DONE:
            if queue_at(q, i).qos & 3:
                a.restored += 1
            else:
                a.n_qos0 += 1
        i += 1


cdef void account_begin(Broker* b, Session* s) noexcept nogil:
    cdef Accounts* t = accounts_of(b)
    cdef SessionAccount* a
    if not place_make(t, s.store_session_id):
        streams_events_lose(b, 1)
        return
    a = account_at(t, s.store_session_id)     # it may be in the list for the session that had the id before
    a.id = t.last_id = max(t.last_id + 1, clock_wall_us())
    a.session = s
    a.restored = a.published = a.delivered = a.resent = 0
    memset(a.left, 0, sizeof(a.left))
    a.n_qos0 = 0
    a.changed = a.found = 0
    queue_counted(&s.queue, a)


# ---------------------------------------------------------------- writing

cdef void account_write(Broker* b, SessionAccount* a, bint ended) noexcept nogil:
    cdef Session* s = a.session
    cdef char text[ACCOUNT_PAYLOAD_MAX]
    cdef View id, user, topic, payload
    a.changed = 0
    topic.p = user.p = NULL
    topic.n = user.n = 0
    id.p = s.client_id
    id.n = s.id_len
    if s.username != NULL:
        user.p = <const unsigned char*>s.username
        user.n = <uint32_t>strlen(s.username)
    payload.p = <const unsigned char*>text
    payload.n = <uint32_t>snprintf(
        text, sizeof(text), "{\"session\":%llu,\"restored\":%llu,\"published\":%llu,\"delivered\":%llu,\"acknowledged\":%llu,\"resent\":%llu,"
        "\"expired\":%llu,\"dropped\":%llu,\"queued\":%u,\"gone\":%llu,\"ended\":%s}", <unsigned long long>a.id, <unsigned long long>a.restored,
        <unsigned long long>a.published, <unsigned long long>a.delivered, <unsigned long long>a.left[ACCOUNT_ACKNOWLEDGED],
        <unsigned long long>a.resent, <unsigned long long>a.left[ACCOUNT_EXPIRED], <unsigned long long>a.left[ACCOUNT_DROPPED],
        s.queue.pending - a.n_qos0, <unsigned long long>a.left[ACCOUNT_GONE], <const char*>b"true" if ended else <const char*>b"false")
    stream_event(b, JOURNAL_ACCOUNT, topic, id, user, 0, payload)


cdef void account_report(Broker* b, const Session* s) noexcept nogil:
    cdef SessionAccount* a = account_find(b, s)
    if a != NULL:
        account_write(b, a, 0)


cdef void account_end(Broker* b, const Session* s) noexcept nogil:
    cdef SessionAccount* a = account_find(b, s)
    if a != NULL:
        account_write(b, a, 1)
        a.session = NULL


# ---------------------------------------------------------------- in slices

cdef uint32_t found_account_report(Broker* b, SessionAccount* a) noexcept nogil:
    """Return the number of written records."""
    account_write(b, a, 0)
    return subscriptions_report(b, a.session) + 1


cdef uint32_t subscriptions_report(Broker* b, Session* s) noexcept nogil:
    cdef char filter[SUBSCRIPTION_TEXT_BYTES]
    cdef View text
    cdef Subscription* sub = s.owner.head
    cdef uint32_t n = 0, sub_id
    cdef unsigned char options
    text.p = <const unsigned char*>filter
    while sub != NULL and n < FOUND_SUBSCRIPTIONS_MAX:
        sub = subscription_read(sub, <unsigned char*>filter, &text.n, &options, &sub_id)
        event_subscribed_write(b, s, text, options, sub_id, 1)
        n += 1
    if sub != NULL:
        streams_events_lose(b, s.owner.n - n)
    return n


cdef void found_accounts_report(Broker* b, Accounts* t) noexcept nogil:
    """Report the accounts found at the start. A session that has ended since was reported, and has no account."""
    cdef uint32_t looks = 0
    cdef SessionAccount* a
    while t.found_at < t.found_end and looks < ACCOUNTS_SLICE and streams_events_fit(b):
        a = account_at(t, t.found_at)
        t.found_at += 1
        looks += 1
        if a != NULL and a.session != NULL and a.found:
            a.found = 0
            looks += found_account_report(b, a)


cdef void changed_accounts_write(Broker* b, Accounts* t) noexcept nogil:
    cdef uint32_t looks = 0
    cdef SessionAccount* a
    while t.first != NULL and t.first.due_ms <= b.reactor.now_ms and looks < ACCOUNTS_SLICE and streams_events_fit(b):
        a = t.first
        accounts_list_pop(t)
        looks += 1
        if a.session != NULL and a.changed:
            account_write(b, a, 0)


cdef void accounts_timer(Broker* b) noexcept nogil:
    cdef Accounts* t = accounts_of(b)
    cdef uint64_t due_ms
    if not streams_want_events(b):
        return
    found_accounts_report(b, t)
    changed_accounts_write(b, t)
    if t.found_at == t.found_end and t.first == NULL:
        return
    due_ms = b.reactor.now_ms + (1 if streams_events_fit(b) else CROWDED_MS)
    if t.found_at == t.found_end:
        due_ms = max(due_ms, t.first.due_ms)
    wheel_add(&b.wheel, &t.timer, due_ms)


# ---------------------------------------------------------------- life

cdef void accounts_begin(Broker* b) noexcept nogil:
    cdef Accounts* t
    cdef Session* s
    cdef SessionAccount* a
    cdef uint32_t store_session_id
    if not streams_want_events(b):
        return
    event_started_write(b, b.sessions.count, b.index.stats.subscriptions + b.index.stats.shared - streams_filters(b))
    t = <Accounts*>calloc(1, sizeof(Accounts))
    if t == NULL:
        streams_events_lose(b, 1)
        return
    b.accounts = t
    t.timer.kind = TIMER_ACCOUNTS
    t.found_end = durable_of(b).n_store_ids
    for store_session_id in range(t.found_end):
        s = session_at(durable_of(b), store_session_id)
        if s == NULL:
            continue
        account_begin(b, s)
        a = account_find(b, s)
        if a != NULL:
            a.found = 1
    if t.found_end:
        wheel_add(&b.wheel, &t.timer, b.reactor.now_ms)


cdef void accounts_flush(Broker* b) noexcept nogil:
    cdef Accounts* t = accounts_of(b)
    cdef SessionAccount* a
    while t != NULL and t.first != NULL and streams_events_fit(b):
        a = t.first
        accounts_list_pop(t)
        if a.session != NULL and a.changed:
            account_write(b, a, 0)


cdef void accounts_close(Broker* b) noexcept nogil:
    cdef Accounts* t = accounts_of(b)
    if t == NULL:
        return
    wheel_remove(&b.wheel, &t.timer)
    while t.found_at < t.found_end and streams_events_fit(b):
        found_accounts_report(b, t)
    streams_events_lose(b, t.found_end - t.found_at)
    accounts_flush(b)


cdef void accounts_fini(Broker* b) noexcept nogil:
    cdef Accounts* t = accounts_of(b)
    cdef uint32_t i
    if t == NULL:
        return
    b.accounts = NULL
    wheel_remove(&b.wheel, &t.timer)      # counts since the close may have armed it
    for i in range(t.n_blocks):
        free(t.blocks[i])
    free(t.blocks)
    free(t)
