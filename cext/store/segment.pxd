# The segments of an open store, and the active one that is written to. Used by the storage thread.
from libc.stdint cimport uint32_t, uint64_t
from cext.store.replay cimport StoreListing
from cext.store.state cimport Store, StoreBatch, StoreLoss, StoreSegment

cdef int segments_begin(Store* s, StoreListing* l, const StoreLoss* loss) noexcept nogil     # after a replay; returns 0 or -errno
cdef void segments_fini(Store* s) noexcept nogil
# Make room for a segment at place `at`. NULL = no memory. Pointers to other segments become invalid.
cdef StoreSegment* segment_insert(Store* s, uint32_t at) noexcept nogil
cdef void segment_remove(Store* s, uint32_t at) noexcept nogil
cdef StoreSegment* segment_of(Store* s, uint64_t lsn) noexcept nogil             # NULL = no segment holds lsn
# Ensure that the last segment is active and has room for `need` more bytes. Return 0, or -errno and the action that failed in
# *action.
cdef int segment_for(Store* s, uint64_t need, const char** action) noexcept nogil
cdef int segment_open(Store* s, StoreSegment* g) noexcept nogil                  # sets g.fd; returns 0 or -errno
cdef void segment_close(Store* s, StoreSegment* g) noexcept nogil
# Write the header to g.fd, and sync it if the store was ever asked to sync and the order needs it. Return 0 or -errno.
cdef int header_put(Store* s, StoreSegment* g) noexcept nogil
# Poison a segment after a failed sync, unless the error passes.
cdef void segment_sync_failed(Store* s, StoreSegment* g) noexcept nogil
cdef void header_seed_of(Store* s, StoreSegment* g) noexcept nogil               # sets g.seed
# Compute w.segments_bytes. Call it after the list of segments changed.
cdef void segments_measure(Store* s) noexcept nogil
# Complete a batch with the facts that only the storage thread knows: the synced lsn in its COMMIT, and all CRCs.
cdef void batch_check(Store* s, const StoreSegment* g, StoreBatch* b) noexcept nogil
cdef int segment_drop(Store* s, const char** action) noexcept nogil           # drops the oldest; returns 0 or -errno
