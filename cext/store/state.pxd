# The structs and constants of an open store. store.pyx opens and closes it; the other modules of the room are tasks on it.
#
# **The struct of a field names its thread**: `loop` (the owner's thread: all functions of store.pxd), `shared` (only under
# shared.lock, held for a few assignments, never over a system call), `writer` (the storage thread from store_start to the end of
# store_close; before and after that the owner's thread). The fields of Store itself are constant while the thread runs, except
# live_bytes, which belongs to the loop.
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from cext.base.view cimport View
from cext.store.file cimport FileOps, FileRange

cdef enum:
    STORE_SEGMENT_BYTES = 16 << 20
    STORE_SEGMENT_BYTES_MIN = 16 << 10
    STORE_SEGMENT_BYTES_MAX = 1 << 30
    STORE_WAITING_MAX_BYTES = 64 << 20
    STORE_BATCH_EARLY_BYTES = 256 << 10
    STORE_WHY_MAX = 512         # size of an error text, including the zero byte
    STORE_RANGES_REPORTED = 8
    STORE_READS_MAX = 4096      # requested lsns that are not yet returned
    STORE_READ_BYTES_MAX = 4 << 20      # bodies that are read and not yet returned; at least one body is always read
    STORE_CHUNK_BYTES = 256 << 10       # approximate size of the bodies in one chunk of cleaning

cdef enum:
    # news that store_poll returns
    STORE_COMMITTED = 1         # store_written or store_synced rose
    # no space: sealed batches wait, except those that still fit into the spare segment. Reported once
    STORE_FULL = 2
    STORE_FULL_OVER = 4
    # something failed: store_error returns the text. Reported once per kind until a write succeeds
    STORE_ERROR = 8
    STORE_CLEAN = 16            # a chunk waits for store_clean_chunk
    STORE_READ = 32             # records wait for store_read_next
    STORE_ERROR_OVER = 64       # writing works again
    # records cannot be read back now (descriptors, memory, the disk); the thread tries again. Reported once until it succeeds
    STORE_READ_ERROR = 128
    STORE_EXTENSION = 256       # the extension has news
    STORE_LOW = 512             # little room is left: all batches are written, but there should be no new data. Reported once
    STORE_LOW_OVER = 1024

cdef enum:
    # values of StoreOptions.sync
    STORE_SYNC_ASKED = 0        # each seal decides whether it needs a sync
    STORE_SYNC_NEVER = 1        # written counts as synced: for tests, and for disks that cannot lose power

ctypedef struct StoreOptions:   # 0 in any field = the default
    uint64_t segment_bytes
    uint64_t waiting_max_bytes
    uint32_t batch_early_bytes
    uint8_t sync
    uint8_t create              # create the directory if it is missing (not its parents)

ctypedef struct StoreRecord:
    uint64_t lsn
    uint8_t kind                # 1 .. STORE_KIND_MAX; 0 from store_read_next = the record does not exist or cannot be read
    uint8_t flags
    View body

ctypedef int (*store_record_fn)(void* ctx, const StoreRecord* r) noexcept nogil     # 0 = continue

ctypedef struct StoreRange:
    uint64_t lo
    uint64_t hi                 # first lsn after it; UINT64_MAX = unknown length

ctypedef struct StoreLoss:
    uint32_t n                  # number of lost ranges; the first of them:
    StoreRange ranges[8]        # size = STORE_RANGES_REPORTED
    uint64_t bytes              # bytes in all lost ranges; ranges of unknown length are not counted
    # part of `ranges` that no COMMIT ever named as synced, so that it was only guaranteed to survive a kill
    uint64_t unsynced_bytes
    uint64_t torn_bytes         # bytes after the last COMMIT: never committed, so never guaranteed; not part of `bytes`
    uint64_t records            # records read
    uint64_t batches
    uint32_t segments
    uint32_t unreadable         # files with the name of a segment and a damaged header; not changed
    uint32_t foreign            # files of another store; not changed
    uint32_t moved              # segments that a broker dropped before store_scan had read them: the caller begins again
    uint64_t tail_lsn           # beginning of the log
    uint64_t end_lsn            # end of the last COMMIT
    uint64_t synced_lsn         # lsn that the last COMMIT names as synced

ctypedef struct StoreStats:
    uint64_t written_lsn
    uint64_t synced_lsn
    uint64_t next_lsn
    uint64_t tail_lsn
    uint64_t total_bytes        # size of the segment files, including the spare
    uint64_t live_bytes
    uint64_t waiting_bytes
    uint64_t batches
    uint64_t syncs
    uint64_t commit_us          # duration of the last write of sealed batches, including its sync if there was one
    uint64_t sync_us            # duration of the last sync; the commit interval adapts to it
    uint64_t cleaned            # segments cleaned
    uint64_t copied_bytes       # bytes copied by cleaning
    uint64_t poisoned           # segments written again because of a failed sync
    uint64_t damaged            # damaged places found by cleaning or reading back
    uint32_t segments
    uint32_t errors             # failed system calls
    uint8_t full                # 1 from STORE_FULL to STORE_FULL_OVER, and from STORE_LOW to STORE_LOW_OVER
    uint8_t low                 # 1 while `full` means only that there should be no new data
    uint8_t failing             # 1 from STORE_ERROR to STORE_ERROR_OVER

