# The writing of a stream: records of messages and of client events, numbered per shard, in segment files that other processes may
# read at the same time. This module knows bytes, files and sequence numbers. It does not know which messages belong to the
# stream; it has no broker and no thread. The owner's loop appends records, the owner's storage thread does the steps below, and
# the owner holds its lock where a function requires it.
#
# **The struct of a field names its thread**: `loop`, `shared` (under the owner's lock), `writer` (also in journal_open and
# journal_close, when no loop runs). The fields of Journal itself are constant while both run.
#
#     j = memset 0; journal_open
#     loop:    journal_append* journal_seal, [lock] journal_hand [unlock]
#     writer:  [lock] journal_take [unlock] journal_write, journal_sync, journal_mark, journal_retain (writer.pxd, retain.pxd)
#     journal_close (also after a failed journal_open)
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from cext.journal.format cimport Marks, ShardMark
from cext.journal.record cimport JournalRecord
from cext.store.file cimport FileOps

cdef enum:
    JOURNAL_SEGMENT_BYTES = 64 << 20
    JOURNAL_SEGMENT_BYTES_MIN = 8 << 10
    JOURNAL_SEGMENT_BYTES_MAX = 1 << 30
    JOURNAL_BLOCK_BYTES = 256 << 10
    JOURNAL_BLOCK_BYTES_MIN = 4 << 10       # first size of a block
    JOURNAL_BLOCK_BYTES_MAX = 16 << 20
    JOURNAL_WAITING_MAX_BYTES = 64 << 20
    # after so many written bytes the disk begins to write, so that the next sync takes less time
    JOURNAL_WRITE_OUT_BYTES = 1 << 20
    JOURNAL_IDLE_MAX_BYTES = 16 << 20       # limit of the blocks kept for reuse
    # limit of written and unsynced blocks in memory: above it the thread syncs without a request
    JOURNAL_UNSYNCED_MAX_BYTES = 16 << 20
    JOURNAL_WHY_MAX = 512
    JOURNAL_RANGES_REPORTED = 16

cdef enum:
    # results of journal_append
    JOURNAL_TAKEN = 0
    JOURNAL_SEAL_SOON = 1       # appended; a block is full
    JOURNAL_WAITS = -1          # not appended: too much waits for the disk
    JOURNAL_NO_MEMORY = -2      # not appended
    JOURNAL_TOO_LARGE = -3      # not appended, and never possible

cdef enum:
    # reasons why a range of sequence numbers cannot be read
    LOSS_DAMAGED = 1            # a checksum of a block is wrong
    LOSS_MISSING = 2            # no file holds the range
    LOSS_RETIRED = 3            # retention has dropped the range

ctypedef struct JournalOptions:     # 0 in any field = the default, or no limit
    uint32_t shards             # a stream never loses shards; a smaller number is ignored
    uint64_t segment_bytes
    uint32_t block_bytes
    uint64_t waiting_max_bytes
    # age at which a segment is closed, so that retention by age can drop it
    uint64_t roll_age_us
    uint64_t retain_age_us
    uint64_t retain_bytes
    uint8_t stream_id[16]       # id of a stream that begins; zeros = a random one
    char node[65]               # JOURNAL_NODE_MAX + 1: node of a cluster that appends; empty = no cluster
    uint8_t create              # create the folder if it is missing (not its parents)
    # Number of shards in `until`; 0 = none. Records found at the start behind the mark from `until` on were never committed.
    uint32_t n_until
    uint64_t until[64]          # size = JOURNAL_SHARDS_MAX

ctypedef struct JournalRange:
    uint32_t shard
    uint32_t why                # reason, LOSS_*
    uint64_t lo
    uint64_t hi                 # first number after the range
ctypedef struct JournalLoss:
    uint32_t n                  # number of ranges; the first of them:
    JournalRange ranges[16]     # size = JOURNAL_RANGES_REPORTED
    uint64_t records            # records in all ranges

ctypedef struct JournalFound:   # result of journal_open
    JournalLoss loss            # records that the mark names and that are not there
    uint64_t beyond             # records found after the mark: written again, as they may not be on the disk
    uint64_t dropped            # records dropped because they are behind `until`
    uint64_t torn_bytes         # bytes after the last record: never committed
    uint32_t unreadable         # files with the name of a segment and a damaged head; not changed
    uint8_t mark_lost           # there are segments and no mark

ctypedef struct JournalStats:
    uint64_t records            # records written
    uint64_t bytes              # bytes written
    uint64_t blocks
    uint64_t syncs
    uint64_t marks
    uint64_t total_bytes        # size of the segment files
    uint64_t retired_segments
    uint64_t retired_records
    uint64_t forced_records     # part of the dropped records that a consumer had not read; retain_bytes required it
    uint64_t poisoned           # segments abandoned because of a failed write or sync
    uint64_t index_errors       # entries that could not be written; readers search the blocks instead
    uint32_t segments
    uint32_t consumers
    uint32_t consumers_unreadable   # consumers with an unreadable mark; they hold back all records
    uint32_t errors             # failed system calls
    uint8_t full                # the disk was full at the last call
    uint8_t failing

# ---- internal structs

ctypedef struct Block:
    Block* next
    uint8_t* p                  # BLOCK_HEAD bytes for the head, then records
    uint64_t n                  # size of both in bytes
    uint64_t cap
    uint64_t first_seq
    uint64_t time_us
    uint32_t span_us
    uint32_t count
    uint32_t shard
    const char* node            # node that has appended the records: options.node, or behind the body of a block that a start restores

ctypedef struct Blocks:         # queue of blocks
    Block* head
    Block* tail

