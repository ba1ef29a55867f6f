"""Who may do what: a session's verdicts. Knows whose rules count for a session; not how rules are compiled (acl.pyx).

A session is judged by the security of the listener that it was last connected through, also while it is offline: for what is queued, and
for its will. Of the compiled rules it keeps where its user's begin, with the epoch in which that was true: a reload begins a new one, so
nothing points into rules that are gone. Trusted sessions have no security: everything is allowed to them.
"""

from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport strlen

from cext.base.view cimport View
from cext.broker.acl cimport Acl, acl_allows, acl_may_subscribe, acl_root
from cext.broker.broker cimport Broker, Security
from cext.session.session cimport Session


cdef void session_names(Session* s, View* id, View* user) noexcept nogil:
    id.p = s.client_id
    id.n = s.id_len
    user.p = <const uint8_t*>s.username
    user.n = <uint32_t>strlen(s.username) if s.username != NULL else 0


cdef inline uint32_t root_of(Broker* b, Session* s, Acl* a, View user) noexcept nogil:
    if s.access_epoch != b.access_epoch:
        s.access_root = acl_root(a, user)
        s.access_epoch = b.access_epoch
    return s.access_root


cdef bint access_allows(Broker* b, Session* s, View topic, uint8_t access) noexcept nogil:
    cdef Security* security = <Security*>s.security
    cdef View id, user
    if security == NULL or security.acl == NULL:
        return 1
    session_names(s, &id, &user)
    return acl_allows(security.acl, root_of(b, s, security.acl, user), user, id, topic, access)


cdef bint access_may_subscribe(Broker* b, Session* s, View filter) noexcept nogil:
    cdef Security* security = <Security*>s.security
    cdef View id, user
    if security == NULL or security.acl == NULL or not b.settings.acl_refuse_subscribe:
        return 1
    session_names(s, &id, &user)
    return acl_may_subscribe(security.acl, root_of(b, s, security.acl, user), user, id, filter)
