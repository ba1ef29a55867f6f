# One level of a topic as a node with children: what the wildcard tree and the retained tree are made of. See level.pyx.
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from cext.base.hash cimport HashKey
from cext.topic.memory cimport Account, give
from cext.topic.options cimport IndexOptions, LETTERS, letter_of
from cext.topic.table cimport Link, Table, spread

cdef struct LevelNode:          # first member of the trees' own nodes
    Link link                   # in LevelTree.crowd while the parent is crowded; .n: bytes of this level's text
    LevelNode* parent
    LevelNode* first            # children in the order in which they came
    LevelNode* next
    LevelNode* prev             # the first child's prev is the last child
    uint32_t n_children
    uint8_t text_at             # where the text lies, from the node's start
    uint8_t crowded             # its children are in LevelTree.crowd
    uint8_t top                 # its children hang at LevelTree.letters
    uint8_t reserved

cdef struct LevelTree:
    LevelNode letters[LETTERS]  # of the top: its children by first letter (by_letter, else all at the first)
    Table crowd                 # the children of all crowded nodes, keyed by (parent, text)
    HashKey key
    uint32_t crowded_from       # children: from so many on they are found by hash,
    uint32_t crowded_until      # down to so many; the distance keeps a node at the edge from changing back and forth
    uint8_t by_letter


cdef inline uint8_t* level_text(LevelNode* node) noexcept nogil:
    return <uint8_t*>node + node.text_at


# The node whose siblings a child of `parent` with that text is among.
cdef inline LevelNode* level_head(LevelTree* t, LevelNode* parent, const uint8_t* text, uint32_t n) noexcept nogil:
    if not parent.top:
        return parent
    return &t.letters[letter_of(text, n)] if t.by_letter else &t.letters[0]


# Where a child with a text of that hash is in LevelTree.crowd.
cdef inline uint32_t crowd_hash(LevelNode* parent, uint64_t hash) noexcept nogil:
    # The text's hash is keyed, so nobody can aim at a chain below one parent, nor, not knowing addresses, across parents.
    return spread(hash ^ <uint64_t>parent)


cdef inline size_t level_bytes(LevelNode* node) noexcept nogil:
    return <size_t>node.text_at + node.link.n


cdef inline void level_free(Account* a, LevelNode* node) noexcept nogil:
    give(a, node, level_bytes(node))


# `top` is embedded by the caller, before its first level.
cdef void level_tree_init(LevelTree* t, LevelNode* top, const HashKey* key, const IndexOptions* options) noexcept nogil
# The children one after the other; NULL: there is none, none further.
cdef LevelNode* level_first(LevelTree* t, LevelNode* parent) noexcept nogil
cdef LevelNode* level_next(LevelTree* t, LevelNode* node) noexcept nogil
# The child with that text or NULL. *hash caches the text's hash between calls: start with 0.
cdef LevelNode* level_find(LevelTree* t, LevelNode* parent, const uint8_t* text, uint32_t n, uint64_t* hash) noexcept nogil
# A node of `size` bytes (a struct that begins with a LevelNode; zeroed beyond it) as the last child; NULL: no memory.
cdef LevelNode* level_add(LevelTree* t, Account* a, LevelNode* parent, const uint8_t* text, uint32_t n,
                          size_t size) noexcept nogil
# As level_add, for an edge that the tree keeps apart: not among the children.
cdef LevelNode* level_new(Account* a, LevelNode* parent, const uint8_t* text, uint32_t n, size_t size) noexcept nogil
# Takes a child out from among its siblings; does not free it.
cdef void level_drop(LevelTree* t, Account* a, LevelNode* node) noexcept nogil
# For a tree's end: any child, taken out in no order; the tree cannot be searched from then on. NULL: there is none.
cdef LevelNode* level_pop(LevelTree* t, LevelNode* parent) noexcept nogil
