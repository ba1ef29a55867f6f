"""Decide by the roles of users, with the meaning of Mosquitto's dynamic security. This module knows topics, user names and client ids. It does not
know clients, groups or files.

A user has a list of roles: its own roles by priority, then those of its groups, by priority of the group and then of the role. Each role has rules
of each kind, by priority. The first rule that matches decides. Without such a rule the defaults decide, but never for `$CONTROL`, and never for an
unknown user name. Users with the same list share a *profile*, and all users share the trees of the roles.

A node contains the place of the rule that ends at it. The first rule is the lowest place among all that match, so branches without a lower place
than the one found are not visited. The user names are edges, too (edge.pyx).
Differences between the kinds: a pattern for SUBSCRIBE must cover the whole filter, so `+` in it does not cover `#`; a literal is compared with the
whole filter. Names replace `%u` and `%c` only as one whole level: a name with a slash, `+` or `#` matches nowhere.
Cost: as acl.pyx, for each role of the user until one decides. A check is linear in the rules of those roles in the worst case.
"""

from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memchr, memcmp, memcpy

from cext.base.view cimport View
from cext.broker.rules.edge cimport (
    Node, edge_add, edge_hash, edge_find, find_hashed, level_end, sign_add, sign_hash, trees_fini, trees_init,
)

cdef enum:
    SUBSCRIBE = 4                # kinds of access; as in plugin_gate.pxd
    UNSUBSCRIBE = 8
    CONTROL_N = 8                # bytes of "$CONTROL"

cdef struct RolesSubject:                 # a check and its client
    const Roles* r
    View username
    View client_id
    View topic


cdef inline uint32_t role_root(uint32_t role, int kind) noexcept nogil:
    return 1 + role * RULES_KINDS + <uint32_t>kind


# ---------------------------------------------------------------- compiling

cdef inline void rule_lower(uint32_t* place, uint32_t rule) noexcept nogil:
    if rule < place[0]:
        place[0] = rule


cdef int roles_rule(Roles* r, uint32_t role, int kind, View filter, uint32_t place, bint allow) noexcept nogil:
    cdef uint32_t rule = place << 1 | <uint32_t>allow
    cdef uint32_t node = role_root(role, kind)
    cdef uint32_t at = 0, end, n
    cdef const uint8_t* p
    rule_lower(&r.trees.nodes[node].verdict.decides.best, rule)
    if kind >= RULES_SUBSCRIBE_LITERAL:
        node = edge_add(&r.trees, node, filter.p, filter.n)
        if node:
            rule_lower(&r.trees.nodes[node].verdict.decides.here, rule)
        return 0 if node else -1
    while at <= filter.n:
        end = level_end(filter, at)
        p = filter.p + at
        n = end - at
        if n == 1 and p[0] == c'#':
            rule_lower(&r.trees.nodes[node].verdict.decides.below, rule)
            return 0
        if n == 1 and p[0] == c'+':
            node = sign_add(&r.trees, node, c'+')
        elif n == 2 and p[0] == c'%' and (p[1] == c'u' or p[1] == c'c'):
            node = sign_add(&r.trees, node, p[1])
        else:
            node = edge_add(&r.trees, node, p, n)
        if node == 0:
            return -1
        rule_lower(&r.trees.nodes[node].verdict.decides.best, rule)
        at = end + 1
    rule_lower(&r.trees.nodes[node].verdict.decides.here, rule)
    return 0


cdef int roles_user(Roles* r, View name, uint32_t profile) noexcept nogil:
    cdef uint32_t node = edge_add(&r.trees, 0, name.p, name.n)
    if node:
        r.trees.nodes[node].verdict.decides.here = profile
    return 0 if node else -1


cdef Roles* roles_new(uint32_t n_roles, uint32_t n_profiles, const uint32_t* starts, const uint32_t* lists, uint32_t n_lists) noexcept nogil:
    cdef Roles* r = <Roles*>calloc(1, sizeof(Roles))
    if r == NULL:
        return NULL
    r.refs = 1
    r.n_roles = n_roles
    r.n_profiles = n_profiles
    r.anonymous = ROLES_UNKNOWN_USER
    r.plain = <uint8_t*>calloc(<size_t>n_roles + 1, 1)
    r.starts = <uint32_t*>malloc((<size_t>n_profiles + 1) * sizeof(uint32_t))
    r.lists = <uint32_t*>malloc((<size_t>n_lists + 1) * sizeof(uint32_t))
    if r.plain != NULL and r.starts != NULL and r.lists != NULL:
        memcpy(r.starts, starts, (<size_t>n_profiles + 1) * sizeof(uint32_t))
        if n_lists:
            memcpy(r.lists, lists, <size_t>n_lists * sizeof(uint32_t))
        if trees_init(&r.trees, 1 + n_roles * RULES_KINDS, 0xFF) == 0:       # each node has ROLES_NONE
            return r
    roles_unref(r)
    return NULL


cdef void roles_unref(Roles* r) noexcept nogil:
    if r == NULL:
        return
    r.refs -= 1
    if r.refs:
        return
    trees_fini(&r.trees)
    free(r.plain)
    free(r.starts)
    free(r.lists)
    free(r)


# ---------------------------------------------------------------- asking

cdef uint32_t roles_profile(const Roles* r, View username) noexcept nogil:
    cdef uint32_t node
    if username.p == NULL:
        return r.anonymous
    node = edge_find(&r.trees, 0, username.p, username.n)
    return r.trees.nodes[node].verdict.decides.here if node else <uint32_t>ROLES_UNKNOWN_USER


