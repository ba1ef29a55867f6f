# A stream that is written: records of messages and of what happened to clients, numbered per shard, in segment files that anybody may read meanwhile.
# Knows bytes, files and sequence numbers; not which messages belong into it, no broker, and no thread: the owner's loop appends, the owner's storage thread
# makes the steps below, and the owner's lock is held where it is said.
#
# **Which thread** a field belongs to is said by the struct it lies in: `loop`, `shared` (under the owner's lock), `writer` (journal_open and journal_close
# included: no loop then). What is at the top is constant in between.
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
    JOURNAL_BLOCK_BYTES_MIN = 4 << 10       # a block begins with so much memory
    JOURNAL_BLOCK_BYTES_MAX = 16 << 20
    JOURNAL_WAITING_MAX_BYTES = 64 << 20
    JOURNAL_WRITE_OUT_BYTES = 1 << 20       # written: the disk begins with them, so that the next sync does not hold up the thread
    JOURNAL_IDLE_MAX_BYTES = 16 << 20       # of blocks kept to be filled again
    JOURNAL_KEPT_MAX_BYTES = 16 << 20       # written and not synced, kept in memory: more is synced unasked
    JOURNAL_WHY_MAX = 512
    JOURNAL_RANGES_REPORTED = 16

cdef enum:
    # journal_append
    JOURNAL_TAKEN = 0
    JOURNAL_SEAL_SOON = 1       # taken; a block is full
    JOURNAL_WAITS = -1          # not taken: too much waits for the disk
    JOURNAL_NO_MEMORY = -2      # not taken
    JOURNAL_TOO_LARGE = -3      # not taken, and never will be

cdef enum:
    # why a range of sequence numbers cannot be read
    LOSS_DAMAGED = 1            # a block's check is wrong
    LOSS_MISSING = 2            # it is in no file
    LOSS_RETIRED = 3            # retention has dropped it

ctypedef struct JournalOptions:     # 0 anywhere: the default, or no bound
    uint32_t shards                 # fewer than there are: what there are
    uint64_t segment_bytes
    uint32_t block_bytes
    uint64_t waiting_max_bytes
    uint64_t roll_age_us            # a segment older than that is not written to any more: so that retention by age can drop it
    uint64_t retain_age_us
    uint64_t retain_bytes
    uint8_t create                  # make the folder when it is missing (not its parents)
    uint32_t n_until                # shards that this is known of; 0: of none. What a start finds from there on, behind the mark, was never committed
    uint64_t until[64]              # JOURNAL_SHARDS_MAX

ctypedef struct JournalRange:
    uint32_t shard
    uint32_t why                # LOSS_*
    uint64_t lo
    uint64_t hi                 # first number behind it
ctypedef struct JournalLoss:
    uint32_t n                  # ranges; the first of them:
    JournalRange ranges[16]     # JOURNAL_RANGES_REPORTED
    uint64_t records            # in all of them

ctypedef struct JournalFound:   # by journal_open
    JournalLoss loss            # of what the mark said was there
    uint64_t beyond             # records found behind the mark: written anew, as nobody knows whether they are on the disk
    uint64_t dropped            # records behind `until`
    uint64_t torn_bytes         # behind them: never committed
    uint32_t unreadable         # files named as segments whose heads are damaged; left alone
    uint8_t mark_lost           # there are segments, but no mark

ctypedef struct JournalStats:
    uint64_t records            # written
    uint64_t bytes              # written
    uint64_t blocks
    uint64_t syncs
    uint64_t marks
    uint64_t total_bytes        # of segment files
    uint64_t retired_segments
    uint64_t retired_records
    uint64_t forced_records     # of those: a consumer had not read them; retain_bytes took them
    uint64_t poisoned           # segments given up because of a failed write or sync
    uint64_t index_errors       # entries that could not be written: readers look for themselves
    uint32_t segments
    uint32_t consumers
    uint32_t consumers_unreadable   # they hold back everything
    uint32_t errors             # failed calls
    uint8_t full                # as of the last call
    uint8_t failing

# ---- inside

ctypedef struct Block:
    Block* next
    uint8_t* p                  # BLOCK_HEAD bytes for the head, then records
    uint64_t n                  # bytes of both
    uint64_t cap
    uint64_t first_seq
    uint64_t time_us
    uint32_t span_us
    uint32_t count
    uint32_t shard

