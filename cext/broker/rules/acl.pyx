"""Compile the access rules of an acl_file and decide by them. This module knows topics, user names and client ids. It does not know clients or
files.

As in Mosquitto, the rules of its user decide about a client with a user name, and the rules before any `user` line about a client without one. In
each case denials come first, then what allows; then the patterns follow in the same order. Access that no rule allows is denied. So only one thing
matters in each part: the kinds of access that the matching filters give, all together.

Each part is a tree of levels (edge.pyx), where `%u`, `%c` and `+` are edges of their own. Names are compared in place; nothing is expanded,
allocated or stored per client. A topic that begins with `$` is matched only by a rule whose text begins with `$` [v5 4.7.2-1]: a name in the
place of `%u` or `%c` is not enough, or the client `$CONTROL` would reach the control topics by `pattern readwrite %c/#`.
Invariant: every node has one parent, so a check visits each node at most once. Branches that cannot change the verdict are not visited (`sub`).
Cost: about 10 ns per level of the topic that occurs in the rules, for any number of rules. The walk for a SUBSCRIBE with wildcards is linear in the
rules in the worst case.
"""

from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memchr, memcmp

from cext.base.view cimport View
from cext.broker.rules.edge cimport (
    Node, Trees, edge_add, edge_hash, edge_find, find_hashed, level_end, sign_add, sign_hash, node_text, trees_fini, trees_init, trees_trim,
)
from cext.topic.name cimport filter_matches

cdef enum:
    READ_DENY = ACL_READ | ACL_DENY

cdef struct AclSubject:                 # a check and its client
    const Acl* a
    View username
    View client_id
    View topic                   # or the filter of a SUBSCRIBE


# ---------------------------------------------------------------- compiling

cdef uint32_t literal_add(Trees* t, uint32_t parent, const uint8_t* p, uint32_t n) noexcept nogil:
    """Add an edge like edge_add, and list the new node as a child of its parent."""
    cdef uint32_t before = t.n_nodes
    cdef uint32_t node = edge_add(t, parent, p, n)
    if node >= before:
        t.nodes[node].verdict.gives.sibling = t.nodes[parent].verdict.gives.child
        t.nodes[parent].verdict.gives.child = node
    return node


cdef int rule_add(Trees* t, uint32_t root, View filter, bint pattern, uint8_t access) noexcept nogil:
    cdef uint32_t at = 0, end, n
    cdef uint32_t node = root
    cdef const uint8_t* p
    t.nodes[root].verdict.gives.sub |= access
    while at <= filter.n:
        end = level_end(filter, at)
        p = filter.p + at
        n = end - at
        if n == 1 and p[0] == c'#':
            t.nodes[node].verdict.gives.below |= access
            return 0
        if n == 1 and p[0] == c'+':
            node = sign_add(t, node, c'+')
        elif pattern and n == 2 and p[0] == c'%' and (p[1] == c'u' or p[1] == c'c'):
            node = sign_add(t, node, p[1])
        else:
            t.nodes[node].verdict.gives.literals |= access
            node = literal_add(t, node, p, n)
        if node == 0:
            return -1
        t.nodes[node].verdict.gives.sub |= access
        at = end + 1
    t.nodes[node].verdict.gives.here |= access
    return 0


cdef Acl* acl_new(const View* users, const View* filters, const uint8_t* kinds, const uint8_t* access, uint32_t n) noexcept nogil:
    cdef Acl* a = <Acl*>calloc(1, sizeof(Acl))
    cdef uint32_t i, root
    if a == NULL:
        return NULL
    a.refs = 1
    if trees_init(&a.trees, ACL_PATTERNS + 1, 0) != 0:
        acl_free(a)
        return NULL
    for i in range(n):
        root = ACL_PATTERNS if kinds[i] else ACL_ANONYMOUS
        if kinds[i] == 0 and users[i].p != NULL:
            root = edge_add(&a.trees, ACL_USERS, users[i].p, users[i].n)
        if root == 0 or rule_add(&a.trees, root, filters[i], kinds[i] != 0, access[i]) != 0:
            acl_free(a)
            return NULL
    trees_trim(&a.trees)
    return a


cdef void acl_free(Acl* a) noexcept nogil:
    if a != NULL:
        trees_fini(&a.trees)
        free(a)


# ---------------------------------------------------------------- asking about a topic

cdef bint acl_name_unsafe(View name) noexcept nogil:
    return name.n and (memchr(name.p, c'+', name.n) != NULL or memchr(name.p, c'#', name.n) != NULL)


cdef uint32_t acl_root(const Acl* a, View username) noexcept nogil:
    return ACL_ANONYMOUS if username.p == NULL else edge_find(&a.trees, ACL_USERS, username.p, username.n)


