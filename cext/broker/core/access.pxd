# The rights of a session: verdicts of the rules that count for it. See access.pyx.
from libc.stdint cimport uint8_t, uint32_t
from cext.base.view cimport View
from cext.broker.core.broker cimport Broker
from cext.broker.core.listener cimport Listener, Security
from cext.broker.core.session_refs cimport session_security
from cext.session.session cimport Session

cdef void session_names(Session* s, View* id, View* user) noexcept nogil      # user.p NULL: no user name
# Return 1 if the session began below this listener's mount point, or both have none.
cdef bint session_mounted_at(const Session* s, const Listener* l) noexcept nogil
# Return 1 if the session has rules.
cdef inline bint access_ruled(const Session* s) noexcept nogil:
    return s.security != NULL and (session_security(s).acl != NULL or session_security(s).roles != NULL)

# Return the origin that a record names, also if an older version wrote the position of its rules.
cdef uint32_t origin_read(const Broker* b, uint32_t stored) noexcept nogil
# Return the rules of the listener with this origin, or b.denied.
cdef Security* security_of_origin(const Broker* b, uint32_t origin) noexcept nogil

# Return the verdict of the rules about this access (ACL_READ, ACL_WRITE) to the topic. Without rules everything is allowed.
cdef bint access_allows(Broker* b, Session* s, View topic, uint8_t access) noexcept nogil
cdef bint access_may_subscribe(Broker* b, Session* s, View filter) noexcept nogil    # verdict of an acl_file with acl_refuse_subscribe
# Return the verdict of the roles about SUBSCRIBE (access 4) or UNSUBSCRIBE (8). `filter`: as the client sent it, below the mount point, with
# $share/GROUP/.
cdef bint access_by_roles(Broker* b, Session* s, View filter, uint8_t access) noexcept nogil
# Same as access_allows, for a client that is disconnected.
cdef bint access_of_names(const Security* security, View username, View client_id, View topic, uint8_t access) noexcept nogil
