# The lifecycle of clients and sessions: ends, wills, expiry.
from cext.base.wheel cimport Timer
from cext.broker.auth.auth_requests cimport AuthRequest
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport Client, Will
from cext.broker.core.job_state cimport Job
from cext.session.message cimport Message
from cext.session.session cimport Session

# End a client: log line, DISCONNECT if v5 requires one, will, session. Must not be called in the middle of a fan-out; call
# client_doom there.
cdef void client_end(Broker* b, Client* c, int reason) noexcept nogil
cdef void end_doomed_clients(Broker* b) noexcept nogil                       # end clients that client_doom has marked, until the turn is over
cdef void will_ask_early(Broker* b, Message* m, Session* s) noexcept nogil       # the answer is remembered until the will is sent
cdef void will_answered(Broker* b, AuthRequest* q, bint allowed) noexcept nogil
cdef void will_free(Broker* b, Will* w) noexcept nogil
cdef void will_discard(Broker* b, Client* c) noexcept nogil         # as if its client had disconnected normally
cdef void will_send_now(Broker* b, Client* c) noexcept nogil      # at shutdown: send the will regardless of its delay
# Return whether a client has a will that waits after the end of its connection.
cdef bint will_is_delayed(const Client* c) noexcept nogil
cdef void session_will(Broker* b, Session* s) noexcept nogil         # send the delayed will that waits, if any
# At the start: send wills of restored sessions whose delay is over, until the turn is over. Returns 1 if some are left.
cdef bint restored_wills_slice(Broker* b) noexcept nogil
cdef void session_watch(Broker* b, Session* s) noexcept nogil        # arm the timer of an offline session for its will or its end
# End the session [v5 3.1.2-23]: send a delayed will, drop queued deliveries, and remove its subscriptions in slices.
cdef void session_end(Broker* b, Session* s) noexcept nogil
cdef bint session_due(Broker* b, Session* s) noexcept nogil
cdef void session_timer_fired(Broker* b, Timer* t) noexcept nogil
cdef void client_timer_fired(Broker* b, Timer* t) noexcept nogil
cdef void client_watch(Broker* b, Client* c) noexcept nogil          # (re)start the keepalive timer
cdef bint drop_slice(Broker* b, Job* j) noexcept nogil               # JOB_DROP; 1 = done
# Connect a session, without a record: its end and its delayed will are off. Return whether there was such a will.
cdef bint session_connect(Broker* b, Session* s, Client* c) noexcept nogil
# Attach the session to a new connection: ends its offline timers, and removes the will after a reconnect within its delay [v5
# 3.1.3-9].
cdef void session_attach(Broker* b, Session* s, Client* c) noexcept nogil
