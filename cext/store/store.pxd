# The store: a log of records in segment files, written by one thread, so that the loop never waits for a disk. This module knows
# bytes, files and that thread. It does not know the meaning of a record or which records are live: its owner replays them, and
# looks through a segment before it is dropped (cleaning).
#
# A record belongs to a *batch*. A batch counts only when its COMMIT is there. An lsn is the number of bytes appended since the
# store was created.
#
#     s = memset 0; store_open; store_recover; store_start
#     ... store_append* store_seal ... store_poll when event_fd is readable ...
#     store_close (also after a failed store_open, when it does nothing)
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from cext.store.file cimport FileOps
from cext.store.format cimport record_bytes
from cext.store.state cimport STORE_READS_MAX, Store, StoreLoss, StoreOptions, StoreRecord, StoreStats, store_record_fn

# ---- before the thread runs

# Take the directory for this process. files NULL = those of the system. Return 0, or -1 with problem, place and advice in `why`.
cdef int store_open(Store* s, const char* dir, const StoreOptions* options, const FileOps* files, char* why, size_t why_n) noexcept nogil
# Call fn for each record of each committed batch, in log order; bodies are valid during the call. Return 0, or -1 if the store
# could not be read, memory was short (store_error) or fn returned non-zero. This step is required: a store is recovered before it
# is started.
cdef int store_recover(Store* s, store_record_fn fn, void* ctx, StoreLoss* loss) noexcept nogil
cdef int store_start(Store* s) noexcept nogil                   # starts the thread; -1: see store_error

# ---- called by the loop's thread: no I/O, no wait

# Return room for a body in the open batch, to be filled at once (the next append may move it). NULL = no memory, or too large.
cdef uint8_t* store_append(Store* s, uint8_t kind, uint8_t flags, uint32_t body_n, uint64_t* lsn) noexcept nogil
# Reserve room in the open batch for records of n bytes in all (store_record_bytes), so that appending them cannot fail. 0 = no
# memory.
cdef bint store_reserve(Store* s, uint64_t n) noexcept nogil
# Pass everything appended since the last seal to the storage thread as one batch. Return the lsn after it; sealing nothing costs
# nothing. sync = this batch and everything before it must reach the disk; sealing nothing with sync set requests that for the
# batches sealed before.
cdef uint64_t store_seal(Store* s, bint sync) noexcept nogil
# Hand the data of the extension over without a batch, and give the extension a turn.
cdef void store_extension_wake(Store* s) noexcept nogil
cdef uint32_t store_poll(Store* s) noexcept nogil               # returns the news; clears event_fd
cdef void store_error(Store* s, char* out, size_t n) noexcept nogil         # text of the last error, "" if there was none
cdef void store_stats(Store* s, StoreStats* out) noexcept nogil

# Return the size of a record in the log, for live_bytes.
cdef inline uint64_t store_record_bytes(uint32_t body_n) noexcept nogil:
    return record_bytes(body_n)

# Return the size of the open batch in bytes: seal early from options.batch_early_bytes on.
cdef inline uint64_t store_open_bytes(const Store* s) noexcept nogil:
    return 0 if s.loop.open == NULL else s.loop.open.n

# Return 0 if more than waiting_max_bytes wait to be written: the owner must accept no more durable messages now.
cdef inline bint store_room(const Store* s) noexcept nogil:
    return s.loop.next_lsn - s.loop.released <= s.options.waiting_max_bytes

# Return the lsn below which everything is in the page cache, so that it survives a kill of the process.
cdef inline uint64_t store_written(const Store* s) noexcept nogil:
    return s.loop.written

# Return the lsn below which everything is on the disk.
cdef inline uint64_t store_synced(const Store* s) noexcept nogil:
    return s.loop.synced

# Cleaning, after STORE_CLEAN: return the next records (up to n) of the oldest segment, or 0 if there are no more or no segment is
# cleaned. Append those again that are live. Bodies are valid until the next call of store_clean_chunk or store_clean_done. Call
# store_clean_done after each chunk, or after the last one: 1 = there are more chunks (STORE_CLEAN comes again without a request),
# 0 = the segment was looked through; it is dropped when the copies are committed (synced, if the store was ever asked to sync).
cdef uint32_t store_clean_chunk(Store* s, StoreRecord* out, uint32_t n) noexcept nogil
cdef bint store_clean_done(Store* s) noexcept nogil
# Call this instead of store_clean_done if the chunk could not be processed: it is returned again.
cdef void store_clean_again(Store* s) noexcept nogil
# Return whether the copies must be counted first, since the room that the store has for certain might not suffice: then look
# through the records as for copies, append nothing, and call store_clean_count after each chunk with the bytes of the copies
# (store_record_bytes). 1 = there is more to do: the next chunk, or the first one again, for the copies. 0 = the copies do not
# find room, and the segment stays until there is more room or less to copy.
cdef bint store_clean_counts(Store* s) noexcept nogil
cdef bint store_clean_count(Store* s, uint64_t live) noexcept nogil
# Request records by lsn. Return 0; EAGAIN = STORE_READS_MAX are pending; ENOMEM; EINVAL = an lsn was never given out. A request
# for an lsn that is not yet written waits until it is (seal it).
cdef int store_read(Store* s, const uint64_t* lsns, uint32_t n, void* cookie) noexcept nogil
cdef inline uint32_t store_reads_left(const Store* s) noexcept nogil:
    return STORE_READS_MAX - s.loop.n_reads

# Call this after STORE_READ until it returns 0. Each call returns one record; those of one request keep its order. The body is
# valid until the next call.
cdef bint store_read_next(Store* s, void** cookie, StoreRecord* out) noexcept nogil

# Seal, write, sync, join the thread and free the store. Return 0, or -1 if some of it could not be written (it was never reported
# as written); the reason is in `why`, which may be NULL.
cdef int store_close(Store* s, char* why, size_t why_n) noexcept nogil

# ---- for tools
# Read a store without opening it: no lock, no change, also while a broker runs (a batch that is being written may look torn).
# Return 0, or -1 and `why`.
cdef int store_scan(const char* dir, const FileOps* files, uint64_t from_lsn, store_record_fn fn, void* ctx, StoreLoss* loss, char* why,
                    size_t why_n) noexcept nogil
# For tests: do one turn of the storage thread in the caller's thread, instead of store_start.
cdef void store_turn(Store* s) noexcept nogil
