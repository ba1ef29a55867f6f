"""Access rules compiled from an acl_file. Knows topics, usernames and client ids; not clients or files.

As in Mosquitto: a client with a username is judged by its user's rules, one without by those before any `user` line; in each case denials
first, then what allows; then by the patterns, in the same order; what nothing allows is denied. So of each part only this matters: which
kinds of access the filters that match the topic give, all together.

Each part is a tree of levels; the edges of all of them lie in one hash table, and `%u`, `%c` and `+` are edges of their own: names are
compared where they stand, and nothing is expanded, allocated or kept per client.
Invariant: every node has one parent, so a check visits each at most once; what cannot change the verdict is not visited (`sub`).
A node's place in the table follows from its path alone, not from where its parent lies: the processor looks ahead, and levels that are not
in its cache are waited for together.
Cost: some 10 ns per level of the topic that the rules know, whatever their number; a walk for a SUBSCRIBE with wildcards is linear in the
rules in the worst case. What is hashed are the operator's rules, so the hash needs no key: a client chooses what is looked up,
not what lies there.
"""

from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memchr, memcmp, memcpy, memset

from cext.base.view cimport View
from cext.broker.edge cimport edge_hash, level_end, sign_hash
from cext.topic.name cimport filter_matches

cdef enum:
    NODES_MIN = 64
    READ_DENY = ACL_READ | ACL_DENY

cdef struct Who:                 # a check and who it is about
    const Acl* a
    View username
    View client_id
    View topic                   # or the filter subscribed to


# ---------------------------------------------------------------- edges

cdef inline const uint8_t* text_of(const AclNode* node) noexcept nogil:
    if node.n <= ACL_INLINE:
        return &node.head[0]
    return node.text


cdef inline bint is_level(const AclNode* node, const uint8_t* p, uint32_t n) noexcept nogil:
    return node.n == n and memcmp(text_of(node), p, n) == 0


cdef inline uint32_t find_hashed(const Acl* a, uint32_t parent, uint32_t hash, const uint8_t* p, uint32_t n) noexcept nogil:
    """0: there is no such edge."""
    cdef uint32_t at = hash & a.mask
    while a.slots[at].node:
        if a.slots[at].hash == hash and a.nodes[a.slots[at].node].parent == parent and is_level(&a.nodes[a.slots[at].node], p, n):
            return a.slots[at].node
        at = (at + 1) & a.mask
    return 0


cdef inline uint32_t find(const Acl* a, uint32_t parent, const uint8_t* p, uint32_t n) noexcept nogil:
    return find_hashed(a, parent, edge_hash(a.nodes[parent].hash, p, n), p, n)


# ---------------------------------------------------------------- compiling

cdef uint32_t node_new(Acl* a, uint32_t parent) noexcept nogil:
    """0: no memory."""
    cdef AclNode* nodes
    cdef uint32_t cap
    if a.n_nodes == a.cap_nodes:
        cap = a.cap_nodes * 2 or NODES_MIN
        nodes = <AclNode*>realloc(a.nodes, <size_t>cap * sizeof(AclNode))
        if nodes == NULL:
            return 0
        a.nodes = nodes
        a.cap_nodes = cap
    memset(&a.nodes[a.n_nodes], 0, sizeof(AclNode))
    a.nodes[a.n_nodes].parent = parent
    a.nodes[a.n_nodes].hash = a.n_nodes      # of a root
    a.n_nodes += 1
    return a.n_nodes - 1


cdef int slots_grow(Acl* a) noexcept nogil:
    cdef uint32_t cap = 4 * a.cap_nodes
    cdef uint32_t i, at
    cdef AclSlot* slots
    if a.slots != NULL and a.mask + 1 >= 2 * a.n_nodes + 2:
        return 0
    slots = <AclSlot*>calloc(cap, sizeof(AclSlot))
    if slots == NULL:
        return -1
    if a.slots != NULL:
        for i in range(a.mask + 1):
            if a.slots[i].node:
                at = a.slots[i].hash & (cap - 1)
                while slots[at].node:
                    at = (at + 1) & (cap - 1)
                slots[at] = a.slots[i]
        free(a.slots)
    a.slots = slots
    a.mask = cap - 1
    return 0