cdef inline bint is_name_at(View name, View v, uint32_t at) noexcept nogil:
    """Is the name at position `at` of v, followed by a slash or the end?"""
    if name.p == NULL or v.n - at < name.n or (v.n - at > name.n and v.p[at + name.n] != c'/'):
        return 0
    return memcmp(v.p + at, name.p, name.n) == 0


cdef uint8_t acl_walk(const AclSubject* w, uint32_t i, uint32_t path, uint32_t at, uint8_t need) noexcept nogil:
    """Return the kinds of access that filters through node i give for the rest of the topic. `path` is the hash of the node's path. The result is
    complete only for the kinds in `need`."""
    cdef const Node* node
    cdef uint8_t found = 0
    cdef uint32_t end
    cdef bint wild = at or w.topic.p[0] != c'$'          # [v5 4.7.2-1]
    while True:
        node = &w.a.trees.nodes[i]
        if wild:
            found |= node.verdict.gives.below
        if at > w.topic.n:
            return found | node.verdict.gives.here
        if found & ACL_DENY:
            return found
        if found & need:
            need = ACL_DENY
        end = level_end(w.topic, at)
        if node.plus and wild and w.a.trees.nodes[node.plus].verdict.gives.sub & need:
            found |= acl_walk(w, node.plus, sign_hash(path, c'+'), end + 1, need)
        if node.user and wild and w.a.trees.nodes[node.user].verdict.gives.sub & need and is_name_at(w.username, w.topic, at):
            found |= acl_walk(w, node.user, sign_hash(path, c'u'), at + w.username.n + 1, need)
        if node.client and wild and w.a.trees.nodes[node.client].verdict.gives.sub & need and is_name_at(w.client_id, w.topic, at):
            found |= acl_walk(w, node.client, sign_hash(path, c'c'), at + w.client_id.n + 1, need)
        if not node.verdict.gives.literals & need:
            return found
        path = edge_hash(path, w.topic.p + at, end - at)
        i = find_hashed(&w.a.trees, i, path, w.topic.p + at, end - at)
        if i == 0:
            return found
        at = end + 1
        wild = 1


cdef bint acl_allows(const Acl* a, uint32_t root, View username, View client_id, View topic, uint8_t access) noexcept nogil:
    cdef AclSubject w
    cdef uint8_t found
    if topic.n == 0:
        return 0
    w.a = a
    w.username = username
    w.client_id = client_id
    w.topic = topic
    if root != ACL_NO_RULES and a.trees.nodes[root].verdict.gives.sub & (access | ACL_DENY):
        found = acl_walk(&w, root, a.trees.nodes[root].hash, 0, access | ACL_DENY)
        if found & (access | ACL_DENY):
            return not found & ACL_DENY
    if not a.trees.nodes[ACL_PATTERNS].verdict.gives.sub & access or acl_name_unsafe(username) or acl_name_unsafe(client_id):
        return 0
    found = acl_walk(&w, ACL_PATTERNS, a.trees.nodes[ACL_PATTERNS].hash, 0, access | ACL_DENY)
    return found & access and not found & ACL_DENY


# ---------------------------------------------------------------- asking about a filter

cdef inline bint is_sign(View v, uint32_t at, uint32_t end, uint8_t sign) noexcept nogil:
    return end - at == 1 and v.p[at] == sign


cdef bint denied_all(const AclSubject* w, uint32_t i, uint32_t at, bint nameless) noexcept nogil:
    """Does a denial through node i cover the rest of the filter? `nameless`: without a level here only the empty topic is left, which does not
    exist."""
    cdef const Node* node = &w.a.trees.nodes[i]
    cdef bint wild = at or w.topic.p[0] != c'$'
    cdef uint32_t end
    if not node.verdict.gives.sub & ACL_DENY:
        return 0
    if node.verdict.gives.below & ACL_DENY and wild:
        return 1
    if at > w.topic.n:
        return node.verdict.gives.here & ACL_DENY
    end = level_end(w.topic, at)
    if is_sign(w.topic, at, end, c'#'):
        # `#` also matches no further level, which only `#` covers; but `#` and `/#` always have one more level
        return nameless and node.plus and w.a.trees.nodes[node.plus].verdict.gives.below & ACL_DENY
    nameless = at == 0 and end == 0
    if node.plus and wild and denied_all(w, node.plus, end + 1, nameless):
        return 1
    if node.user and wild and is_name_at(w.username, w.topic, at) and denied_all(w, node.user, at + w.username.n + 1, nameless):
        return 1
    if node.client and wild and is_name_at(w.client_id, w.topic, at) and denied_all(w, node.client, at + w.client_id.n + 1, nameless):
        return 1
    i = edge_find(&w.a.trees, i, w.topic.p + at, end - at)
    return i and denied_all(w, i, end + 1, nameless)


cdef inline bint is_system(const Node* node) noexcept nogil:
    return node.n and node_text(node)[0] == c'$'


