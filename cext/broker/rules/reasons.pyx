"""Find the access rule that decides about a topic, and write it as text. This module knows compiled rules; acl.pyx and roles.pyx decide. Traces call
it for a packet after or before the decision, within the same turn, so the rules are the same.

The walk visits every node that matches until it has found the rule, without the short cuts of the hot path. The filter of a rule is not stored: the
levels on the way from its node to the root are its text.
Cost: linear in the matching rules, and the text. Only traces pay it.
"""

from libc.stdint cimport uint8_t, uint32_t
from libc.stdio cimport snprintf
from libc.string cimport memcmp, memcpy, strlen

from cext.base.view cimport View
from cext.broker.rules.acl cimport (
    ACL_ANONYMOUS, ACL_DENY, ACL_NO_RULES, ACL_PATTERNS, ACL_READ, ACL_WRITE, Acl, acl_allows, acl_name_unsafe, acl_root,
)
from cext.broker.rules.edge cimport Node, Trees, edge_find, level_end, node_text
from cext.broker.rules.roles cimport (
    ROLES_UNKNOWN_USER, RULES_KINDS, RULES_RECEIVE, RULES_SEND, RULES_SUBSCRIBE, RULES_SUBSCRIBE_LITERAL, RULES_UNSUBSCRIBE,
    RULES_UNSUBSCRIBE_LITERAL, Roles, RuleFound, roles_profile, roles_rule_of, roles_verdict,
)

cdef enum:
    REASON_SUBSCRIBE = 4
    REASON_UNSUBSCRIBE = 8

cdef struct Search:
    const Trees* t
    const Reason* r
    bint by_roles                # 1: `wanted` is a rule of roles; 0: kinds of access of an acl_file
    uint32_t wanted
    uint32_t node                # the result
    bint below                   # the rule ends with `#`


# ---------------------------------------------------------------- text

cdef void put(Reason* r, const uint8_t* p, uint32_t n) noexcept nogil:
    if n > sizeof(r.text) - r.n:
        n = <uint32_t>sizeof(r.text) - r.n
    memcpy(r.text + r.n, p, n)
    r.n += n


cdef void put_text(Reason* r, const char* text) noexcept nogil:
    put(r, <const uint8_t*>text, <uint32_t>strlen(text))


cdef void put_level(Reason* r, const Trees* t, uint32_t node) noexcept nogil:
    cdef const Node* one = &t.nodes[node]
    cdef const Node* parent = &t.nodes[one.parent]
    if parent.plus == node:
        put_text(r, "+")
    elif parent.user == node:
        put_text(r, "%u")
    elif parent.client == node:
        put_text(r, "%c")
    else:
        put(r, node_text(one), one.n)


cdef void put_filter(Reason* r, const Trees* t, uint32_t root, uint32_t node, bint below) noexcept nogil:
    """Write the filter of the rule at a node. The way to the root has at most as many levels as the topic."""
    cdef uint32_t way[256]
    cdef uint32_t n = 0
    while node != root and n < 256:
        way[n] = node
        n += 1
        node = t.nodes[node].parent
    while n:
        n -= 1
        put_level(r, t, way[n])
        if n or below:
            put_text(r, "/")
    if below:
        put_text(r, "#")


# ---------------------------------------------------------------- the walk

cdef inline bint holds(const Search* w, const Node* node, bint below) noexcept nogil:
    if w.by_roles:
        return (node.verdict.decides.below if below else node.verdict.decides.here) == w.wanted
    return ((node.verdict.gives.below if below else node.verdict.gives.here) & w.wanted) != 0


cdef bint found_at(Search* w, uint32_t node, bint below) noexcept nogil:
    if not holds(w, &w.t.nodes[node], below):
        return 0
    w.node = node
    w.below = below
    return 1


cdef bint is_name(const Search* w, View name, uint32_t at, uint32_t end) noexcept nogil:
    """Is the name at `at`? In an acl_file it may have several levels; in roles it is the level up to `end`."""
    cdef View v = w.r.topic
    if name.p == NULL or v.n - at < name.n or memcmp(v.p + at, name.p, name.n) != 0:
        return 0
    if w.by_roles:
        return name.n != 0 and end - at == name.n
    return v.n - at == name.n or v.p[at + name.n] == c'/'


cdef bint search(Search* w, uint32_t i, uint32_t at) noexcept nogil:
    cdef const Node* node = &w.t.nodes[i]
    cdef View topic = w.r.topic
    cdef bint wild = at or topic.p[0] != c'$'          # [v5 4.7.2-1]
    cdef uint32_t end, child
    if wild and found_at(w, i, 1):
        return 1
    if at > topic.n:
        return found_at(w, i, 0)
    end = level_end(topic, at)
    if wild and node.plus and not (w.by_roles and end - at == 1 and topic.p[at] == c'#') and search(w, node.plus, end + 1):
        return 1
    if wild and node.user and is_name(w, w.r.username, at, end) and search(w, node.user, at + w.r.username.n + 1):
        return 1
    if wild and node.client and is_name(w, w.r.client_id, at, end) and search(w, node.client, at + w.r.client_id.n + 1):
        return 1
    child = edge_find(w.t, i, topic.p + at, end - at)
    return child != 0 and search(w, child, end + 1)


