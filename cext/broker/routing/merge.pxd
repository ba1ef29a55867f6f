# One merged copy for overlapping subscriptions [v5 3.3.4-2..4]: a table of the sessions in the lists of a match and their places.
from libc.stdint cimport uint32_t, uint64_t
from cext.broker.core.broker cimport Broker
from cext.broker.core.job_state cimport Merge
from cext.broker.core.publication_state cimport Publication
from cext.topic.index cimport List

# Prepare an empty table with room for n entries. -1 = no memory.
cdef int merge_begin(Merge* m, uint32_t n) noexcept nogil
cdef void merge_end(Merge* m) noexcept nogil
cdef uint64_t merge_bytes(uint32_t n) noexcept nogil         # largest memory of a table for n entries
# Add the entries [start, end) of lists[at] to the table; in all at most the n entries of merge_begin.
cdef void merge_gather(Broker* b, Merge* m, List** lists, uint32_t at, uint32_t start, uint32_t end) noexcept nogil
# Deliver to the sessions in the table from place `at` on, one merged copy each, until b.work reaches `limit`. Returns the place
# to continue at; m.n = done; if p.lacks, the place of the session without memory. The lists must be pinned or unchanged since the gathering.
cdef uint32_t merge_deliver(Broker* b, Publication* p, Merge* m, List** lists, uint32_t at, uint64_t limit) noexcept nogil
