# The account of each durable session: the fate of its QoS 1 and 2 messages, counted while a stream has events. See accounts.pyx.
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from cext.base.wheel cimport Timer
from cext.broker.core.broker cimport Broker
from cext.session.session cimport Session

cdef enum:
    # how a message leaves the queue: index into Account.left
    ACCOUNT_ACKNOWLEDGED = 0
    ACCOUNT_EXPIRED = 1
    ACCOUNT_DROPPED = 2
    ACCOUNT_GONE = 3            # with its session, to another member of its group, or below QoS 1
    ACCOUNT_WAYS = 4

ctypedef struct SessionAccount:        # account of a store session id
    Session* session            # NULL: no session
    SessionAccount* next               # next changed account
    uint64_t due_ms             # time of its record, while it is in the list
    uint64_t id                 # number of this counting
    uint64_t restored           # messages in the queue when the counting began
    uint64_t published
    uint64_t delivered
    uint64_t resent
    uint64_t left[ACCOUNT_WAYS]
    uint32_t n_qos0             # deliveries in the queue with QoS 0, which are not counted
    uint8_t changed             # 1: changed since its last record
    uint8_t listed
    uint8_t found               # 1: found at the start; its record comes with its subscriptions

ctypedef struct Accounts:
    Timer timer
    SessionAccount** blocks            # blocks of ACCOUNT_BLOCK accounts, by store session id; NULL: none of them was needed so far
    uint32_t n_blocks
    uint32_t found_at           # snapshot of the start: next store session id
    uint32_t found_end
    uint64_t last_id
    SessionAccount* first              # changed accounts, by due_ms
    SessionAccount* last

cdef SessionAccount* account_touched(Broker* b, const Session* s) noexcept nogil      # account that is about to change; NULL: there is none


# Return the account; NULL if no stream has events, if the session does not outlive the broker, or if there was no memory.
cdef inline SessionAccount* account_of(Broker* b, const Session* s) noexcept nogil:
    return account_touched(b, s) if b.accounts != NULL and s.store_session_id != 0 else NULL


# Count a message for the session, queued or not. One of the functions below counts what becomes of it.
cdef inline void account_published(Broker* b, const Session* s, uint8_t qos) noexcept nogil:
    cdef SessionAccount* a = account_of(b, s)
    if a != NULL and qos & 3:
        a.published += 1


# Count it no more: it will be published again.
cdef inline void account_unpublished(Broker* b, const Session* s, uint8_t qos) noexcept nogil:
    cdef SessionAccount* a = account_of(b, s)
    if a != NULL and qos & 3:
        a.published -= 1


# Count a message that did not reach the queue.
cdef inline void account_refused(Broker* b, const Session* s, uint8_t qos, int way) noexcept nogil:
    cdef SessionAccount* a = account_of(b, s)
    if a != NULL and qos & 3:
        a.left[way] += 1


# Count both.
cdef inline void account_turned_away(Broker* b, const Session* s, uint8_t qos, int way) noexcept nogil:
    cdef SessionAccount* a = account_of(b, s)
    if a != NULL and qos & 3:
        a.published += 1
        a.left[way] += 1


# Count a message that was queued.
cdef inline void account_queued(Broker* b, const Session* s, uint8_t qos) noexcept nogil:
    cdef SessionAccount* a = account_of(b, s)
    if a != NULL and not qos & 3:
        a.n_qos0 += 1


# Count a message that left the queue.
cdef inline void account_left(Broker* b, const Session* s, uint8_t qos, int way) noexcept nogil:
    cdef SessionAccount* a = account_of(b, s)
    if a == NULL:
        return
    if qos & 3:
        a.left[way] += 1
    else:
        a.n_qos0 -= 1


cdef inline void account_sent(Broker* b, const Session* s, bint again) noexcept nogil:
    cdef SessionAccount* a = account_of(b, s)
    if a == NULL:
        return
    if again:
        a.resent += 1
    else:
        a.delivered += 1


# Count a message that stays in the queue, now with QoS 0.
cdef inline void account_lowered(Broker* b, const Session* s) noexcept nogil:
    cdef SessionAccount* a = account_of(b, s)
    if a != NULL:
        a.left[ACCOUNT_GONE] += 1
        a.n_qos0 += 1


cdef void account_begin(Broker* b, Session* s) noexcept nogil       # after the session got its store session id
cdef void account_report(Broker* b, const Session* s) noexcept nogil  # writes the current state
cdef void account_end(Broker* b, const Session* s) noexcept nogil   # writes the last record; the queue is empty

# Report the start and the sessions of the store, if a stream has events. Called before the loop, after recovery.
cdef void accounts_begin(Broker* b) noexcept nogil
cdef void accounts_timer(Broker* b) noexcept nogil
cdef void accounts_flush(Broker* b) noexcept nogil      # writes the changed accounts now
# Report the subscriptions of a session that was here before, and return their number.
cdef uint32_t subscriptions_report(Broker* b, Session* s) noexcept nogil
cdef void accounts_close(Broker* b) noexcept nogil      # writes the last records, while the streams still accept them
cdef void accounts_fini(Broker* b) noexcept nogil       # after the last session was freed
