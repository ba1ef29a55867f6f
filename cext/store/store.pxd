# The store: a log of records in segment files, written by one thread, so that the loop never waits for a disk. Knows bytes, files and that
# thread; not what a record means, nor which are live: its owner replays them, and looks at what is about to be dropped (cleaning).
#
# A record is in a *batch*; a batch counts only when its COMMIT is there. An lsn is the running count of bytes appended since the store was made.
#
# **Which thread** a field belongs to is said by the struct it lies in: `loop` (the owner's thread: every function below but the thread's own
# main), `shared` (only under shared.lock, held for a few assignments, never over a system call), `writer` (the storage thread from store_start
# to the end of store_close; before and after that the owner's). What is at the top is constant while the thread runs, but live_bytes: the loop's.
#
#     s = memset 0; store_open; store_recover; store_start
#     ... store_append* store_seal ... store_poll when event_fd is readable ...
#     store_close (also after a failed store_open: it does nothing then)
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from cext.base.view cimport View
from cext.store.file cimport FileOps
from cext.store.format cimport record_bytes

cdef enum:
    STORE_SEGMENT_BYTES = 16 << 20
    STORE_SEGMENT_BYTES_MIN = 16 << 10
    STORE_SEGMENT_BYTES_MAX = 1 << 30
    STORE_WAITING_MAX_BYTES = 64 << 20
    STORE_BATCH_EARLY_BYTES = 256 << 10
    STORE_WHY_MAX = 512         # bytes of an error text, zero included
    STORE_RANGES_REPORTED = 8
    STORE_READS_MAX = 4096      # lsns asked for and not given yet
    STORE_READ_BYTES_MAX = 4 << 20      # of bodies read and not given yet; always at least one
    STORE_CHUNK_BYTES = 256 << 10       # bodies in one chunk of cleaning, about

cdef enum:
    # news (store_poll)
    STORE_COMMITTED = 1         # store_written or store_synced rose
    STORE_FULL = 2              # no space: what is sealed waits, what the spare segment holds can still be written. Told once
    STORE_FULL_OVER = 4
    STORE_ERROR = 8             # something failed: store_error has the text. Told once per kind until a write succeeds
    STORE_CLEAN = 16            # a chunk waits for store_clean_chunk
    STORE_READ = 32             # records wait for store_read_next
    STORE_ERROR_OVER = 64       # writing works again
    STORE_READ_ERROR = 128      # reading back does not work now (descriptors, memory, the disk): it is tried again. Told once until it does
    STORE_EXTENSION = 256            # who is behind the door has some

cdef enum:
    # StoreOptions.sync
    STORE_SYNC_ASKED = 0        # each seal says whether it is to be on the disk
    STORE_SYNC_NEVER = 1        # written counts as synced: for tests, and disks that cannot lose power

ctypedef struct StoreOptions:   # 0 anywhere: the default
    uint64_t segment_bytes
    uint64_t waiting_max_bytes
    uint32_t batch_early_bytes
    uint8_t sync
    uint8_t create              # make the directory when it is missing (not its parents)

ctypedef struct StoreRecord:
    uint64_t lsn
    uint8_t kind                # 1 .. STORE_KIND_MAX; 0 from store_read_next: it is not there or cannot be read
    uint8_t flags
    View body

ctypedef int (*store_record_fn)(void* ctx, const StoreRecord* r) noexcept nogil     # 0: go on

ctypedef struct StoreRange:
    uint64_t lo
    uint64_t hi                 # first lsn after it; UINT64_MAX: nobody knows how much
ctypedef struct StoreLoss:
    uint32_t n                  # ranges lost; the first of them:
    StoreRange ranges[8]        # STORE_RANGES_REPORTED
    uint64_t bytes              # in all of them (those of unknown length not counted)
    uint64_t unsynced_bytes     # of `ranges`: had never been said to be on the disk, so they were promised to survive a kill only
    uint64_t torn_bytes         # behind the last COMMIT: never committed, so never promised. Not in bytes
    uint64_t records            # read
    uint64_t batches
    uint32_t segments
    uint32_t unreadable         # files named as segments whose headers are damaged; they are left alone
    uint32_t foreign            # files of another store; left alone
    uint32_t moved              # store_scan of a live store: segments that were recycled while it read
    uint64_t tail_lsn           # where the log begins
    uint64_t end_lsn            # behind its last COMMIT
    uint64_t synced_lsn         # what the last COMMIT knew to be on the disk