ctypedef struct Blocks:         # a queue of them
    Block* head
    Block* tail

ctypedef struct Segment:
    uint64_t base_seq
    uint64_t number
    uint64_t bytes_
    uint64_t made_us
    uint64_t time_us            # of its head

ctypedef struct JournalLoop:
    Block* open[64]             # JOURNAL_SHARDS_MAX; NULL: none
    uint64_t next_seq[64]
    Blocks sealed               # not handed over yet
    Block* back                 # came back, not looked at yet
    Block* idle
    uint64_t idle_bytes
    uint64_t waiting_bytes      # memory of all blocks that are not idle

ctypedef struct JournalShared:
    Blocks sealed               # loop -> writer
    Block* done                 # writer -> loop
    Marks marks
    JournalStats stats
    char why[512]               # JOURNAL_WHY_MAX

ctypedef struct Shard:          # the writer's
    Segment* segments           # by base; the last is written to, when fd >= 0
    uint32_t n
    uint32_t cap
    int fd
    int index_fd                # -1: none; its entries are a help only
    uint8_t named               # the segment's name is on the disk
    uint32_t seed               # of it
    uint64_t offset             # behind its last block
    uint64_t written_out        # the disk was asked to begin with what lies before
    uint64_t index_n            # entries
    uint64_t index_at           # offset of the last one
    uint64_t written            # sequence number behind what was written
    uint64_t reached            # the same of segments that were given up, or that a start has found: the mark waits for it
    Segment spare               # one of those that nothing of was ever synced, kept until what reaches so far is; number 0: none
    uint64_t time_us            # largest time so far
    Blocks todo
    Blocks kept                 # written to this segment, not synced
    ShardMark synced            # what the next mark says of it

ctypedef struct JournalWriter:
    Shard shards[64]
    uint64_t next_number        # of the next segment
    uint64_t start_number       # the same as of the start: what a start finds is in lower ones
    uint8_t restoring           # what the start has found is not all on the disk: nothing newer is written before
    Marks marks                 # the last one that was written
    int mark_fd[2]
    uint8_t mark_slot           # to be written next
    uint8_t dir_dirty           # a mark's name is not on the disk
    Blocks incoming             # taken, not sorted by shard yet
    Block* done                 # to be handed back
    uint64_t kept_bytes         # of all shards
    JournalStats stats
    char why[512]

ctypedef struct Journal:
    FileOps files
    bint hardware
    char dir[3968]              # JOURNAL_PATH_MAX
    uint32_t n_shards
    uint8_t stream_id[16]
    JournalOptions options
    int lock_fd
    uint8_t opened
    JournalLoop loop
    JournalShared shared
    JournalWriter writer

cdef enum:
    JOURNAL_PATH_MAX = 3968     # of the folder: there is room for the names in it

# ---- the loop's. r.seq is given to the record; r.time_us is taken. JOURNAL_TAKEN ...
cdef int journal_append(Journal* j, uint32_t shard, JournalRecord* r) noexcept nogil
cdef int journal_reserve(Journal* j, uint32_t shard, uint64_t n, uint64_t time_us) noexcept nogil     # record_bytes: the next append cannot fail. >= 0 or why
cdef void journal_release(Journal* j, uint32_t shard) noexcept nogil     # what was reserved last does not come
cdef bint journal_seal(Journal* j) noexcept nogil          # all open blocks; 1: something is to be handed over
cdef void journal_hand(Journal* j) noexcept nogil          # under the owner's lock
cdef void journal_back(Journal* j) noexcept nogil          # the same, but nothing is handed over: only what is done with comes back
cdef bint journal_room(Journal* j) noexcept nogil          # 0: journal_append may say JOURNAL_WAITS

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

cdef inline void blocks_join(Blocks* q, Blocks* more) noexcept nogil:      # `more` behind q; it is empty then
    if more.head == NULL:
        return
    if q.tail == NULL:
        q.head = more.head
    else:
        q.tail.next = more.head
    q.tail = more.tail
    more.head = more.tail = NULL

cdef inline void loss_add(JournalLoss* loss, uint32_t shard, uint32_t why, uint64_t lo, uint64_t hi) noexcept nogil:
    # A range that goes on where the last one ended, for the same reason, is part of it.
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
