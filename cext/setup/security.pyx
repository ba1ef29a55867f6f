"""Check the control plane's specification of a security and make a `Security` from it, with compiled access rules. This module knows names, not
files."""

from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport calloc, free

from cext.base.view cimport View
from cext.broker.auth.auth_requests cimport AuthAnswer, AuthRequestHead, ClientFacts, NativeAccess
from cext.broker.core.listener cimport Security
from cext.broker.rules.acl cimport ACL_DENY, ACL_READ, ACL_WRITE, Acl, acl_free, acl_new
from cext.broker.rules.roles cimport roles_unref
from cext.setup.roles cimport roles_read
from cext.setup.views cimport view_keep
from cext.topic.name cimport Filter, filter_parse

ACL_ACCESS = {"read": ACL_READ, "write": ACL_WRITE, "readwrite": ACL_READ | ACL_WRITE, "deny": ACL_DENY}


cdef Security* security_new(dict spec) except NULL:
    """Make a Security. The keys of `spec`:
    acl: rules in file order as (user or None, 'topic' | 'pattern', access, topic), or None: everything is allowed;
    authenticate: the control plane checks user names and passwords; login_anonymous: also clients without a user name; authorize: it decides
    about topics; extended: it offers authentication methods; events: it receives events of clients;
    native: there are native plugins; each: they decide about each message; filters: they may change filters; native_loop: (address of the
    realm, addresses of two functions, sizes of their structs) of those that are called on the loop, or None;
    transform_in, transform_out: filters of messages that plugins change; roles: dynamic security (cext/setup/roles.pyx), or None."""
    cdef Security* s = <Security*>calloc(1, sizeof(Security))
    if s == NULL:
        raise MemoryError
    try:
        if spec.get("acl") is not None:
            s.acl = acl_read(list(spec["acl"]))
        s.transform_in = filters_read(spec.get("transform_in") or ())
        s.transform_out = filters_read(spec.get("transform_out") or ())
        s.authenticate = bool(spec.get("authenticate"))
        s.authenticate_anonymous = bool(spec.get("login_anonymous"))
        s.authorize = bool(spec.get("authorize"))
        s.extended = bool(spec.get("extended"))
        s.events = bool(spec.get("events"))
        s.native = bool(spec.get("native"))
        s.each = bool(spec.get("each"))
        s.filters = s.each or bool(spec.get("filters"))
        if spec.get("native_loop") is not None:
            if spec["native_loop"][3] != (sizeof(AuthRequestHead), sizeof(AuthAnswer), sizeof(ClientFacts), sizeof(View), sizeof(NativeAccess)):
                raise ValueError("the shim of native plugins was built with other structs")
            s.native_realm = <void*><size_t>spec["native_loop"][0]
            s.native_ask = <void*><size_t>spec["native_loop"][1]
            s.native_access = <void*><size_t>spec["native_loop"][2]
        if spec.get("roles") is not None:
            s.roles = roles_read(dict(spec["roles"]))
        s.guards = s.acl != NULL or s.roles != NULL or s.authorize or s.transform_out != NULL
    except BaseException:
        security_free(s)
        raise
    return s


cdef Acl* filters_read(filters) except? NULL:
    """Return rules by which topics under any of the filters seem readable. NULL: there are no filters."""
    cdef Filter f
    for text in filters:
        encoded = text.encode()
        if filter_parse(<const uint8_t*><const char*>encoded, <uint32_t>len(encoded), &f) != 0 or f.group.n:
            raise ValueError(f"{text!r} is not a topic filter that messages can be transformed by")
    return acl_read([(None, "topic", "read", text) for text in filters]) if filters else NULL


cdef Acl* acl_read(list rules) except NULL:
    cdef uint32_t n = <uint32_t>len(rules)
    cdef uint32_t i
    cdef Acl* acl
    cdef View* views = <View*>calloc(2 * n + 1, sizeof(View))
    cdef uint8_t* codes = <uint8_t*>calloc(2 * n + 1, 1)
    keep = []
    try:
        if views == NULL or codes == NULL:
            raise MemoryError
        for i, (user, kind, access, topic) in enumerate(rules):
            if user is not None:
                views[i] = view_keep(keep, user)
            views[n + i] = view_keep(keep, topic)
            codes[i] = kind == "pattern"
            codes[n + i] = <uint8_t><int>ACL_ACCESS[access]
        acl = acl_new(views, views + n, codes, codes + n, n)
        if acl == NULL:
            raise MemoryError
        return acl
    finally:
        free(views)
        free(codes)


cdef void security_free(Security* s) noexcept nogil:
    if s != NULL:
        acl_free(s.acl)
        roles_unref(s.roles)
        acl_free(s.transform_in)
        acl_free(s.transform_out)
        free(s)


cdef int security_place(dict spec, Py_ssize_t n) except -1:
    place = int(spec.get("security", 0))
    if not 0 <= place < n:
        raise ValueError(f"security is {place}; there are {n} of them")
    return place
