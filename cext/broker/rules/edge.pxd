# Levels of topics as edges of trees in one hash table: the common part of acl.pyx and roles.pyx. See edge.pyx.
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy

from cext.base.view cimport View

cdef enum:
    NAME_INLINE = 20             # bytes of a level that are stored in its node

ctypedef struct Gives:           # kinds of access; used by acl.pyx
    uint32_t child               # first child with a literal level; 0 = none (node 0 is no child)
    uint32_t sibling
    uint8_t here                 # access by the filters that end here
    uint8_t below                # access by the filters that go on with `#` and end
    uint8_t sub                  # access by all filters that pass through here
    uint8_t literals             # `sub` of all literal children

ctypedef struct Decides:         # rules; used by roles.pyx
    uint32_t here                # rule of the filter that ends here; for a user name: its profile
    uint32_t below               # rule of the filter that continues with `#` and ends
    uint32_t best                # lowest rule of all filters that pass through here

ctypedef union Verdict:
    Gives gives
    Decides decides

ctypedef struct Node:            # the node that a level of a filter leads to; 64 bytes, a cache line
    uint32_t parent
    uint32_t plus                # child of `+`, and below of `%u` and `%c`; 0 = none
    uint32_t user
    uint32_t client
    uint32_t hash                # hash of the path
    uint32_t n                   # bytes of the level
    Verdict verdict
    uint8_t head[20]             # first bytes of the level; NAME_INLINE
    const uint8_t* text          # the whole level, owned by the node, if it is longer than NAME_INLINE

ctypedef struct EdgeSlot:
    uint32_t hash
    uint32_t node                # place in Trees.nodes; 0 = free slot

ctypedef struct Trees:
    Node* nodes                  # all nodes, the roots first
    uint32_t n_nodes
    uint32_t cap_nodes
    EdgeSlot* slots                  # (parent, level) to node: open addressing, at most half full
    uint32_t mask
    uint32_t n_edges             # used slots
    uint8_t blank                # each byte of the verdict of a new node

cdef int trees_init(Trees* t, uint32_t roots, uint8_t blank) noexcept nogil     # -1: no memory
cdef void trees_fini(Trees* t) noexcept nogil
cdef void trees_trim(Trees* t) noexcept nogil       # after the last edge
# Return the node at the end of the edge; create it if it does not exist. 0: no memory.
cdef uint32_t edge_add(Trees* t, uint32_t parent, const uint8_t* p, uint32_t n) noexcept nogil
cdef uint32_t sign_add(Trees* t, uint32_t parent, uint8_t sign) noexcept nogil       # for `+`, `%u` (u) and `%c` (c)


cdef inline uint64_t mixed(uint64_t h, uint64_t word) noexcept nogil:
    h = (h ^ word) * <uint64_t>0x9E3779B97F4A7C15
    return h ^ (h >> 29)


cdef inline uint32_t edge_hash(uint32_t path, const uint8_t* p, uint32_t n) noexcept nogil:
    """Return the hash of a path with one more level. `path` is the hash of the node at which the edge begins."""
    cdef uint64_t h = mixed(path, n)
    cdef uint64_t word = 0
    cdef uint32_t half = 0
    if n >= 8:
        while n > 8:
            memcpy(&word, p, 8)
            h = mixed(h, word)
            p += 8
            n -= 8
        memcpy(&word, p + n - 8, 8)      # overlaps the bytes read before, or reads the only word
    elif n >= 4:
        memcpy(&half, p + n - 4, 4)
        word = <uint64_t>half << 32
        memcpy(&half, p, 4)
        word |= half
    elif n:
        word = p[0] | <uint64_t>p[n >> 1] << 8 | <uint64_t>p[n - 1] << 16
    h = mixed(h, word)
    return <uint32_t>(h >> 32)


cdef inline uint32_t sign_hash(uint32_t path, uint8_t sign) noexcept nogil:
    return <uint32_t>(mixed(path, <uint64_t>sign << 32) >> 32)


cdef inline uint32_t level_end(View v, uint32_t at) noexcept nogil:
    cdef const uint8_t* slash = <const uint8_t*>memchr(v.p + at, c'/', v.n - at)
    return v.n if slash == NULL else <uint32_t>(slash - v.p)


cdef inline const uint8_t* node_text(const Node* node) noexcept nogil:
    if node.n <= NAME_INLINE:
        return &node.head[0]
    return node.text


cdef inline uint32_t find_hashed(const Trees* t, uint32_t parent, uint32_t hash, const uint8_t* p, uint32_t n) noexcept nogil:
    """Return the node at the end of the edge; 0 if there is none."""
    cdef uint32_t at = hash & t.mask
    cdef const Node* node
    while t.slots[at].node:
        if t.slots[at].hash == hash:
            node = &t.nodes[t.slots[at].node]
            if node.parent == parent and node.n == n and memcmp(node_text(node), p, n) == 0:
                return t.slots[at].node
        at = (at + 1) & t.mask
    return 0


cdef inline uint32_t edge_find(const Trees* t, uint32_t parent, const uint8_t* p, uint32_t n) noexcept nogil:
    return find_hashed(t, parent, edge_hash(t.nodes[parent].hash, p, n), p, n)
