# The segment files of a store that is written: which there are, the one that is written to, the spare. The writer's.
from libc.stdint cimport uint32_t, uint64_t
from cext.store.replay cimport Listing
from cext.store.store cimport Segment, Store, StoreLoss

cdef void error_text(char* out, size_t n, int error) noexcept nogil         # of -errno
cdef int segments_begin(Store* s, Listing* l, StoreLoss* loss) noexcept nogil       # after a replay. 0 or -errno
cdef void segments_fini(Store* s) noexcept nogil
# The active segment, with room for `need` more bytes; begins a new one when it has to. 0 or -errno, then *what says what failed
cdef int segment_for(Store* s, uint64_t need, const char** what) noexcept nogil
cdef int segment_open(Store* s, Segment* g) noexcept nogil                  # g.fd; 0 or -errno
cdef void segment_close(Store* s, Segment* g) noexcept nogil
cdef uint64_t segments_bytes(const Store* s) noexcept nogil                 # of all files, spare included
# Does a part of making the spare: 1 there is more to do, 0 it is there, or -errno
cdef int spare_prepare(Store* s) noexcept nogil
cdef int segment_drop(Store* s) noexcept nogil                              # the oldest one; its file is free. 0 or -errno
