# What became of the QoS 1 and 2 messages of each persistent session, counted while events are wanted. See accounts.pyx.
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from cext.base.wheel cimport Timer
from cext.broker.core.broker cimport Broker
from cext.session.session cimport Session

cdef enum:
    # how one leaves: index into Account.left
    ACCOUNT_ACKNOWLEDGED = 0
    ACCOUNT_EXPIRED = 1
    ACCOUNT_DROPPED = 2
    ACCOUNT_GONE = 3            # with its session, to another of its group, or below QoS 1
    ACCOUNT_WAYS = 4

ctypedef struct SessionAccount:        # of a session's number in the store
    Session* session            # NULL: nobody's
    SessionAccount* next               # of the changed ones
    uint64_t due_ms             # while it is listed
    uint64_t id                 # of this counting
    uint64_t restored           # what was queued when it began
    uint64_t published
    uint64_t delivered
    uint64_t resent
    uint64_t left[ACCOUNT_WAYS]
    uint32_t n_qos0             # of the queue's, which is QoS 0 and no business of ours
    uint8_t changed             # since it was written
    uint8_t listed
    uint8_t found               # by the start: to be written with its subscriptions

ctypedef struct Accounts:
    Timer timer
    SessionAccount** blocks            # of ACCOUNT_BLOCK each, by number; NULL: none of them was needed yet
    uint32_t n_blocks
    uint32_t found_at           # the start's snapshot: the next number
    uint32_t found_end
    uint64_t last_id
    SessionAccount* first              # changed ones, by due_ms
    SessionAccount* last

cdef SessionAccount* account_touched(Broker* b, const Session* s) noexcept nogil      # about to change; NULL: it has none


# NULL: nobody wants events, the session does not outlive the broker, or there was no memory for an account.
cdef inline SessionAccount* account_of(Broker* b, const Session* s) noexcept nogil:
    return account_touched(b, s) if b.accounts != NULL and s.store_session_id != 0 else NULL


# The session is to get one more, whether or not it can be kept. What becomes of it is told by one of those that follow.
cdef inline void account_published(Broker* b, const Session* s, uint8_t qos) noexcept nogil:
    cdef SessionAccount* a = account_of(b, s)
    if a != NULL and qos & 3:
        a.published += 1


# It did not come as far as the queue.
cdef inline void account_refused(Broker* b, const Session* s, uint8_t qos, int way) noexcept nogil:
    cdef SessionAccount* a = account_of(b, s)
    if a != NULL and qos & 3:
        a.left[way] += 1


# Both.
cdef inline void account_turned_away(Broker* b, const Session* s, uint8_t qos, int way) noexcept nogil:
    cdef SessionAccount* a = account_of(b, s)
    if a != NULL and qos & 3:
        a.published += 1
        a.left[way] += 1


# It is in the queue.
cdef inline void account_queued(Broker* b, const Session* s, uint8_t qos) noexcept nogil:
    cdef SessionAccount* a = account_of(b, s)
    if a != NULL and not qos & 3:
        a.n_qos0 += 1


# It is no longer in the queue.
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


# It stays in the queue, at QoS 0 from now on.
cdef inline void account_lowered(Broker* b, const Session* s) noexcept nogil:
    cdef SessionAccount* a = account_of(b, s)
    if a != NULL:
        a.left[ACCOUNT_GONE] += 1
        a.n_qos0 += 1


cdef void account_begin(Broker* b, Session* s) noexcept nogil       # it has a number now
cdef void account_report(Broker* b, const Session* s) noexcept nogil  # as it stands
cdef void account_end(Broker* b, const Session* s) noexcept nogil   # for the last time; its queue has been emptied

# Before the loop, the store's sessions are there: if somebody wants events, that the broker has started and what it has found.
cdef void accounts_begin(Broker* b) noexcept nogil
cdef void accounts_timer(Broker* b) noexcept nogil
cdef void accounts_close(Broker* b) noexcept nogil      # the last words, while the streams still take them
cdef void accounts_fini(Broker* b) noexcept nogil       # behind the last session