cdef bint acl_any_readable(const AclSubject* w, uint32_t i, bint top) noexcept nogil:
    """May any topic through node i be read? A filter that begins with a wildcard (`top`) does not match `$` topics."""
    cdef const Node* node = &w.a.trees.nodes[i]
    cdef uint32_t child = node.verdict.gives.child
    if not node.verdict.gives.sub & ACL_READ:
        return 0
    if (node.verdict.gives.here | node.verdict.gives.below) & ACL_READ or (node.plus and acl_any_readable(w, node.plus, 0)):
        return 1
    if node.user and w.username.p != NULL and not (top and w.username.p[0] == c'$') and acl_any_readable(w, node.user, 0):
        return 1
    if node.client and not (top and w.client_id.p[0] == c'$') and acl_any_readable(w, node.client, 0):
        return 1
    while child:
        if not (top and is_system(&w.a.trees.nodes[child])) and acl_any_readable(w, child, 0):
            return 1
        child = w.a.trees.nodes[child].verdict.gives.sibling
    return 0


cdef bint acl_meets_name(const AclSubject* w, uint32_t i, View name, uint32_t at) noexcept nogil:
    """Does the rest of the filter meet the levels of the name, followed by node i? A name may contain slashes. See acl_meets."""
    cdef uint32_t n_at = 0, n_end, end
    if name.p == NULL or (at == 0 and (w.topic.p[0] == c'$' or (name.n and name.p[0] == c'$'))):
        return 0
    while n_at <= name.n:
        if at > w.topic.n:
            return 0
        n_end = level_end(name, n_at)
        end = level_end(w.topic, at)
        if is_sign(w.topic, at, end, c'#'):
            return acl_any_readable(w, i, 0)
        if not is_sign(w.topic, at, end, c'+') and (
                end - at != n_end - n_at or memcmp(w.topic.p + at, name.p + n_at, end - at) != 0):
            return 0
        n_at = n_end + 1
        at = end + 1
    return acl_meets(w, i, at)


cdef bint acl_meets(const AclSubject* w, uint32_t i, uint32_t at) noexcept nogil:
    """Does the rest of the filter match a topic that a filter through node i allows to read?"""
    cdef const Node* node = &w.a.trees.nodes[i]
    cdef bint wild = at or w.topic.p[0] != c'$'
    cdef uint32_t end, child
    if not node.verdict.gives.sub & ACL_READ:
        return 0
    if node.verdict.gives.below & ACL_READ and wild:
        return 1
    if at > w.topic.n:
        return node.verdict.gives.here & ACL_READ
    end = level_end(w.topic, at)
    if is_sign(w.topic, at, end, c'#'):
        return acl_any_readable(w, i, at == 0)
    if node.plus and wild and acl_meets(w, node.plus, end + 1):
        return 1
    if node.user and acl_meets_name(w, node.user, w.username, at):
        return 1
    if node.client and acl_meets_name(w, node.client, w.client_id, at):
        return 1
    if not is_sign(w.topic, at, end, c'+'):
        i = edge_find(&w.a.trees, i, w.topic.p + at, end - at)
        return i and acl_meets(w, i, end + 1)
    child = node.verdict.gives.child
    while child:
        if not (at == 0 and is_system(&w.a.trees.nodes[child])) and acl_meets(w, child, end + 1):
            return 1
        child = w.a.trees.nodes[child].verdict.gives.sibling
    return 0


cdef bint acl_may_subscribe(const Acl* a, uint32_t root, View username, View client_id, View filter) noexcept nogil:
    cdef AclSubject w
    if filter.n == 0:
        return 0
    w.a = a
    w.username = username
    w.client_id = client_id
    w.topic = filter
    if root != ACL_NO_RULES:
        if denied_all(&w, root, 0, 1):
            return 0
        if acl_meets(&w, root, 0):
            return 1
    if not a.trees.nodes[ACL_PATTERNS].verdict.gives.sub & ACL_READ or acl_name_unsafe(username) or acl_name_unsafe(client_id):
        return 0
    return not denied_all(&w, ACL_PATTERNS, 0, 1) and acl_meets(&w, ACL_PATTERNS, 0)


# ---------------------------------------------------------------- reserved topics

cdef bint rule_topic_starts(View topic, const char* prefix, uint32_t n) noexcept nogil:
    return topic.n >= n and memcmp(topic.p, prefix, n) == 0


cdef bint topic_reserved(View topic) noexcept nogil:
    cdef View bridges
    if topic.n == 0 or topic.p[0] != c'$':
        return 0
    if rule_topic_starts(topic, "$SYS", 4):
        bridges.p = <const uint8_t*>b"$SYS/broker/connection/+/state"
        bridges.n = 30
        return not filter_matches(bridges, topic)
    return rule_topic_starts(topic, "$share", 6) or rule_topic_starts(topic, "$CONTROL/", 9)
