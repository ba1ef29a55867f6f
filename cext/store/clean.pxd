# The storage thread's part of cleaning: select a segment, read it for the owner, drop it. The loop's part is in store.pyx.
from cext.store.state cimport Store

# Return 1 if a sync would allow a segment to be cleaned or dropped.
cdef bint clean_wants_sync(const Store* s) noexcept nogil
# Do one step. Add the news for the loop to *news. Return 0, or -errno and the action that failed in *action.
cdef int clean_step(Store* s, unsigned int* news, const char** action) noexcept nogil
cdef void clean_refused(Store* s) noexcept nogil           # the owner has found that the copies do not find room
cdef void clean_fini(Store* s) noexcept nogil
