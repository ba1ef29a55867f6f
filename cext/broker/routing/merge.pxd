# One copy for overlapping subscriptions [v5 3.3.4-2..4]: who is in the lists of a match, and where.
from libc.stdint cimport uint32_t, uint64_t
from cext.broker.core.broker cimport Broker
from cext.broker.core.job_state cimport Merge
from cext.broker.core.publication_state cimport Publication
from cext.topic.index cimport List

# Room for n entries, and nobody in it. -1: no memory.
cdef int merge_begin(Merge* m, uint32_t n) noexcept nogil
cdef void merge_end(Merge* m) noexcept nogil
cdef uint64_t merge_bytes(uint32_t n) noexcept nogil         # what room for n takes, at most
# Notes whose the entries [start, end) of lists[at] are; not more in all than merge_begin was told.
cdef void merge_gather(Broker* b, Merge* m, List** lists, uint32_t at, uint32_t start, uint32_t end) noexcept nogil
# Delivers to the sessions noted from place `at` on, one copy each, until b.work reaches `limit`; returns where to go on (m.n: done).
# The lists must be pinned, or unchanged, since the gathering.
cdef uint32_t merge_deliver(Broker* b, Publication* p, Merge* m, List** lists, uint32_t at, uint64_t limit) noexcept nogil
