# One level of a topic as a node with children. The wildcard tree and the retained tree consist of these nodes. See level.pyx.
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from cext.base.hash cimport HashKey
from cext.topic.memory cimport MemoryAccount, memory_give
from cext.topic.options cimport IndexOptions, LETTERS, letter_of
from cext.topic.table cimport Link, Table, spread

cdef struct LevelNode:          # first member of each tree's own node struct
    Link link                   # member of LevelTree.crowd while the parent is crowded; .n: bytes of this level's text
    LevelNode* parent
    LevelNode* first            # children in the order of creation
    LevelNode* next
    LevelNode* prev             # the first child's prev is the last child
    uint32_t n_children
    uint8_t text_at             # offset of the text from the node's start
    uint8_t crowded             # 1 = its children are in LevelTree.crowd
    uint8_t top                 # 1 = its children belong to LevelTree.letters
    uint8_t reserved

cdef struct LevelTree:
    LevelNode letters[LETTERS]  # lists of the top's children by first letter (by_letter; otherwise all in the first)
    Table crowd                 # children of all crowded nodes, keyed by (parent, text)
    HashKey key
    uint32_t crowded_from       # number of children from which a hash finds them
    # Number of children down to which a hash finds them; the gap prevents frequent changes at the limit.
    uint32_t crowded_until
    uint8_t by_letter


cdef inline uint8_t* level_text(LevelNode* node) noexcept nogil:
    return <uint8_t*>node + node.text_at


# Return the node whose list of children contains a child of `parent` with that text.
cdef inline LevelNode* level_head(LevelTree* t, LevelNode* parent, const uint8_t* text, uint32_t n) noexcept nogil:
    if not parent.top:
        return parent
    return &t.letters[letter_of(text, n)] if t.by_letter else &t.letters[0]


# Return the hash of a child in LevelTree.crowd, from the hash of its text.
cdef inline uint32_t crowd_hash(LevelNode* parent, uint64_t hash) noexcept nogil:
    # The text's hash is keyed, so an attacker cannot aim at a chain below one parent. Addresses are unknown to it, so it
    # cannot aim across parents either.
    return spread(hash ^ <uint64_t>parent)


cdef inline size_t level_bytes(LevelNode* node) noexcept nogil:
    return <size_t>node.text_at + node.link.n


cdef inline void level_free(MemoryAccount* a, LevelNode* node) noexcept nogil:
    memory_give(a, node, level_bytes(node))


# The caller embeds `top`, the node above its first level.
cdef void level_tree_init(LevelTree* t, LevelNode* top, const HashKey* key, const IndexOptions* options) noexcept nogil
# Iterate over the children. NULL: there is no child, or no further one.
cdef LevelNode* level_first(LevelTree* t, LevelNode* parent) noexcept nogil
cdef LevelNode* level_next(LevelTree* t, LevelNode* node) noexcept nogil
# Return the child with that text, or NULL. *hash caches the text's hash between calls and begins as 0.
cdef LevelNode* level_find(LevelTree* t, LevelNode* parent, const uint8_t* text, uint32_t n, uint64_t* hash) noexcept nogil
# Add a node of `size` bytes as the last child. The node is a struct that begins with a LevelNode; the bytes after
# it are zeroed. NULL: no memory.
cdef LevelNode* level_add(LevelTree* t, MemoryAccount* a, LevelNode* parent, const uint8_t* text, uint32_t n,
                          size_t size) noexcept nogil
# Do the same for an edge that the tree stores apart from the children.
cdef LevelNode* level_new(MemoryAccount* a, LevelNode* parent, const uint8_t* text, uint32_t n, size_t size) noexcept nogil
# Take a child out of its siblings without freeing it.
cdef void level_drop(LevelTree* t, MemoryAccount* a, LevelNode* node) noexcept nogil
# For the end of a tree: take out any child, in no order. The tree cannot be searched afterwards. NULL: there is no child.
cdef LevelNode* level_pop(LevelTree* t, LevelNode* parent) noexcept nogil
