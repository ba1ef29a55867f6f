# The life of clients and sessions: ends, wills, expiry.
from libc.stdint cimport uint32_t
from cext.base.wheel cimport Timer
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport Client, Will
from cext.broker.core.job_state cimport Job
from cext.session.message cimport Message
from cext.session.session cimport Session

# Ends a client: log line, DISCONNECT where v5 wants one, will, session. Not to be called in the middle of a fan-out (client_doom).
cdef void client_end(Broker* b, Client* c, int reason) noexcept nogil
cdef void doomed_end(Broker* b) noexcept nogil                       # all that client_doom has marked
# Asks whether a session's will may be written: FOR_WILL, it is sent with the answer; FOR_LATER, the answer is kept.
cdef void will_ask(Broker* b, Session* s, Message* m, int purpose) noexcept nogil
cdef void will_decided(Broker* b, Message* m, Session* s, bint allowed) noexcept nogil
cdef void will_free(Broker* b, Will* w) noexcept nogil
cdef void will_now(Broker* b, Client* c) noexcept nogil              # at shutdown: sends a connected client's will, whatever its delay
cdef void session_will(Broker* b, Session* s) noexcept nogil         # sends a delayed will that waits
# The session is over [v5 3.1.2-23]: a delayed will is sent, what it was owed is dropped, its subscriptions go (in slices).
cdef void session_watch(Broker* b, Session* s) noexcept nogil        # offline: for its will or its end
cdef void session_end(Broker* b, Session* s) noexcept nogil
cdef void session_timer(Broker* b, Timer* t) noexcept nogil
cdef void client_timer(Broker* b, Timer* t) noexcept nogil
cdef void client_watch(Broker* b, Client* c) noexcept nogil          # (re)starts the keepalive timer
cdef bint drop_slice(Broker* b, Job* j) noexcept nogil               # JOB_DROP; 1: done
# A reconnect within the will delay [v5 3.1.3-9], or a new connection: timers of being offline end.
cdef void session_attach(Broker* b, Session* s, Client* c) noexcept nogil
