# Who may do what: a session's verdicts. See access.pyx.
from libc.stdint cimport uint8_t
from cext.base.view cimport View
from cext.broker.core.broker cimport Broker
from cext.broker.core.listener cimport Security
from cext.broker.core.session_refs cimport session_security
from cext.session.session cimport Session

cdef void session_names(Session* s, View* id, View* user) noexcept nogil      # user.p NULL: none
# Are there rules for it at all?
cdef inline bint access_ruled(const Session* s) noexcept nogil:
    return s.security != NULL and (session_security(s).acl != NULL or session_security(s).roles != NULL)

# What the rules say of this access (ACL_READ, ACL_WRITE) to the topic; without rules everything is allowed.
cdef bint access_allows(Broker* b, Session* s, View topic, uint8_t access) noexcept nogil
cdef bint access_may_subscribe(Broker* b, Session* s, View filter) noexcept nogil    # an acl_file's word, with acl_refuse_subscribe
# What roles say of SUBSCRIBE (access 4) and UNSUBSCRIBE (8). filter: as it was written, under the mount point, with $share/GROUP/.
cdef bint access_by_roles(Broker* b, Session* s, View filter, uint8_t access) noexcept nogil
# The same as access_allows of a client that is not here any more.
cdef bint access_of_names(const Security* security, View username, View client_id, View topic, uint8_t access) noexcept nogil
