# Work that is too long for one turn, done in slices: huge fan-outs, retained replays, removal of an ended session's subscriptions.
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport Client
from cext.broker.core.job_state cimport Job
from cext.session.session cimport Session

cdef Job* job_new(Broker* b, int kind, Client* owner) noexcept nogil     # NULL: no memory
# Appends it; an owner takes no input until it is done.
cdef void job_add(Broker* b, Job* j) noexcept nogil
# The ends of lists and all else a job holds; called by the loop when it is done, and at shutdown.
cdef void job_free(Broker* b, Job* j) noexcept nogil
# The client that waits for it; NULL: none, or it is gone.
cdef Client* job_owner(Broker* b, Job* j) noexcept nogil
# What the connection before waited for, this one of its session waits for: its messages stay in order, and an id is not used again before it is free.
cdef void jobs_follow(Broker* b, Client* c) noexcept nogil
# May a blocked replay of this session go on?
cdef void jobs_unblock(Broker* b, Session* s) noexcept nogil
