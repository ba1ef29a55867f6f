# Reading records back by lsn: the storage thread's part.
from cext.store.state cimport Store

# Answer as many requests as possible. Return 1 if more can be answered after the loop was notified. *error is an errno if some
# records could not be read now; they are tried again.
cdef bint reading_step(Store* s, int* error) noexcept nogil
# Close the segment that is open for reading, because it is about to be dropped or was rewritten.
cdef void reading_dropped(Store* s) noexcept nogil
cdef void reading_fini(Store* s) noexcept nogil