ctypedef struct StoreStats:
    uint64_t written_lsn
    uint64_t synced_lsn
    uint64_t next_lsn
    uint64_t tail_lsn
    uint64_t total_bytes        # of segment files, spare included
    uint64_t live_bytes
    uint64_t waiting_bytes
    uint64_t batches
    uint64_t syncs
    uint64_t commit_us          # the last write of what was sealed, its sync included where one was asked for
    uint64_t sync_us            # of the last one: what the commit interval adapts to
    uint64_t cleaned            # segments
    uint64_t copied_bytes       # by cleaning
    uint64_t poisoned           # segments written anew because of a failed sync
    uint64_t damaged            # places found damaged while cleaning or reading back
    uint32_t segments
    uint32_t errors             # failed calls
    uint8_t full                # as of now: STORE_FULL was told, and not that it is over
    uint8_t failing             # the same of STORE_ERROR

# What somebody else has written by this thread, with the batches: what was handed over when one was sealed is written before it, so that what is committed
# has it. The store does not know what that is. Set between store_open and store_start.
ctypedef struct StoreExtension:
    void* ctx                                                                   # NULL: nobody
    void (*hand)(void* ctx, bint sealed) noexcept nogil                         # the loop's thread, under the lock; sealed: with a batch
    void (*take)(void* ctx) noexcept nogil                                      # the storage thread, under the lock
    # 0, or -errno and why: then no batch is written, and it is tried again
    int (*write)(void* ctx, char* why, size_t why_n) noexcept nogil
    int (*sync)(void* ctx, char* why, size_t why_n) noexcept nogil              # before what is to be on the disk is said to be
    # What is not done for a batch, once per turn; when it is to be called at the latest (monotonic), 0: whenever there is a turn. committed: all that
    # was taken has its batch written. last: there is no further turn. *news: there are some
    uint64_t (*tend)(void* ctx, bint committed, bint last, bint* news) noexcept nogil

# ---- inside

ctypedef struct Segment:
    uint64_t number
    uint64_t base_lsn
    uint64_t end_lsn            # behind its last batch
    uint64_t capacity           # bytes of the file
    uint32_t seed
    uint32_t slot               # its file's name
    int fd                      # -1: not open
    uint8_t dirty               # written since it was last synced
    uint8_t poisoned            # a sync or write failed: nothing is written there any more

ctypedef struct Batch:
    Batch* next
    uint64_t lsn                # of its first record
    uint64_t n                  # bytes
    uint64_t cap
    uint8_t* p

ctypedef struct Batches:        # a queue of them
    Batch* head
    Batch* tail

ctypedef struct Reading:        # a request; its lsns follow the struct
    Reading* next
    void* cookie
    uint32_t n
    uint32_t done               # by the writer
    uint32_t tries              # how often the disk has refused to read the one after these

ctypedef struct Answer:         # one record; its body follows the struct
    Answer* next
    void* cookie
    StoreRecord record

ctypedef struct Cleaning:       # the oldest segment, read whole: the loop's from `shared.cleaning` to `shared.cleaned`, freed by the writer
    uint64_t number             # of the segment
    uint8_t* p
    uint64_t n
    uint64_t base_lsn
    uint32_t* found             # offsets of its records
    uint32_t n_found
    uint32_t taken              # by the loop: records of finished chunks
    uint32_t chunk              # of the chunk that is being looked at
    uint64_t chunk_lsn          # next_lsn when it was taken
    uint64_t copied             # bytes appended while chunks were looked at
    uint64_t done_lsn           # the copies are committed when all below this is

cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_mutex_t:
        pass
    ctypedef struct pthread_cond_t:
        pass
    ctypedef unsigned long pthread_t

ctypedef struct StoreLoop:
    Batch* open                 # being filled; NULL: none
    Batch* idle                 # to be filled again
    uint32_t n_idle
    uint64_t next_lsn
    uint64_t written            # as of the last poll or seal
    uint64_t synced
    uint64_t released           # memory below this was given back
    Cleaning* cleaning          # chunk by chunk; NULL: none
    Answer* answers             # to be given
    Answer* answers_tail
    Answer* given               # last: its body is still valid
    uint64_t given_bytes        # not told to the writer yet
    uint32_t n_reads            # lsns asked for and not given

