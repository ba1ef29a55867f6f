# Files for segments: new files, free files, and the spare, which is written in advance so that it needs no space later.
from libc.stdint cimport uint32_t, uint64_t
from cext.store.state cimport Store, StoreSegment

# Note a slot as free for reuse. Return 0 or -ENOMEM.
cdef int slot_free(Store* s, uint32_t slot) noexcept nogil
cdef void file_discard(Store* s, StoreSegment* g) noexcept nogil                 # close and remove the file
# Wipe the allocated bytes of g from `at` on, and sync. Return 0 or -errno.
cdef int file_wipe(Store* s, StoreSegment* g, uint64_t at) noexcept nogil
# Take the spare if `need` bytes of records fit in it, otherwise another file; set g.slot, fd, capacity and allocated. Return 0 or -errno.
cdef int file_take(Store* s, uint64_t need, StoreSegment* g) noexcept nogil
# Do one step of preparing the spare. Return 1 if there is more to do, 0 if the spare is ready, or -errno.
cdef int spare_prepare(Store* s) noexcept nogil
# Keep the file of a dropped segment for the next spare and wipe its header. Return 0 if it is not needed or this fails.
cdef bint file_keep(Store* s, StoreSegment* g) noexcept nogil