# ---------------------------------------------------------------- acl_file

cdef const char* access_word(uint8_t bits) noexcept nogil:
    if bits & ACL_DENY:
        return "deny "
    if bits & ACL_READ and bits & ACL_WRITE:
        return "readwrite "
    return "read " if bits & ACL_READ else "write "


cdef bint acl_found(const Acl* a, Reason* r, uint32_t root, uint8_t wanted) noexcept nogil:
    cdef Search w
    cdef uint8_t bits
    w.t = &a.trees
    w.r = r
    w.by_roles = 0
    w.wanted = wanted
    if not search(&w, root, 0):
        return 0
    bits = a.trees.nodes[w.node].verdict.gives.below if w.below else a.trees.nodes[w.node].verdict.gives.here
    if root == ACL_PATTERNS:
        put_text(r, "pattern ")
    else:
        if root != ACL_ANONYMOUS:
            put_text(r, "user ")
            put(r, r.username.p, r.username.n)
            put_text(r, ": ")
        put_text(r, "topic ")
    put_text(r, access_word(wanted if wanted == ACL_DENY else bits & ~<uint32_t>ACL_DENY))
    put_filter(r, w.t, root, w.node, w.below)
    return 1


cdef bint acl_reason(const Acl* a, Reason* r) noexcept nogil:
    cdef uint32_t root = acl_root(a, r.username)
    cdef bint allowed = acl_allows(a, root, r.username, r.client_id, r.topic, r.access)
    if r.topic.n == 0:
        return allowed
    if root != ACL_NO_RULES:
        if acl_found(a, r, root, ACL_DENY) or acl_found(a, r, root, r.access):
            return allowed
    if not acl_name_unsafe(r.username) and not acl_name_unsafe(r.client_id):
        if acl_found(a, r, ACL_PATTERNS, ACL_DENY) or acl_found(a, r, ACL_PATTERNS, r.access):
            return allowed
    put_text(r, "no rule of the acl_file")
    return allowed


# ---------------------------------------------------------------- roles

cdef const char* access_name(uint8_t access) noexcept nogil:
    if access == REASON_SUBSCRIBE:
        return "subscribe"
    if access == REASON_UNSUBSCRIBE:
        return "unsubscribe"
    return "publishClientReceive" if access == 1 else "publishClientSend"


cdef bint rule_put(const Roles* roles, Reason* r, const RuleFound* found, int kind) noexcept nogil:
    """Write the rule if it is one of this kind."""
    cdef Search w
    cdef uint32_t root = 1 + found.role * RULES_KINDS + <uint32_t>kind
    cdef bint literal = kind == RULES_SUBSCRIBE_LITERAL or kind == RULES_UNSUBSCRIBE_LITERAL
    w.t = &roles.trees
    w.r = r
    w.by_roles = 1
    w.wanted = found.rule
    w.below = 0
    if literal:
        w.node = edge_find(w.t, root, r.topic.p, r.topic.n)
        if w.node == 0 or not holds(&w, &w.t.nodes[w.node], 0):
            return 0
    elif not search(&w, root, 0):
        return 0
    put_text(r, "Literal " if literal else "Pattern " if r.access >= REASON_SUBSCRIBE else " ")
    put_text(r, "allow " if found.rule & 1 else "deny ")
    put_filter(r, w.t, root, w.node, w.below)
    return 1


cdef int roles_reason(const Roles* roles, Reason* r) noexcept nogil:
    cdef RuleFound found
    cdef char number[16]
    cdef uint32_t profile = roles_profile(roles, r.username)
    cdef int verdict = roles_verdict(roles, profile, r.username, r.client_id, r.topic, r.access)
    found.access = r.access
    if roles_rule_of(roles, profile, r.username, r.client_id, r.topic, &found):
        snprintf(number, sizeof(number), "role #%u: ", <unsigned int>found.role)
        put_text(r, number)
        put_text(r, access_name(r.access))
        if found.plain:
            put_text(r, ": no wildcards")
        elif r.access == REASON_SUBSCRIBE:
            rule_put(roles, r, &found, RULES_SUBSCRIBE_LITERAL) or rule_put(roles, r, &found, RULES_SUBSCRIBE)
        elif r.access == REASON_UNSUBSCRIBE:
            rule_put(roles, r, &found, RULES_UNSUBSCRIBE_LITERAL) or rule_put(roles, r, &found, RULES_UNSUBSCRIBE)
        else:
            rule_put(roles, r, &found, RULES_RECEIVE if r.access == 1 else RULES_SEND)
    elif profile == ROLES_UNKNOWN_USER and r.username.p != NULL:
        put_text(r, "the user has no roles")
    else:
        put_text(r, "default ")
        put_text(r, access_name(r.access))
        put_text(r, " allow" if verdict == 1 else " deny")
    return verdict