# Extension: other files that the storage thread writes together with the batches. Data handed over when a batch is sealed is
# written before that batch, so that a committed batch implies its data. The store does not know the data. Set it between
# store_open and store_start.
ctypedef struct StoreExtension:
    void* ctx                                                                   # NULL = no extension
    # The loop's thread calls it under the lock. sealed = with a batch.
    void (*hand)(void* ctx, bint sealed) noexcept nogil
    # The storage thread calls it under the lock.
    void (*take)(void* ctx) noexcept nogil
    # Return 0, or -errno and the text in `why`: then no batch is written, and the thread tries again.
    int (*write)(void* ctx, char* why, size_t why_n) noexcept nogil
    # Sync the data; called before a COMMIT names it as synced. Return 0, or -errno and the text in `why`.
    int (*sync)(void* ctx, char* why, size_t why_n) noexcept nogil
    # Do work that no batch waits for; called once per turn. Return the latest time for the next call (monotonic, microseconds),
    # or 0 for the next turn, whenever it comes. committed = the batches of everything that was taken are written. last = there is
    # no further turn. Set *news to 1 if the loop must look.
    uint64_t (*tend)(void* ctx, bint committed, bint last, bint* news) noexcept nogil

# ---- internal structs

ctypedef struct StoreSegment:
    uint64_t number
    uint64_t base_lsn
    uint64_t end_lsn            # end of its last batch
    uint64_t capacity           # size of the file in bytes
    uint64_t allocated          # bytes from its beginning that have their room on the disk
    uint32_t seed
    uint32_t slot               # number in the name of its file
    int fd                      # -1 = not open
    uint8_t dirty               # written since it was last synced
    uint8_t poisoned            # a sync or write failed: no record is written to the segment again
    uint8_t sync_failed         # its header says so, too: the next process must not trust a sync of this file either

ctypedef struct StoreBatch:
    StoreBatch* next
    uint64_t lsn                # lsn of its first record
    uint64_t n                  # size in bytes
    uint64_t cap
    uint8_t* p

ctypedef struct StoreBatches:        # queue of batches
    StoreBatch* head
    StoreBatch* tail

ctypedef struct StoreReading:        # read request; its lsns follow the struct
    StoreReading* next
    void* cookie
    uint32_t n
    uint32_t done               # number of lsns that the storage thread has answered
    uint32_t tries              # number of failed reads of the next record

ctypedef struct StoreAnswer:         # one record for the loop; its body follows the struct
    StoreAnswer* next
    void* cookie
    StoreRecord record

# The oldest segment, read completely into memory. It belongs to the loop from `shared.cleaning` to `shared.cleaned`; the storage
# thread frees it.
ctypedef struct StoreCleaning:
    uint64_t number             # number of the segment
    uint8_t* p
    uint64_t n
    uint64_t base_lsn
    uint32_t* found             # offsets of its records
    uint32_t n_found
    uint32_t taken              # records of finished chunks, counted by the loop
    uint32_t chunk              # number of records in the current chunk
    uint64_t chunk_lsn          # next_lsn when the chunk was taken
    uint64_t copied             # bytes appended by the owner for all chunks
    uint64_t done_lsn           # the copies are committed when everything below this lsn is
    uint64_t room_lsn           # records below this lsn find room without more space on the disk
    uint64_t live               # bytes of the copies, as far as they are counted
    uint8_t counted             # the copies find room: they may be appended

cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_mutex_t:
        pass
    ctypedef struct pthread_cond_t:
        pass
    ctypedef unsigned long pthread_t

ctypedef struct StoreLoop:
    StoreBatch* open            # batch being filled; NULL = none
    StoreBatch* idle            # batches for reuse
    uint32_t n_idle
    uint64_t next_lsn
    uint64_t written            # value at the last poll or seal
    uint64_t synced
    uint64_t released           # the memory of all batches below this lsn was released
    StoreCleaning* cleaning     # segment being cleaned chunk by chunk; NULL = none
    StoreAnswer* answers        # records not yet returned by store_read_next
    StoreAnswer* answers_tail
    StoreAnswer* returned       # record returned last: its body is still valid
    uint64_t returned_bytes     # bytes returned and not yet reported to the storage thread
    uint32_t n_reads            # requested lsns that are not yet returned

