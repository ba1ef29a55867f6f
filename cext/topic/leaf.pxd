# Filters in the index: leaves, the tree that leads to those with wildcards, shared groups. See leaf.pyx.
from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memcmp
from cext.base.view cimport View
from cext.topic.index cimport Group, Index, Leaf, List, Root, SharedGroup
from cext.topic.name cimport Filter
from cext.topic.table cimport Link, Table, table_chain


# Topics and filters that begin with `$` have a root of their own [v5 4.7.2-1]. p has at least one byte.
cdef inline Root* root_of(Index* ix, const uint8_t* p) noexcept nogil:
    return &ix.roots[p[0] == c'$']


cdef inline uint8_t* leaf_text(Leaf* leaf) noexcept nogil:
    return <uint8_t*>(leaf + 1)


# What they were taken as.
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


cdef Leaf* leaf_find(Index* ix, const Filter* f) noexcept nogil         # NULL: not there
cdef Leaf* leaf_make(Index* ix, const Filter* f) noexcept nogil         # finds it or makes it, without subscribers. NULL: no memory
cdef void leaf_settle(Index* ix, Leaf* leaf) noexcept nogil             # frees it, and what led only to it, if nothing needs it
# The match cache is told that what the filter's topics reach is no longer the same. text: the filter.
cdef void leaf_changed(Index* ix, Leaf* leaf, View text) noexcept nogil
cdef uint32_t leaf_read(Leaf* leaf, uint8_t* buf) noexcept nogil        # writes the filter; its length
cdef Group* group_find(Index* ix, Leaf* leaf, View name) noexcept nogil
cdef Group* group_make(Index* ix, Leaf* leaf, View name) noexcept nogil     # only where group_find said NULL. NULL: no memory
# The match cache is told that a list lost its last subscriber; a pin may keep the list itself.
cdef void list_emptied(Index* ix, List* l) noexcept nogil
cdef void list_settle(Index* ix, List* l) noexcept nogil                # frees the home of the list if nothing needs it
# For the index's end: everything at a leaf, everything below a root's top.
cdef void leaf_free(Index* ix, Leaf* leaf) noexcept nogil
cdef void tree_free(Index* ix, Root* root) noexcept nogil
