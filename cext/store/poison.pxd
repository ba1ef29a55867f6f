# What to do about a segment whose sync failed: nothing is known of what it holds, so what was not synced is written again elsewhere.
from libc.stdint cimport uint32_t
from cext.store.store cimport Store

# Segment i is poisoned and dirty. 0: another one holds what was not synced, on the disk; or -errno, to be tried again
cdef int segment_rewrite(Store* s, uint32_t i, const char** what) noexcept nogil
