"""Decide by the rules of a session. This module knows which rules count for a session. It does not know how rules are compiled (acl.pyx).

The security of the listener through which a session was last connected decides, also while the session is offline: for queued messages and for its
will. The session stores the root of its user's rules, with the epoch of that root. A reload begins a new epoch, so no session points into rules
that were freed. Trusted sessions have no security: everything is allowed to them.

After a restart the origin in the record finds that listener again: by its address, path, interface and port, else by its port alone if one listener
has it. If none is found, the rules of the whole broker count if they counted before, else no access is allowed, until a client takes the session.
"""

from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memcmp, strlen

from cext.base.view cimport View
from cext.broker.core.broker cimport Broker
from cext.broker.core.listener cimport ORIGIN_ADDRESS, ORIGIN_KNOWN, ORIGIN_PORT, ORIGIN_SHARED, Listener, Security
from cext.broker.core.session_refs cimport session_security
from cext.broker.rules.acl cimport acl_allows, acl_may_subscribe, acl_root
from cext.broker.rules.roles cimport roles_profile, roles_verdict
from cext.session.session cimport Session


cdef void session_names(Session* s, View* id, View* user) noexcept nogil:
    id.p = s.client_id
    id.n = s.id_len
    user.p = <const uint8_t*>s.username
    user.n = <uint32_t>strlen(s.username) if s.username != NULL else 0


cdef bint session_mounted_at(const Session* s, const Listener* l) noexcept nogil:
    if s.mount_point == NULL:
        return l.mount_point.n == 0
    return strlen(s.mount_point) == l.mount_point.n and memcmp(s.mount_point, l.mount_point.p, l.mount_point.n) == 0


cdef uint32_t origin_read(const Broker* b, uint32_t stored) noexcept nogil:
    cdef const Listener* l
    cdef uint32_t i
    if stored & ORIGIN_KNOWN:
        return stored
    for i in range(b.n_listeners):
        l = b.listeners[i]
        if l.security.place == stored and not l.origin & ORIGIN_SHARED:
            return l.origin
    return ORIGIN_KNOWN | ORIGIN_SHARED


cdef Security* security_of_origin(const Broker* b, uint32_t origin) noexcept nogil:
    cdef Security* exact = NULL
    cdef Security* at_port = NULL
    cdef Security* shared = b.securities[0] if b.n_listeners == 0 else NULL
    cdef const Listener* l
    cdef uint32_t i, n_exact = 0, n_at_port = 0
    for i in range(b.n_listeners):
        l = b.listeners[i]
        if shared == NULL and l.origin & ORIGIN_SHARED:
            shared = l.security
        if (l.origin ^ origin) & ORIGIN_PORT:
            continue
        if origin & ORIGIN_ADDRESS and not (l.origin ^ origin) & ORIGIN_ADDRESS:
            exact = l.security
            n_exact += 1
        at_port = l.security if at_port == NULL else at_port
        n_at_port += 1
    if n_exact == 1:
        return exact
    if origin & ORIGIN_PORT and (n_at_port == 1 or (n_at_port and not origin & ORIGIN_ADDRESS)):
        return at_port           # of several at an import's port the first, as in Mosquitto
    return shared if shared != NULL and origin & ORIGIN_SHARED else b.denied


cdef inline uint32_t rules_root(Broker* b, Session* s, const Security* security, View user) noexcept nogil:
    """Return the root of the user's rules; with roles, the user's profile."""
    if s.access_epoch != b.access_epoch:
        s.access_root = roles_profile(security.roles, user) if security.roles != NULL else acl_root(security.acl, user)
        s.access_epoch = b.access_epoch
    return s.access_root


cdef bint access_allows(Broker* b, Session* s, View topic, uint8_t access) noexcept nogil:
    cdef Security* security = session_security(s)
    cdef View id, user
    cdef int verdict
    if security == NULL or (security.acl == NULL and security.roles == NULL):
        return 1
    session_names(s, &id, &user)
    if security.roles == NULL:
        return acl_allows(security.acl, rules_root(b, s, security, user), user, id, topic, access)
    verdict = roles_verdict(security.roles, rules_root(b, s, security, user), user, id, topic, access)
    if verdict >= 0 or security.acl == NULL:
        return verdict == 1
    return acl_allows(security.acl, acl_root(security.acl, user), user, id, topic, access)


cdef bint access_of_names(const Security* security, View username, View client_id, View topic, uint8_t access) noexcept nogil:
    cdef int verdict = -1
    if security.roles != NULL:
        verdict = roles_verdict(security.roles, roles_profile(security.roles, username), username, client_id, topic, access)
        if verdict >= 0 or security.acl == NULL:
            return verdict == 1
    return security.acl == NULL or acl_allows(security.acl, acl_root(security.acl, username), username, client_id, topic, access)


cdef bint access_by_roles(Broker* b, Session* s, View filter, uint8_t access) noexcept nogil:
    cdef Security* security = session_security(s)
    cdef View id, user
    cdef int verdict
    if security == NULL or security.roles == NULL:
        return 1
    session_names(s, &id, &user)
    verdict = roles_verdict(security.roles, rules_root(b, s, security, user), user, id, filter, access)
    # an acl_file beside the roles refuses no subscription, as in Mosquitto
    return verdict == 1 or (verdict < 0 and security.acl != NULL)


cdef bint access_may_subscribe(Broker* b, Session* s, View filter) noexcept nogil:
    cdef Security* security = session_security(s)
    cdef View id, user
    if security == NULL or security.acl == NULL or not b.settings.acl_refuse_subscribe or security.roles != NULL:
        return 1
    session_names(s, &id, &user)
    return acl_may_subscribe(security.acl, rules_root(b, s, security, user), user, id, filter)