ctypedef struct StoreShared:
    pthread_mutex_t lock
    pthread_cond_t wake_up      # wakes the storage thread
    uint8_t sleeping            # the storage thread waits for `wake_up`
    uint8_t closing
    uint8_t extension_due       # the extension needs a turn
    uint8_t over                # the storage thread has ended
    uint32_t news
    StoreBatches sealed         # loop -> storage thread
    uint64_t sync_lsn           # everything below must be synced
    StoreBatch* done            # storage thread -> loop: batches for reuse
    StoreReading* requests      # loop -> storage thread, in order
    StoreReading* requests_tail
    StoreAnswer* answers        # storage thread -> loop, in order
    StoreAnswer* answers_tail
    uint64_t answers_bytes      # bytes of `answers`, and of those that the loop has not yet returned
    StoreCleaning* cleaning     # storage thread -> loop
    uint8_t cleaned             # loop -> storage thread: the segment was looked through
    uint8_t clean_refused       # loop -> storage thread: its copies do not find room
    uint64_t live_bytes
    uint64_t written
    uint64_t synced
    uint64_t released
    StoreStats stats
    char why[512]               # size = STORE_WHY_MAX

# Records that one step has read together.
ctypedef struct StoreFetch:
    FileRange* ranges           # of the log, in its order: `at` is an lsn
    uint32_t n
    uint8_t* bytes              # all ranges

ctypedef struct StoreWriter:
    StoreSegment* segments      # sorted by base_lsn; the last is written to if `active`
    uint32_t n
    uint32_t cap
    uint64_t segments_bytes     # size of the segment files
    uint8_t active
    uint8_t sync_wanted         # the store was asked to sync at least once
    uint8_t dir_dirty           # a file was created since the directory was last synced
    uint8_t full                # STORE_FULL was reported
    uint8_t failing             # STORE_ERROR was reported
    uint8_t low                 # STORE_LOW was reported; not `full`, for which cleaning would wait
    uint8_t turn_failed         # something failed in this turn
    uint64_t retry_us           # time of the next try; 0 = nothing has failed
    uint64_t extension_us       # time at which the extension needs a turn; 0 = none
    uint8_t room_asked          # the answer to a question about the room comes later
    uint64_t room_us            # time of the next look for an answer, or of the next question
    uint64_t sync_lsn           # everything below must be synced
    uint64_t written
    uint64_t synced
    uint64_t tail_lsn
    uint64_t live_bytes
    StoreSegment spare          # file written in advance; slot 0 = none
    uint64_t spare_done         # bytes of the spare that are written
    uint32_t* slots             # slots of free files, without the spare
    uint32_t n_slots
    uint32_t slot_last
    uint64_t number_last
    StoreBatches todo           # batches not yet written
    StoreBatches unsynced       # written batches that wait for a sync
    uint64_t unsynced_bytes
    StoreReading* requests
    StoreReading* requests_tail
    uint64_t answers_bytes      # value of shared.answers_bytes when it was last read
    StoreFetch fetch
    uint8_t* window             # buffer of reading back
    uint64_t window_cap
    uint64_t window_want        # size of the next read in bytes
    uint64_t read_retry_us      # time of the next try to read; 0 = reading works
    uint8_t read_failing        # STORE_READ_ERROR was reported
    uint64_t window_n
    uint64_t window_lsn
    uint64_t window_number      # number of the segment in the window
    int window_fd               # 0 = not open
    StoreCleaning* cleaning     # with the loop, or waiting for the commit of its copies; NULL = none
    uint8_t clean_waits         # cleaning waits until done_lsn is written
    uint8_t free_complete       # the start found a free file that has all its room
    uint8_t follower_missing    # the start found that a segment behind the last one is missing
    uint64_t refused_lsn        # room_lsn when the copies of the oldest segment found no room; 0 = they did
    uint64_t refused_live       # live_bytes at that time
    uint64_t refused_us         # time at which they are counted again
    uint64_t cycle_lsn          # end of the log when the round began; a round is over when cleaning reaches it
    uint64_t cycle_dropped      # bytes of records in the segments that this round dropped
    uint64_t cycle_copied       # bytes that this round copied
    uint64_t idle_lsn           # no cleaning before this lsn, because the last round freed nothing; unless less is live now
    uint64_t idle_live          # live_bytes at that time
    StoreStats stats

ctypedef struct Store:
    int event_fd                # readable if store_poll has news
    uint64_t live_bytes         # sum of store_record_bytes of all live records, maintained by the owner
    FileOps files
    StoreOptions options
    StoreExtension extension
    char* dir
    uint8_t store_id[16]
    uint8_t hardware            # the processor computes CRC-32C
    uint8_t opened
    uint8_t recovered
    uint8_t running
    int lock_fd
    pthread_t thread
    StoreLoop loop
    StoreShared shared
    StoreWriter writer