ctypedef struct JournalSegment:
    uint64_t base_seq
    uint64_t number
    uint64_t bytes_
    uint64_t made_us
    uint64_t time_us            # time_us of its head

ctypedef struct JournalLoop:
    Block* open[64]             # size = JOURNAL_SHARDS_MAX; NULL = none
    uint64_t next_seq[64]
    Blocks sealed               # sealed and not yet handed over
    Block* back                 # returned by the storage thread, not yet examined
    Block* idle
    uint64_t idle_bytes
    uint64_t waiting_bytes      # memory of all blocks that are not idle

ctypedef struct JournalShared:
    Blocks sealed               # loop -> storage thread
    Block* done                 # storage thread -> loop
    Marks marks
    JournalStats stats
    char why[512]               # size = JOURNAL_WHY_MAX

ctypedef struct Shard:          # state of one shard in the storage thread
    JournalSegment* segments    # sorted by base; the last is written to if fd >= 0
    uint32_t n
    uint32_t cap
    int fd
    int index_fd                # -1 = none; the index is optional for readers
    uint8_t named               # the directory entry of the segment is on the disk
    uint32_t seed               # seed of the segment
    char node[65]               # JOURNAL_NODE_MAX + 1: node of the segment
    uint64_t offset             # end of its last block
    uint64_t written_out        # offset up to which the disk was asked to write
    uint64_t index_n            # number of index entries
    uint64_t index_at           # offset of the last block with an entry
    uint64_t written            # sequence number after the written records
    # the same for abandoned segments and for those found at the start; the mark does not pass it before all of that is on the
    # disk
    uint64_t reached
    # abandoned segment of which nothing was ever synced, kept until written records reach as far; number 0 = none
    JournalSegment spare
    uint64_t time_us            # largest time of a record so far
    Blocks todo
    Blocks unsynced             # blocks written to this segment and not synced
    ShardMark synced            # values of the shard for the next mark

ctypedef struct JournalWriter:
    Shard shards[64]
    uint64_t next_number        # number of the next segment
    uint64_t start_number       # next_number at the start: files found at the start have lower numbers
    # records found at the start are not all on the disk: nothing newer is written before
    uint8_t restoring
    Marks marks                 # mark written last
    int mark_fd[2]
    uint8_t mark_slot           # slot of the next mark
    uint8_t mark_inherited      # another process wrote the newest mark, and this one has written none
    uint8_t dir_dirty           # the directory entry of a mark is not on the disk
    Blocks incoming             # taken blocks, not yet sorted by shard
    Block* done                 # blocks to be returned to the loop
    uint64_t unsynced_bytes     # bytes of the unsynced blocks of all shards
    JournalStats stats
    char why[512]

ctypedef struct Journal:
    FileOps files
    bint hardware
    char dir[3968]              # size = JOURNAL_PATH_MAX
    uint32_t n_shards
    uint8_t stream_id[16]
    JournalOptions options
    int lock_fd
    uint8_t opened
    JournalLoop loop
    JournalShared shared
    JournalWriter writer

cdef enum:
    JOURNAL_PATH_MAX = 3968     # length of the folder's name, which leaves room for the names in it

# ---- called by the loop
# Append a record. It sets r.seq and reads r.time_us. Return JOURNAL_TAKEN and so on.
cdef int journal_append(Journal* j, uint32_t shard, JournalRecord* r) noexcept nogil
# Reserve n bytes (journal_record_bytes), so that the next append cannot fail. Return >= 0, or the reason.
cdef int journal_reserve(Journal* j, uint32_t shard, uint64_t n, uint64_t time_us) noexcept nogil
cdef void journal_release(Journal* j, uint32_t shard) noexcept nogil     # cancel the last reservation
cdef bint journal_seal(Journal* j) noexcept nogil          # seal all open blocks; 1 = there is something to hand over
cdef void journal_hand(Journal* j) noexcept nogil          # called under the owner's lock
cdef void journal_back(Journal* j) noexcept nogil          # as journal_hand, but only takes finished blocks back
cdef bint journal_room(Journal* j) noexcept nogil          # 0 = journal_append may return JOURNAL_WAITS

cdef inline void blocks_add(Blocks* q, Block* b) noexcept nogil:
    b.next = NULL
    if q.tail == NULL:
        q.head = b
    else:
        q.tail.next = b
    q.tail = b

cdef inline Block* blocks_pop(Blocks* q) noexcept nogil:
    cdef Block* b = q.head
    if b != NULL:
        q.head = b.next
        if q.head == NULL:
            q.tail = NULL
    return b

cdef inline void blocks_join(Blocks* q, Blocks* more) noexcept nogil:      # append `more` to q and empty it
    if more.head == NULL:
        return
    if q.tail == NULL:
        q.head = more.head
    else:
        q.tail.next = more.head
    q.tail = more.tail
    more.head = more.tail = NULL

cdef inline void journal_loss_add(JournalLoss* loss, uint32_t shard, uint32_t why, uint64_t lo, uint64_t hi) noexcept nogil:
    """Add a lost range. A range that continues the last one for the same reason is merged with it."""
    cdef JournalRange* last
    if lo >= hi:
        return
    loss.records += hi - lo
    if 0 < loss.n <= JOURNAL_RANGES_REPORTED:
        last = &loss.ranges[loss.n - 1]
        if last.shard == shard and last.why == why and last.hi == lo:
            last.hi = hi
            return
    if loss.n < JOURNAL_RANGES_REPORTED:
        last = &loss.ranges[loss.n]
        last.shard = shard
        last.why = why
        last.lo = lo
        last.hi = hi
    loss.n += 1
