# Who may do what: a session's verdicts. See access.pyx.
from libc.stdint cimport uint8_t
from cext.base.view cimport View
from cext.broker.broker cimport Broker
from cext.session.session cimport Session

cdef void session_names(Session* s, View* id, View* user) noexcept nogil      # user.p NULL: none
# What the rules say of this access (ACL_READ, ACL_WRITE) to the topic; without rules everything is allowed.
cdef bint access_allows(Broker* b, Session* s, View topic, uint8_t access) noexcept nogil
cdef bint access_may_subscribe(Broker* b, Session* s, View filter) noexcept nogil