ctypedef struct StoreShared:
    pthread_mutex_t lock
    pthread_cond_t more         # for the writer
    uint8_t sleeping            # the writer waits for `more`
    uint8_t closing
    uint8_t extension_due                # who is behind the door wants a turn
    uint8_t over                # the writer has ended
    uint32_t news
    Batches sealed              # loop -> writer
    uint64_t sync_lsn           # all below is to be on the disk
    Batch* done                 # writer -> loop: to be filled again
    Reading* asked              # loop -> writer, in order
    Reading* asked_tail
    Answer* answers             # writer -> loop, in order
    Answer* answers_tail
    uint64_t answers_bytes      # of them, and of those that the loop has not given yet
    Cleaning* cleaning          # writer -> loop
    uint8_t cleaned             # loop -> writer: it is done with it
    uint64_t live_bytes
    uint64_t written
    uint64_t synced
    uint64_t released
    StoreStats stats
    char why[512]               # STORE_WHY_MAX

ctypedef struct StoreWriter:
    Segment* segments           # by base_lsn; the last is written to, when `active`
    uint32_t n
    uint32_t cap
    uint64_t row_bytes          # of their files
    uint8_t active
    uint8_t sync_wanted         # something was once asked to be on the disk
    uint8_t dir_dirty           # a file was made since the directory was last synced
    uint8_t full                # told
    uint8_t failing             # told
    uint8_t troubled            # something failed in this turn
    uint64_t retry_us           # nothing is tried before; 0: nothing has failed
    uint64_t extension_us            # who is behind the door wants a turn then; 0: no
    uint64_t sync_lsn           # all below is to be on the disk
    uint64_t written
    uint64_t synced
    uint64_t tail_lsn
    uint64_t live_bytes
    Segment spare               # a pre-written file; slot 0: none
    uint64_t spare_done         # bytes of it that are written
    uint32_t* slots             # of files that are free, but for the spare
    uint32_t n_slots
    uint32_t slot_last
    uint64_t number_last
    Batches todo                # not written yet
    Batches kept                # written, kept until they are synced
    uint64_t kept_bytes
    Reading* asked
    Reading* asked_tail
    uint64_t answers_bytes      # as of the last look
    uint8_t* window             # of reading back
    uint64_t window_cap
    uint64_t window_want        # bytes to read next
    uint64_t read_retry_us      # nothing is read back before; 0: reading works
    uint8_t read_failing        # told
    uint64_t window_n
    uint64_t window_lsn
    uint64_t window_number      # of the segment
    int window_fd               # 0: none
    Cleaning* cleaning          # with the loop, or waiting for its copies' commit; NULL: none
    uint8_t clean_waits         # for done_lsn
    uint64_t cycle_lsn          # cleaning that comes to here has seen all there was when it began
    uint64_t cycle_dropped      # bytes of records in what was dropped in this round
    uint64_t cycle_copied       # and what was copied from them
    uint64_t idle_lsn           # it gained nothing: no cleaning before so much is appended
    StoreStats stats

ctypedef struct Store:
    int event_fd                # readable when store_poll has news
    uint64_t live_bytes         # kept by the owner: store_record_bytes of each live record
    FileOps files
    StoreOptions options
    StoreExtension extension
    char* dir
    uint8_t store_id[16]
    uint8_t hardware            # has CRC-32C
    uint8_t opened
    uint8_t recovered
    uint8_t running
    int lock_fd
    pthread_t thread
    StoreLoop loop
    StoreShared shared
    StoreWriter writer

# ---- before the thread

# Takes the directory for this process. files NULL: the system's. -1 and why: what, where, what to do about it.
cdef int store_open(Store* s, const char* dir, const StoreOptions* options, const FileOps* files, char* why, size_t why_n) noexcept nogil
# Each record of each batch that is committed, in log order; bodies are valid during the call. 0; -1: could not be read at all, out of memory
# (store_error), or fn's own -1. Skipping it is not possible: a store is recovered before it is started.
cdef int store_recover(Store* s, store_record_fn fn, void* ctx, StoreLoss* loss) noexcept nogil
cdef int store_start(Store* s) noexcept nogil                   # the thread; -1: store_error

