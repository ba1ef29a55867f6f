# The segments of a store that is written: which there are, and the one that is written to. The writer's.
from libc.stdint cimport uint32_t, uint64_t
from cext.store.replay cimport Listing
from cext.store.store cimport Batch, Segment, Store, StoreLoss

cdef void error_text(char* out, size_t n, int error) noexcept nogil         # of -errno
cdef int segments_begin(Store* s, Listing* l, const StoreLoss* loss) noexcept nogil     # after a replay. 0 or -errno
cdef void segments_fini(Store* s) noexcept nogil
cdef Segment* segment_insert(Store* s, uint32_t at) noexcept nogil          # NULL: no memory. Pointers to others are void
cdef void segment_remove(Store* s, uint32_t at) noexcept nogil
cdef Segment* segment_of(Store* s, uint64_t lsn) noexcept nogil             # NULL: it is in none
# Sees to it that the last segment is active and has room for `need` more bytes. 0 or -errno, then *what says what failed
cdef int segment_for(Store* s, uint64_t need, const char** what) noexcept nogil
cdef int segment_open(Store* s, Segment* g) noexcept nogil                  # g.fd; 0 or -errno
cdef void segment_close(Store* s, Segment* g) noexcept nogil
cdef int header_put(Store* s, Segment* g) noexcept nogil                    # to g.fd, synced where that is asked for; 0 or -errno
cdef void header_seed_of(Store* s, Segment* g) noexcept nogil               # g.seed
cdef void row_count(Store* s) noexcept nogil                                # w.row_bytes, after the row has changed
cdef void batch_check(Store* s, const Segment* g, Batch* b) noexcept nogil   # what only the writer knows: its COMMIT's rest, and all CRCs
cdef int segment_drop(Store* s, const char** what) noexcept nogil           # the oldest one. 0 or -errno
