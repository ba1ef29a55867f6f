# Reading a log: which files there are, and the records of their committed batches in order. Nothing is written here.
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from cext.store.file cimport FileOps
from cext.store.format cimport Header
from cext.store.store cimport StoreLoss, StoreRecord, store_record_fn

cdef enum:
    SLOTS_MAX = 1 << 20         # segment files in a directory
    HOLES_MAX = 32              # per batch; what is more is told as one
    SLOT_UNUSED = 0             # Found.state: never written, or wiped: free to be used
    SLOT_SEGMENT = 1
    SLOT_ALONE = 2              # unreadable or of another store: not touched

ctypedef struct Found:
    Header h
    uint64_t size
    uint32_t slot
    uint8_t state

ctypedef struct Listing:
    Found* files                # by base_lsn and number
    uint32_t n
    uint32_t cap
    int error                   # -errno
    uint8_t store_id[16]
    uint8_t known               # store_id is
    uint32_t format             # a newer one than ours was found

ctypedef struct Walk:           # through one segment in memory
    const uint8_t* p
    uint64_t n                  # bytes, header included
    uint32_t seed
    uint64_t base_lsn
    uint64_t at                 # offset of what comes next
    uint64_t limit              # offset: nothing counts from here on
    bint bounded                # a later segment begins at `limit`: all before it was committed
    uint64_t good               # offset behind the last COMMIT
    uint64_t synced_lsn         # as the last COMMIT says
    bint ended                  # SEGEND came
    uint32_t* found             # offsets of records of the batch
    uint32_t n_found
    uint32_t cap
    uint64_t budget             # bytes that may still be checked in search of a record
    uint32_t n_holes            # damaged places since the last COMMIT: offsets
    uint64_t hole_lo[32]        # HOLES_MAX
    uint64_t hole_hi[32]

cdef void path_of(char* out, const char* dir, uint32_t slot) noexcept nogil
cdef int listing_read(Listing* l, const FileOps* f, bint hardware, const char* dir) noexcept nogil      # 0 or -errno
cdef void listing_free(Listing* l) noexcept nogil
cdef int replay(const FileOps* f, bint hardware, const char* dir, Listing* l, bint live, store_record_fn fn, void* ctx,
                StoreLoss* loss) noexcept nogil         # 0, -errno, or 1: fn stopped it
# A whole segment into memory, unreadable parts as zeros. NULL: *error is -errno
cdef uint8_t* segment_load(const FileOps* f, const char* dir, uint32_t slot, uint64_t* n, int* error) noexcept nogil
cdef void walk_begin(Walk* w, const uint8_t* p, uint64_t n, const Header* h) noexcept nogil
cdef void walk_end(Walk* w) noexcept nogil
# Goes to the next COMMIT, or to the end of what counts: 1, `found` holds the batch's records and hole_* what is damaged among them; 0: no more;
# -1: no memory
cdef int walk_batch(Walk* w, bint hardware) noexcept nogil
cdef void walk_record(const Walk* w, uint32_t at, StoreRecord* r) noexcept nogil
