# Repair of a segment whose sync failed: its content is unknown, so the unsynced part is written again to a new segment.
from libc.stdint cimport uint32_t
from cext.store.state cimport Store

# Rewrite the unsynced part of segment i, which is poisoned and dirty. Return 0 when a new segment on the disk holds it, or
# -errno: the caller tries again later.
cdef int segment_rewrite(Store* s, uint32_t i, const char** action) noexcept nogil
