# Invariant checks of whole structures, for tests. Each returns NULL when all is well, else what is wrong. See check.pyx.
from libc.stdint cimport uint32_t, uint64_t
from cext.topic.index cimport Index
from cext.topic.retained cimport Retained

cdef const char* check_index(Index* ix) noexcept nogil
# cursor_bytes: what open cursors hold, which cannot be reached from the tree.
cdef const char* check_retained(Retained* r, uint64_t cursor_bytes, uint64_t cursors) noexcept nogil
# Links in the fullest bucket of any of the index's tables but that of the groups.
cdef uint32_t index_longest_chain(Index* ix) noexcept nogil
