# The storage thread: writes sealed batches, syncs them if requested, and reports its progress. Everything here belongs to that
# thread.
from libc.stdint cimport uint64_t
from cext.store.state cimport Store

cdef void* writer_main(void* store) noexcept nogil
# Do one turn. now = also if it is too early to try again after an error. Return 1 if there is more to do at once, 0 to wait.
cdef int writer_turn(Store* s, bint now) noexcept nogil
cdef void writer_end(Store* s) noexcept nogil       # at the end: write and sync everything
cdef uint64_t counted_lsn(const Store* s) noexcept nogil          # everything below is written for certain
cdef void writer_fini(Store* s) noexcept nogil      # free the memory
