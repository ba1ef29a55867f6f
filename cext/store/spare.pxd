# Files for segments: new ones, free ones, and the spare, which is written to once already so that it does not need space later.
from libc.stdint cimport uint32_t, uint64_t
from cext.store.store cimport Segment, Store

cdef int slot_free(Store* s, uint32_t slot) noexcept nogil                  # 0 or -ENOMEM
cdef void file_discard(Store* s, Segment* g) noexcept nogil                 # closed and removed
# The spare, when `need` bytes of records fit in it, else another file: g.slot, fd, capacity. 0 or -errno
cdef int file_take(Store* s, uint64_t need, Segment* g) noexcept nogil
# Does a part of making the spare: 1 there is more to do, 0 it is there, or -errno
cdef int spare_prepare(Store* s) noexcept nogil
cdef bint file_keep(Store* s, Segment* g) noexcept nogil                    # for the next spare; its header is wiped. 0: not wanted, or it failed
