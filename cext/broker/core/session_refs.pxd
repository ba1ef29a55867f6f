# What a session refers to in the broker. The session room keeps these references as void*, because it does not know the structs; this header
# is the only place that casts them back.
from cext.broker.core.client_state cimport Client
from cext.broker.core.job_state cimport Job
from cext.broker.core.listener cimport Security
from cext.session.session cimport Session


# The client that the session is connected through; NULL = offline
cdef inline Client* session_client(const Session* s) noexcept nogil:
    return <Client*>s.client


# The rules that count for the session; NULL = everything is allowed
cdef inline Security* session_security(const Session* s) noexcept nogil:
    return <Security*>s.security


# The job that sends retained messages to the session; NULL = none
cdef inline Job* session_replay(const Session* s) noexcept nogil:
    return <Job*>s.replay