cdef uint32_t edge_add(Acl* a, uint32_t parent, const uint8_t* p, uint32_t n) noexcept nogil:
    """The node behind the edge, which is made where it is missing. 0: no memory."""
    cdef uint32_t hash, at
    cdef uint32_t node = find(a, parent, p, n)
    cdef AclNode* made
    if node:
        return node
    node = node_new(a, parent)
    if node == 0 or slots_grow(a) != 0:
        return 0
    made = &a.nodes[node]
    if n > ACL_INLINE:
        made.text = <uint8_t*>malloc(n)
        if made.text == NULL:
            return 0
        memcpy(<uint8_t*>made.text, p, n)
    elif n:
        memcpy(made.head, p, n)
    made.n = n
    made.sibling = a.nodes[parent].child
    a.nodes[parent].child = node
    hash = made.hash = edge_hash(a.nodes[parent].hash, p, n)
    at = hash & a.mask
    while a.slots[at].node:
        at = (at + 1) & a.mask
    a.slots[at].hash = hash
    a.slots[at].node = node
    return node


cdef uint32_t sign_add(Acl* a, uint32_t parent, uint8_t sign) noexcept nogil:
    """As edge_add, for `+`, `%u` (u) and `%c` (c)."""
    cdef AclNode* p = &a.nodes[parent]
    cdef uint32_t node = p.plus if sign == c'+' else p.user if sign == c'u' else p.client
    if node:
        return node
    node = node_new(a, parent)
    p = &a.nodes[parent]
    if node:
        a.nodes[node].hash = sign_hash(p.hash, sign)
    if node and sign == c'+':
        p.plus = node
    elif node and sign == c'u':
        p.user = node
    elif node:
        p.client = node
    return node


cdef int rule_add(Acl* a, uint32_t root, View filter, bint pattern, uint8_t access) noexcept nogil:
    cdef uint32_t at = 0, end, n
    cdef uint32_t node = root
    cdef const uint8_t* p
    a.nodes[root].sub |= access
    while at <= filter.n:
        end = level_end(filter, at)
        p = filter.p + at
        n = end - at
        if n == 1 and p[0] == c'#':
            a.nodes[node].below |= access
            return 0
        if n == 1 and p[0] == c'+':
            node = sign_add(a, node, c'+')
        elif pattern and n == 2 and p[0] == c'%' and (p[1] == c'u' or p[1] == c'c'):
            node = sign_add(a, node, p[1])
        else:
            a.nodes[node].literals |= access
            node = edge_add(a, node, p, n)
        if node == 0:
            return -1
        a.nodes[node].sub |= access
        at = end + 1
    a.nodes[node].here |= access
    return 0


cdef Acl* acl_new(const View* users, const View* filters, const uint8_t* kinds, const uint8_t* access, uint32_t n) noexcept nogil:
    cdef Acl* a = <Acl*>calloc(1, sizeof(Acl))
    cdef uint32_t i, _, root
    if a == NULL:
        return NULL
    a.refs = 1
    for _ in range(3):           # ACL_USERS, ACL_ANONYMOUS, ACL_PATTERNS
        node_new(a, 0)
    if a.n_nodes < 3 or slots_grow(a) != 0:
        acl_free(a)
        return NULL
    for i in range(n):
        root = ACL_PATTERNS if kinds[i] else ACL_ANONYMOUS
        if kinds[i] == 0 and users[i].p != NULL:
            root = edge_add(a, ACL_USERS, users[i].p, users[i].n)
        if root == 0 or rule_add(a, root, filters[i], kinds[i] != 0, access[i]) != 0:
            acl_free(a)
            return NULL
    return a


cdef void acl_free(Acl* a) noexcept nogil:
    cdef uint32_t i
    if a == NULL:
        return
    if a.nodes != NULL:
        for i in range(a.n_nodes):
            free(<void*>a.nodes[i].text)
    free(a.nodes)
    free(a.slots)
    free(a)


# ---------------------------------------------------------------- asking about a topic

cdef bint acl_name_unsafe(View name) noexcept nogil:
    return name.n and (memchr(name.p, c'+', name.n) != NULL or memchr(name.p, c'#', name.n) != NULL)


cdef uint32_t acl_root(const Acl* a, View username) noexcept nogil:
    return ACL_ANONYMOUS if username.p == NULL else find(a, ACL_USERS, username.p, username.n)


