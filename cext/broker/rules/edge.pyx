"""Build trees of topic levels. This module knows levels, `+`, `%u` and `%c`. It does not know the verdict in a node, which belongs to acl.pyx and
roles.pyx.

The edges of all trees are in one hash table; signs are fields of the node. A node's slot in the table follows from its path alone and not from the
address of its parent. So the processor can look ahead, and several levels that are not in its cache load at the same time.
Invariant: every node has one parent. Once built, trees are only read, and nothing moves.
The hash needs no key, because the operator's rules are hashed: a client chooses what is looked up, but not what is in the table.
Cost: 64 bytes per node and 16 to 32 of the table. Building is linear in the number of levels.
"""

from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memset

cdef enum:
    NODES_MIN = 64
    EDGE_SLOTS_MIN = 256


cdef int trees_init(Trees* t, uint32_t roots, uint8_t blank) noexcept nogil:
    cdef uint32_t _
    t.blank = blank
    for _ in range(roots):
        node_new(t, 0)
    return 0 if t.n_nodes == roots and slots_grow(t) == 0 else -1


cdef void trees_fini(Trees* t) noexcept nogil:
    cdef uint32_t i
    for i in range(t.n_nodes):
        free(<void*>t.nodes[i].text)
    free(t.nodes)
    free(t.slots)
    memset(t, 0, sizeof(Trees))


cdef void trees_trim(Trees* t) noexcept nogil:
    """Give back the memory of nodes that were not needed. Old and new rules exist together while a change is put in force."""
    cdef Node* nodes = <Node*>realloc(t.nodes, <size_t>t.n_nodes * sizeof(Node)) if t.n_nodes else NULL
    if nodes != NULL:
        t.nodes = nodes
        t.cap_nodes = t.n_nodes


cdef uint32_t node_new(Trees* t, uint32_t parent) noexcept nogil:
    """Return a new node; 0 without memory (0 is also the very first node)."""
    cdef Node* node
    cdef uint32_t cap
    if t.n_nodes == t.cap_nodes:
        cap = t.cap_nodes * 2 or NODES_MIN
        node = <Node*>realloc(t.nodes, <size_t>cap * sizeof(Node)) if cap > t.cap_nodes else NULL
        if node == NULL:
            return 0
        t.nodes = node
        t.cap_nodes = cap
    node = &t.nodes[t.n_nodes]
    memset(node, 0, sizeof(Node))
    memset(&node.verdict, t.blank, sizeof(Verdict))
    node.parent = parent
    node.hash = t.n_nodes        # hash of a root: its place
    t.n_nodes += 1
    return t.n_nodes - 1


cdef int slots_grow(Trees* t) noexcept nogil:
    """Make room for one more edge than there are. Return -1 without memory."""
    cdef uint32_t cap = 2 * (t.mask + 1) if t.slots != NULL else EDGE_SLOTS_MIN
    cdef uint32_t i, at
    cdef EdgeSlot* slots
    if t.slots != NULL and t.mask + 1 >= 2 * (t.n_edges + 1):
        return 0
    slots = <EdgeSlot*>calloc(cap, sizeof(EdgeSlot)) if cap > t.n_edges else NULL
    if slots == NULL:
        return -1
    if t.slots != NULL:
        for i in range(t.mask + 1):
            if t.slots[i].node:
                at = t.slots[i].hash & (cap - 1)
                while slots[at].node:
                    at = (at + 1) & (cap - 1)
                slots[at] = t.slots[i]
        free(t.slots)
    t.slots = slots
    t.mask = cap - 1
    return 0


cdef uint32_t edge_add(Trees* t, uint32_t parent, const uint8_t* p, uint32_t n) noexcept nogil:
    cdef uint32_t at
    cdef uint32_t node = edge_find(t, parent, p, n)
    cdef Node* made
    if node:
        return node
    node = node_new(t, parent)
    if node == 0 or slots_grow(t) != 0:
        return 0
    made = &t.nodes[node]
    if n > NAME_INLINE:
        made.text = <uint8_t*>malloc(n)
        if made.text == NULL:
            return 0
        memcpy(<uint8_t*>made.text, p, n)
    elif n:
        memcpy(made.head, p, n)
    made.n = n
    made.hash = edge_hash(t.nodes[parent].hash, p, n)
    at = made.hash & t.mask
    while t.slots[at].node:
        at = (at + 1) & t.mask
    t.slots[at].hash = made.hash
    t.slots[at].node = node
    t.n_edges += 1
    return node


cdef uint32_t sign_add(Trees* t, uint32_t parent, uint8_t sign) noexcept nogil:
    cdef Node* p = &t.nodes[parent]
    cdef uint32_t node = p.plus if sign == c'+' else p.user if sign == c'u' else p.client
    if node:
        return node
    node = node_new(t, parent)
    if node == 0:
        return 0
    p = &t.nodes[parent]
    t.nodes[node].hash = sign_hash(p.hash, sign)
    if sign == c'+':
        p.plus = node
    elif sign == c'u':
        p.user = node
    else:
        p.client = node
    return node
