# Reading records back by lsn: the writer's part.
from cext.store.store cimport Store

# What can be answered now; 1: there is more that could be (tell the loop first). *error (an errno): some of it not now, it is to be tried again.
cdef bint reading_step(Store* s, int* error) noexcept nogil
cdef void reading_dropped(Store* s) noexcept nogil  # a segment is about to be dropped or was written anew: what is open for reading is closed
cdef void reading_fini(Store* s) noexcept nogil