cdef inline bint stands_at(View name, View v, uint32_t at) noexcept nogil:
    """Does v go on at `at` with the name, and nothing more in that level?"""
    if name.p == NULL or v.n - at < name.n or (v.n - at > name.n and v.p[at + name.n] != c'/'):
        return 0
    return memcmp(v.p + at, name.p, name.n) == 0


cdef uint8_t walk(const Who* w, uint32_t i, uint32_t path, uint32_t at, uint8_t need) noexcept nogil:
    """The access that filters through node i (path: its hash) give to what is left of the topic, as far as somebody asks: `need`."""
    cdef const AclNode* node
    cdef uint8_t found = 0
    cdef uint32_t end
    cdef bint wild = at or w.topic.p[0] != c'$'          # [v5 4.7.2-1]
    while True:
        node = &w.a.nodes[i]
        if wild:
            found |= node.below
        if at > w.topic.n:
            return found | node.here
        if found & ACL_DENY:
            return found
        if found & need:
            need = ACL_DENY
        end = level_end(w.topic, at)
        if node.plus and wild and w.a.nodes[node.plus].sub & need:
            found |= walk(w, node.plus, sign_hash(path, c'+'), end + 1, need)
        if node.user and w.a.nodes[node.user].sub & need and stands_at(w.username, w.topic, at):
            found |= walk(w, node.user, sign_hash(path, c'u'), at + w.username.n + 1, need)
        if node.client and w.a.nodes[node.client].sub & need and stands_at(w.client_id, w.topic, at):
            found |= walk(w, node.client, sign_hash(path, c'c'), at + w.client_id.n + 1, need)
        if not node.literals & need:
            return found
        path = edge_hash(path, w.topic.p + at, end - at)
        i = find_hashed(w.a, i, path, w.topic.p + at, end - at)
        if i == 0:
            return found
        at = end + 1
        wild = 1


cdef bint acl_allows(const Acl* a, uint32_t root, View username, View client_id, View topic, uint8_t access) noexcept nogil:
    cdef Who w
    cdef uint8_t found
    if topic.n == 0:
        return 0
    w.a = a
    w.username = username
    w.client_id = client_id
    w.topic = topic
    if root != ACL_NOBODY and a.nodes[root].sub & (access | ACL_DENY):
        found = walk(&w, root, a.nodes[root].hash, 0, access | ACL_DENY)
        if found & (access | ACL_DENY):
            return not found & ACL_DENY
    if not a.nodes[ACL_PATTERNS].sub & access or acl_name_unsafe(username) or acl_name_unsafe(client_id):
        return 0
    found = walk(&w, ACL_PATTERNS, a.nodes[ACL_PATTERNS].hash, 0, access | ACL_DENY)
    return found & access and not found & ACL_DENY


# ---------------------------------------------------------------- asking about a filter

cdef inline bint is_sign(View v, uint32_t at, uint32_t end, uint8_t sign) noexcept nogil:
    return end - at == 1 and v.p[at] == sign


cdef bint denied_all(const Who* w, uint32_t i, uint32_t at, bint nameless) noexcept nogil:
    """Is there a denial through node i that covers what is left of the filter? nameless: only the empty topic, which does not exist, has
    no level here."""
    cdef const AclNode* node = &w.a.nodes[i]
    cdef bint wild = at or w.topic.p[0] != c'$'
    cdef uint32_t end
    if not node.sub & ACL_DENY:
        return 0
    if node.below & ACL_DENY and wild:
        return 1
    if at > w.topic.n:
        return node.here & ACL_DENY
    end = level_end(w.topic, at)
    if is_sign(w.topic, at, end, c'#'):
        # `#` also stands for "no further level", which only `#` covers; but `#` and `/#` always have one more
        return nameless and node.plus and w.a.nodes[node.plus].below & ACL_DENY
    nameless = at == 0 and end == 0
    if node.plus and wild and denied_all(w, node.plus, end + 1, nameless):
        return 1
    if node.user and stands_at(w.username, w.topic, at) and denied_all(w, node.user, at + w.username.n + 1, nameless):
        return 1
    if node.client and stands_at(w.client_id, w.topic, at) and denied_all(w, node.client, at + w.client_id.n + 1, nameless):
        return 1
    i = find(w.a, i, w.topic.p + at, end - at)
    return i and denied_all(w, i, end + 1, nameless)


cdef inline bint is_system(const AclNode* node) noexcept nogil:
    return node.n and text_of(node)[0] == c'$'


