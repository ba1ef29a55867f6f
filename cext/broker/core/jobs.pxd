# Work that is too long for one turn, done in slices: large fan-outs, retained replays, the removal of an ended session's subscriptions.
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport Client
from cext.broker.core.job_state cimport Job
from cext.session.message cimport Message
from cext.session.session cimport Session

cdef Job* job_new(Broker* b, int kind, Client* owner) noexcept nogil     # NULL: no memory
cdef void job_own(Job* j, Client* owner) noexcept nogil         # before it is added
# Append a job. Its owner takes no input until the job is done.
cdef void job_add(Broker* b, Job* j) noexcept nogil
cdef void job_append(Broker* b, Job* j) noexcept nogil           # the same for a job that was in the list before
# Free a job and everything it holds. The loop calls this when the job is done, and at shutdown.
cdef void job_free(Broker* b, Job* j) noexcept nogil
# Return the client that waits for the job; NULL: none, or it is gone.
cdef Client* job_owner(Broker* b, Job* j) noexcept nogil
# Return the job that goes on with the deliveries of the message that this client has just published; NULL: they are all made.
cdef inline Job* fanout_of_client(Broker* b, const Client* c, const Message* m) noexcept nogil:
    return b.jobs_tail if c.jobs and m != NULL and b.jobs_tail != NULL and b.jobs_tail.message == m else NULL
# Let this connection of a session wait for the job of the connection before: its messages stay in order, and an id is not used again before it is
# free.
cdef void jobs_follow(Broker* b, Client* c) noexcept nogil
# Let a blocked retained replay of this session continue, if it can.
cdef void jobs_unblock(Broker* b, Session* s) noexcept nogil
