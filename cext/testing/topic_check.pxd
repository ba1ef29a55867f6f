# Invariant checks of whole structures, for tests. Each returns NULL, or a text that names the violation. See topic_check.pyx.
from libc.stdint cimport uint32_t, uint64_t
from cext.topic.index cimport Index
from cext.topic.retained cimport Retained

cdef const char* check_index(Index* ix) noexcept nogil
# cursor_bytes = memory of open cursors, which cannot be reached from the tree.
cdef const char* check_retained(Retained* r, uint64_t cursor_bytes, uint64_t cursors) noexcept nogil
# Return the number of links in the fullest bucket of all tables of the index except that of the groups.
cdef uint32_t index_longest_chain(Index* ix) noexcept nogil