cdef bint gives(const Who* w, uint32_t i, bint top) noexcept nogil:
    """Can anything be read through node i? A filter that begins with a wildcard (top) does not reach `$` topics."""
    cdef const AclNode* node = &w.a.nodes[i]
    cdef uint32_t child = node.child
    if not node.sub & ACL_READ:
        return 0
    if (node.here | node.below) & ACL_READ or (node.plus and gives(w, node.plus, 0)):
        return 1
    if node.user and w.username.p != NULL and not (top and w.username.p[0] == c'$') and gives(w, node.user, 0):
        return 1
    if node.client and not (top and w.client_id.p[0] == c'$') and gives(w, node.client, 0):
        return 1
    while child:
        if not (top and is_system(&w.a.nodes[child])) and gives(w, child, 0):
            return 1
        child = w.a.nodes[child].sibling
    return 0


cdef bint meets_name(const Who* w, uint32_t i, View name, uint32_t at) noexcept nogil:
    """As `meets`, of the name and then node i. A name may hold slashes."""
    cdef uint32_t n_at = 0, n_end, end
    if name.p == NULL or (at == 0 and name.n and (name.p[0] == c'$') != (w.topic.p[0] == c'$')):
        return 0
    while n_at <= name.n:
        if at > w.topic.n:
            return 0
        n_end = level_end(name, n_at)
        end = level_end(w.topic, at)
        if is_sign(w.topic, at, end, c'#'):
            return gives(w, i, 0)
        if not is_sign(w.topic, at, end, c'+') and (
                end - at != n_end - n_at or memcmp(w.topic.p + at, name.p + n_at, end - at) != 0):
            return 0
        n_at = n_end + 1
        at = end + 1
    return meets(w, i, at)


cdef bint meets(const Who* w, uint32_t i, uint32_t at) noexcept nogil:
    """Is there a topic that what is left of the filter matches and that a filter through node i lets be read?"""
    cdef const AclNode* node = &w.a.nodes[i]
    cdef bint wild = at or w.topic.p[0] != c'$'
    cdef uint32_t end, child
    if not node.sub & ACL_READ:
        return 0
    if node.below & ACL_READ and wild:
        return 1
    if at > w.topic.n:
        return node.here & ACL_READ
    end = level_end(w.topic, at)
    if is_sign(w.topic, at, end, c'#'):
        return gives(w, i, at == 0)
    if node.plus and wild and meets(w, node.plus, end + 1):
        return 1
    if node.user and meets_name(w, node.user, w.username, at):
        return 1
    if node.client and meets_name(w, node.client, w.client_id, at):
        return 1
    if not is_sign(w.topic, at, end, c'+'):
        i = find(w.a, i, w.topic.p + at, end - at)
        return i and meets(w, i, end + 1)
    child = node.child
    while child:
        if not (at == 0 and is_system(&w.a.nodes[child])) and meets(w, child, end + 1):
            return 1
        child = w.a.nodes[child].sibling
    return 0


cdef bint acl_may_subscribe(const Acl* a, uint32_t root, View username, View client_id, View filter) noexcept nogil:
    cdef Who w
    if filter.n == 0:
        return 0
    w.a = a
    w.username = username
    w.client_id = client_id
    w.topic = filter
    if root != ACL_NOBODY:
        if denied_all(&w, root, 0, 1):
            return 0
        if meets(&w, root, 0):
            return 1
    if not a.nodes[ACL_PATTERNS].sub & ACL_READ or acl_name_unsafe(username) or acl_name_unsafe(client_id):
        return 0
    return not denied_all(&w, ACL_PATTERNS, 0, 1) and meets(&w, ACL_PATTERNS, 0)


# ---------------------------------------------------------------- what nobody may write

cdef bint starts(View topic, const char* prefix, uint32_t n) noexcept nogil:
    return topic.n >= n and memcmp(topic.p, prefix, n) == 0


cdef bint topic_reserved(View topic) noexcept nogil:
    cdef View bridges
    if topic.n == 0 or topic.p[0] != c'$':
        return 0
    if starts(topic, "$SYS", 4):
        bridges.p = <const uint8_t*>b"$SYS/broker/connection/+/state"
        bridges.n = 30
        return not filter_matches(bridges, topic)
    return starts(topic, "$share", 6) or starts(topic, "$CONTROL/", 9)