# ---- the loop's thread: no I/O, no wait

# Room for a body in the open batch, to be filled at once (the next append may move it). NULL: no memory, or too large.
cdef uint8_t* store_append(Store* s, uint8_t kind, uint8_t flags, uint32_t body_n, uint64_t* lsn) noexcept nogil
# Room in the open batch for records of n bytes in all (store_record_bytes): appending them cannot fail. 0: no memory.
cdef bint store_reserve(Store* s, uint64_t n) noexcept nogil
# What was appended since the last seal, as one batch, to the thread. The lsn after it; an empty one costs nothing. sync: it is to reach
# the disk, and everything before it; sealing nothing with sync set asks for that of what was sealed before.
cdef uint64_t store_seal(Store* s, bint sync) noexcept nogil
cdef void store_extension_wake(Store* s) noexcept nogil                   # what is behind the door is handed over, without a batch, and gets a turn
cdef uint32_t store_poll(Store* s) noexcept nogil               # news; clears event_fd
cdef void store_error(Store* s, char* out, size_t n) noexcept nogil         # text of the last error, "" when there was none
cdef void store_stats(Store* s, StoreStats* out) noexcept nogil

# What a record takes in the log, to be counted in live_bytes.
cdef inline uint64_t store_record_bytes(uint32_t body_n) noexcept nogil:
    return record_bytes(body_n)

# Bytes in the open batch: seal early from options.batch_early_bytes.
cdef inline uint64_t store_open_bytes(const Store* s) noexcept nogil:
    return 0 if s.loop.open == NULL else s.loop.open.n

# 0: more than waiting_max_bytes is on its way: take no more durable messages now.
cdef inline bint store_room(const Store* s) noexcept nogil:
    return s.loop.next_lsn - s.loop.released <= s.options.waiting_max_bytes

# All below is in the page cache (safe when the process is killed).
cdef inline uint64_t store_written(const Store* s) noexcept nogil:
    return s.loop.written

# All below is on the disk.
cdef inline uint64_t store_synced(const Store* s) noexcept nogil:
    return s.loop.synced

# Cleaning, after STORE_CLEAN: the next records (up to n) of the oldest segment to look at; 0: that was all, or there is none. Append again what is
# live. Bodies are valid until the next call of either. store_clean_done after a chunk, or after the last one: 1 when there is more to look at
# (STORE_CLEAN comes again by itself), 0 when the segment was looked at to its end; it is dropped when the copies are committed (synced, where anything
# was ever asked to be).
cdef uint32_t store_clean_chunk(Store* s, StoreRecord* out, uint32_t n) noexcept nogil
cdef bint store_clean_done(Store* s) noexcept nogil
# Instead of store_clean_done: the chunk could not be dealt with, and is given again.
cdef void store_clean_again(Store* s) noexcept nogil
# Reading back. 0; EAGAIN: STORE_READS_MAX are on their way; ENOMEM; EINVAL: nothing was ever there. An lsn that is not written yet waits until it
# is (seal it).
cdef int store_read(Store* s, const uint64_t* lsns, uint32_t n, void* cookie) noexcept nogil
cdef inline uint32_t store_reads_left(const Store* s) noexcept nogil:
    return STORE_READS_MAX - s.loop.n_reads

# After STORE_READ, until it returns 0: one record each time, those of one request in its order. Its body is valid until the next call.
cdef bint store_read_next(Store* s, void** cookie, StoreRecord* out) noexcept nogil

# Seals, writes, syncs, joins; frees. 0; -1: some of it could not be written (it was never said to be), why is in `why` (may be NULL).
cdef int store_close(Store* s, char* why, size_t why_n) noexcept nogil

# ---- for tools: no Store, no lock, nothing is changed; of a stopped store or of a live one (what is being written then may look torn).
# 0; -1 and why.
cdef int store_scan(const char* dir, const FileOps* files, store_record_fn fn, void* ctx, StoreLoss* loss, char* why, size_t why_n) noexcept nogil
# For tests: a turn of the writer in the caller's thread, instead of store_start.
cdef void store_turn(Store* s) noexcept nogil
