"""What the control plane's answers lead to, and what happens without one. Knows who waited; how each goes on is its room's business.

An answer finds its question by handle, or is stale: late, given twice, or for a client that is gone. So many are served per turn that
the others notice nothing when ten thousand clients log in at once.
"""

from libc.stdint cimport uint32_t
from libc.stdlib cimport free

from cext.base.wheel cimport Timer
from cext.broker.ask cimport (
    ANSWERS_PER_TURN, Answer, Q_AUTH, Q_CONNECT, Question, answers_next, question_answered, question_client, question_end, question_of,
    questions_at, questions_end, questions_flush,
)
from cext.broker.broker cimport Broker, C_ASKING, C_ENDED, CF_DOOMED, Client
from cext.broker.handle_auth cimport auth_answered, auth_timed_out
from cext.broker.handle_connect cimport connect_answered, connect_timed_out
from cext.broker.life cimport session_release
from cext.session.session cimport Session


cdef bint answers_serve(Broker* b) noexcept nogil:
    cdef Answer* a
    cdef int _
    b.answers_due = 0
    questions_flush(b)
    for _ in range(ANSWERS_PER_TURN):
        a = answers_next(b)
        if a == NULL:
            return 0
        if not take(b, a):
            b.stats.answers_stale += 1
        free(a)
    b.answers_due = 1
    return 1


cdef bint take(Broker* b, const Answer* a) noexcept nogil:
    """0: it is stale."""
    cdef Question* q = question_of(b, a.handle)
    if q == NULL or not q.is_open:
        return 0
    if q.kind == Q_CONNECT or q.kind == Q_AUTH:
        return a.kind == Q_CONNECT and client_answered(b, q, a)
    return 0


cdef Client* waiting_client(Broker* b, Question* q) noexcept nogil:
    """NULL: it is gone, or about to go."""
    cdef Client* c = question_client(b, q)
    return c if c != NULL and c.parked != NULL and c.state != C_ENDED and not c.flags & CF_DOOMED else NULL


cdef bint client_answered(Broker* b, Question* q, const Answer* a) noexcept nogil:
    cdef Client* c = waiting_client(b, q)
    if c == NULL:
        return 0
    question_answered(b, q)
    if c.state == C_ASKING:
        connect_answered(b, c, a)
    else:
        auth_answered(b, c, a)
    return 1


# ---------------------------------------------------------------- without an answer

cdef inline Question* question_of_timer(Timer* t) noexcept nogil:
    return <Question*>(<char*>t - <size_t>&(<Question*>NULL).timer)


cdef void question_timer(Broker* b, Timer* t) noexcept nogil:
    cdef Question* q = question_of_timer(t)
    cdef Client* c
    b.stats.ask_timeouts += 1
    question_answered(b, q)
    if q.kind == Q_CONNECT or q.kind == Q_AUTH:
        c = waiting_client(b, q)
        if c == NULL:
            question_end(b, q)
        elif c.state == C_ASKING:
            connect_timed_out(b, c)
        else:
            auth_timed_out(b, c)


cdef void questions_forget(Broker* b) noexcept nogil:
    cdef Question* q
    cdef Session* s
    cdef uint32_t i
    for i in range(questions_end(b)):
        q = questions_at(b, i)
        if q == NULL:
            continue
        s = q.session
        question_end(b, q)
        if s != NULL:
            session_release(b, s)