cdef inline bint is_level_name(View name, View v, uint32_t at, uint32_t end) noexcept nogil:
    """Is the level exactly the name? A name `+` or `#` never matches, because it would be a wildcard of a filter."""
    if name.n == 0 or name.p == NULL or end - at != name.n or (name.n == 1 and (name.p[0] == c'+' or name.p[0] == c'#')):
        return 0
    return memcmp(v.p + at, name.p, name.n) == 0


cdef uint32_t roles_walk(const RolesSubject* w, uint32_t i, uint32_t path, uint32_t at, uint32_t found) noexcept nogil:
    """Return the lowest of `found` and the rules through node i that match the rest of the topic or filter. `path` is the hash of the node's path."""
    cdef const Node* node
    cdef uint32_t end
    cdef bint wild = at or w.topic.p[0] != c'$'          # [v5 4.7.2-1]
    while True:
        node = &w.r.trees.nodes[i]
        if node.verdict.decides.best >= found:
            return found
        if wild and node.verdict.decides.below < found:
            found = node.verdict.decides.below
        if at > w.topic.n:
            return node.verdict.decides.here if node.verdict.decides.here < found else found
        end = level_end(w.topic, at)
        if wild:
            if node.plus and not (end - at == 1 and w.topic.p[at] == c'#'):
                found = roles_walk(w, node.plus, sign_hash(path, c'+'), end + 1, found)
            if node.user and is_level_name(w.username, w.topic, at, end):
                found = roles_walk(w, node.user, sign_hash(path, c'u'), end + 1, found)
            if node.client and is_level_name(w.client_id, w.topic, at, end):
                found = roles_walk(w, node.client, sign_hash(path, c'c'), end + 1, found)
        path = edge_hash(path, w.topic.p + at, end - at)
        i = find_hashed(&w.r.trees, i, path, w.topic.p + at, end - at)
        if i == 0:
            return found
        at = end + 1
        wild = 1


cdef inline uint32_t role_asked(const RolesSubject* w, uint32_t role, int kind) noexcept nogil:
    cdef uint32_t root = role_root(role, kind)
    if w.r.trees.nodes[root].verdict.decides.best == ROLES_NONE:
        return ROLES_NONE
    return roles_walk(w, root, w.r.trees.nodes[root].hash, 0, ROLES_NONE)


cdef uint32_t rule_of_literal(const RolesSubject* w, uint32_t role, int kind) noexcept nogil:
    cdef uint32_t root = role_root(role, kind)
    if w.r.trees.nodes[root].verdict.decides.best == ROLES_NONE:
        return ROLES_NONE
    root = edge_find(&w.r.trees, root, w.topic.p, w.topic.n)
    return w.r.trees.nodes[root].verdict.decides.here if root else <uint32_t>ROLES_NONE


cdef inline bint has_wildcard(View filter) noexcept nogil:
    return memchr(filter.p, c'+', filter.n) != NULL or memchr(filter.p, c'#', filter.n) != NULL


cdef uint32_t rule_of(const RolesSubject* w, uint32_t role, uint8_t access, bint wildcard) noexcept nogil:
    """Return the first rule of this role that matches; ROLES_NONE if there is none."""
    cdef uint32_t rule
    if access == SUBSCRIBE:
        if wildcard and w.r.plain[role]:
            return 0             # the role denies before any rule
        rule = rule_of_literal(w, role, RULES_SUBSCRIBE_LITERAL)
        return rule if rule != ROLES_NONE else role_asked(w, role, RULES_SUBSCRIBE)
    if access == UNSUBSCRIBE:
        rule = rule_of_literal(w, role, RULES_UNSUBSCRIBE_LITERAL)
        return rule if rule != ROLES_NONE else role_asked(w, role, RULES_UNSUBSCRIBE)
    return role_asked(w, role, RULES_RECEIVE if access == 1 else RULES_SEND)


cdef int roles_verdict(const Roles* r, uint32_t profile, View username, View client_id, View topic, uint8_t access) noexcept nogil:
    cdef RolesSubject w
    cdef uint32_t i, rule
    cdef bint wildcard
    if topic.n == 0 or (profile == ROLES_UNKNOWN_USER and username.p != NULL):
        return -1
    w.r = r
    w.username = username
    w.client_id = client_id
    w.topic = topic
    wildcard = access == SUBSCRIBE and has_wildcard(topic)
    if profile != ROLES_UNKNOWN_USER:
        for i in range(r.starts[profile], r.starts[profile + 1]):
            rule = rule_of(&w, r.lists[i], access, wildcard)
            if rule != ROLES_NONE:
                return <int>(rule & 1)
    if not r.defaults & access or (topic.n >= CONTROL_N and memcmp(topic.p, b"$CONTROL", CONTROL_N) == 0):
        return -1
    return 1


cdef bint roles_rule_of(const Roles* r, uint32_t profile, View username, View client_id, View topic, RuleFound* found) noexcept nogil:
    cdef RolesSubject w
    cdef uint32_t i
    found.rule = ROLES_NONE
    if topic.n == 0 or profile == ROLES_UNKNOWN_USER:
        return 0
    w.r = r
    w.username = username
    w.client_id = client_id
    w.topic = topic
    for i in range(r.starts[profile], r.starts[profile + 1]):
        found.role = r.lists[i]
        found.plain = found.access == SUBSCRIBE and has_wildcard(topic) and r.plain[found.role]
        found.rule = rule_of(&w, found.role, found.access, found.access == SUBSCRIBE and has_wildcard(topic))
        if found.rule != ROLES_NONE:
            return 1
    return 0
