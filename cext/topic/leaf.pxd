# Filters in the index: leaves, shared groups, and the tree that leads to filters with wildcards. See leaf.pyx.
from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memcmp
from cext.base.view cimport View
from cext.topic.index cimport Group, Index, Leaf, List, Root, SharedGroup
from cext.topic.name cimport Filter
from cext.topic.table cimport Link, Table, table_chain


# Topics and filters that begin with `$` have their own root [v5 4.7.2-1]. p has at least one byte.
cdef inline Root* index_root(Index* ix, const uint8_t* p) noexcept nogil:
    return &ix.roots[p[0] == c'$']


cdef inline uint8_t* leaf_text(Leaf* leaf) noexcept nogil:
    return <uint8_t*>(leaf + 1)


# Sizes with which these objects were allocated.
cdef inline size_t leaf_bytes(Leaf* leaf) noexcept nogil:
    return sizeof(Leaf) + leaf.link.n


cdef inline size_t group_bytes(SharedGroup* shared) noexcept nogil:
    return sizeof(SharedGroup) + shared.group.name.n


cdef inline Leaf* exact_find(Table* exact, const uint8_t* text, uint32_t n, uint32_t hash) noexcept nogil:
    cdef Link* link = table_chain(exact, hash)
    while link != NULL:
        if link.hash == hash and link.n == n and memcmp(leaf_text(<Leaf*>link), text, n) == 0:
            return <Leaf*>link
        link = link.next
    return NULL


cdef Leaf* leaf_find(Index* ix, const Filter* f) noexcept nogil         # NULL = the filter is not in the index
# Finds the leaf or creates it without subscribers; NULL = no memory.
cdef Leaf* leaf_make(Index* ix, const Filter* f) noexcept nogil
# Frees the leaf and the nodes that led only to it, if nothing needs them.
cdef void leaf_settle(Index* ix, Leaf* leaf) noexcept nogil
# Notify the match cache that this filter's topics reach other lists now. text: the filter.
cdef void leaf_changed(Index* ix, Leaf* leaf, View text) noexcept nogil
cdef uint32_t leaf_read(Leaf* leaf, uint8_t* buf) noexcept nogil        # writes the filter and returns its length
cdef Group* group_find(Index* ix, Leaf* leaf, View name) noexcept nogil
# Only after group_find returned NULL; NULL = no memory.
cdef Group* group_make(Index* ix, Leaf* leaf, View name) noexcept nogil
# Notify the match cache that a list lost its last subscriber. The list itself may stay because of a pin.
cdef void list_emptied(Index* ix, List* l) noexcept nogil
cdef void list_settle(Index* ix, List* l) noexcept nogil                # frees the home of the list if nothing needs it
# For the end of the index: free a leaf with everything in it, and all nodes below a root's top.
cdef void leaf_free(Index* ix, Leaf* leaf) noexcept nogil
cdef void tree_free(Index* ix, Root* root) noexcept nogil
