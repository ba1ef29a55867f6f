# Reading a log back: the list of its files, and the records of its committed batches in order. This module writes nothing.
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from cext.store.file cimport FileOps
from cext.store.format cimport Header
from cext.store.state cimport StoreLoss, StoreRecord, store_record_fn

cdef enum:
    SLOTS_MAX = 1 << 20         # segment files in a directory
    HOLES_MAX = 32              # per batch; further holes are reported as one
    SLOT_UNUSED = 0             # StoreFile.state: never written, or wiped; free for use
    SLOT_SEGMENT = 1
    SLOT_ALONE = 2              # unreadable or of another store; not touched

ctypedef struct StoreFile:
    Header h
    uint64_t size
    uint32_t slot
    uint8_t state

ctypedef struct StoreListing:
    StoreFile* files            # sorted by base_lsn and number
    uint32_t n
    uint32_t cap
    int error                   # -errno
    uint8_t store_id[16]
    uint8_t known               # store_id is valid
    uint32_t format             # a format number newer than this version's, if one was found

ctypedef struct SegmentWalk:           # position in one segment in memory
    const uint8_t* p
    uint64_t n                  # size in bytes, header included
    uint32_t seed
    uint64_t base_lsn
    uint64_t at                 # offset of the next record
    uint64_t limit              # offset of the end; bytes behind it are ignored
    bint bounded                # a later segment begins at `limit`, so everything before it was committed
    uint64_t good               # offset after the last COMMIT
    uint64_t synced_lsn         # synced lsn in the last COMMIT
    bint ended                  # SEGEND was reached
    uint32_t* found             # offsets of the records of the batch
    uint32_t n_found
    uint32_t cap
    uint64_t budget             # bytes that may still be checked in the search for a valid record
    uint32_t n_holes            # number of damaged places since the last COMMIT; their offsets:
    uint64_t hole_lo[32]        # HOLES_MAX
    uint64_t hole_hi[32]

cdef void store_segment_path(char* out, const char* dir, uint32_t slot) noexcept nogil
# Read the list of files. Return 0 or -errno.
cdef int store_listing_read(StoreListing* l, const FileOps* f, bint hardware, const char* dir) noexcept nogil
# Read the list while a broker may be writing, until it is the same twice, so that no segment between two others is missing.
cdef int store_listing_settled(StoreListing* l, const FileOps* f, bint hardware, const char* dir) noexcept nogil
cdef void store_listing_free(StoreListing* l) noexcept nogil
# Call fn for each record of the listed segments, from the batch on that begins at from_lsn (0: all). `live`: a broker may be writing
# to the store. Return 0, -errno, or 1 if fn stopped it.
cdef int log_replay(const FileOps* f, bint hardware, const char* dir, StoreListing* l, bint live, uint64_t from_lsn, store_record_fn fn,
                    void* ctx, StoreLoss* loss) noexcept nogil
# Read a whole segment into memory, unreadable parts as zeros. NULL: *error is -errno; nothing is known then about the content.
cdef uint8_t* segment_load(const FileOps* f, const char* dir, uint32_t slot, uint64_t* n, int* error) noexcept nogil
# Read a segment to which a broker may be appending: the header first, then the content from the back to the front. So nothing is
# missing before a byte that was read, and the header names no later beginning of the log than the content allows. NULL: *error is
# -errno, or 0 if the file does not hold segment `number` any more. Not NULL: *error is the -errno of an unreadable part, or 0.
cdef uint8_t* segment_load_live(const FileOps* f, bint hardware, const char* dir, uint32_t slot, uint64_t number, uint64_t* n, int* error) noexcept nogil
cdef void segment_walk_begin(SegmentWalk* w, const uint8_t* p, uint64_t n, const Header* h) noexcept nogil
cdef void segment_walk_end(SegmentWalk* w) noexcept nogil
# Go to the next COMMIT, or to the end. Return 1 if `found` holds the records of the batch and hole_* its damaged places; 0 at the
# end; -1 without memory.
cdef int segment_walk_batch(SegmentWalk* w, bint hardware) noexcept nogil
cdef void segment_walk_record(const SegmentWalk* w, uint32_t at, StoreRecord* r) noexcept nogil
