# The storage thread: writes what is sealed, syncs it where that was asked for, says so. Everything here belongs to it.
from cext.store.store cimport Store

cdef void* writer_main(void* store) noexcept nogil
cdef int writer_turn(Store* s, bint now) noexcept nogil     # 1: there is more to do at once; 0: wait. now: also if it is too early to try again
cdef void writer_end(Store* s) noexcept nogil       # last words: writes and syncs what there is
cdef void writer_fini(Store* s) noexcept nogil      # memory
