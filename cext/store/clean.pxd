# The writer's part of cleaning: which segment, reading it for the owner to look at, dropping it. (The loop's part is in store.pyx.)
from cext.store.store cimport Store

cdef bint clean_wants_sync(const Store* s) noexcept nogil       # a segment could be cleaned or dropped if more were on the disk
# One step. *news gets what the loop is to be told. 0 or -errno, then *what says what failed
cdef int clean_step(Store* s, unsigned int* news, const char** what) noexcept nogil
cdef void clean_fini(Store* s) noexcept nogil
