# What lies in a stream's folder, little-endian (docs/journal.md has it as tables):
#
#     lock | mark.a | mark.b | SSS-BASE-NUMBER.seg | SSS-BASE-NUMBER.idx | consumers/NAME
#
# Segments are numbered as they are begun, over all shards, from 1 on. **A segment counts up to where a later one of its shard begins**, whatever lies in its file
# behind that: so what could not be synced is written to another one, from the same record on.
#
# A segment: a head (SEGMENT_HEAD_BYTES, two copies of it), then blocks. A block: a head, then records. Both of a block's checks are salted with its segment
# and its place in it, so that neither old bytes nor what a client puts into a payload look like a block.
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

cdef enum:
    JOURNAL_FORMAT = 1
    JOURNAL_SHARDS_MAX = 64
    SEGMENT_HEAD_BYTES = 4096
    SEGMENT_HEAD_COPY = 2048    # where the second copy lies: another sector
    SEGMENT_HEAD_USED = 88      # bytes of a copy
    BLOCK_HEAD = 48
    BLOCK_ALIGN = 8
    BLOCK_BODY_MAX = 0x1FFFFFF8
    RECORD_HEAD = 28
    RECORD_ALIGN = 8
    RECORD_BYTES_MIN = 32
    INDEX_ENTRY = 32
    INDEX_STEP_BYTES = 64 << 10     # of a segment between two entries, at least
    MARK_HEAD = 48
    MARK_SHARD = 48
    MARK_BYTES_MAX = 3124       # MARK_HEAD + JOURNAL_SHARDS_MAX * MARK_SHARD + 4
    CONSUMER_HEAD = 24
    CONSUMER_BYTES_MAX = 540    # CONSUMER_HEAD + JOURNAL_SHARDS_MAX * 8 + 4
    CONSUMER_NAME_MAX = 64

ctypedef struct SegmentHead:
    uint32_t format
    uint8_t stream_id[16]
    uint32_t shard
    uint32_t shards             # how many there were when it was begun
    uint64_t base_seq           # of its first record
    uint64_t number             # a later one has a higher number
    uint64_t salt               # so that a file that is made anew does not take an older one's blocks for its own
    uint64_t made_us            # wall clock
    uint64_t time_us            # largest time of a record before it in its shard; 0: none
    uint32_t seed               # for the checks of its blocks; not stored

ctypedef struct BlockHead:
    uint32_t body_crc
    uint32_t body_n             # bytes, a multiple of BLOCK_ALIGN
    uint32_t count              # records, at least 1
    uint32_t span_us            # largest time of its records, from time_us on
    uint64_t first_seq
    uint64_t time_us            # times of its records are from here on
    uint64_t commit_us          # when it was written

ctypedef struct ShardMark:
    uint64_t first_seq          # oldest record that is kept
    uint64_t seq                # behind the last record that is on the disk
    uint64_t segment            # number of the segment that ends there; 0: there is none
    uint64_t offset             # and where in it
    uint64_t time_us            # largest time of a record so far
    uint64_t behind             # segments that may hold what comes next: those of this number and later ones

ctypedef struct Marks:
    uint32_t format
    uint32_t n                  # shards
    uint8_t stream_id[16]
    uint64_t generation         # rises with each mark
    uint64_t made_us
    ShardMark shards[64]        # JOURNAL_SHARDS_MAX

ctypedef struct IndexEntry:
    uint64_t first_seq          # of the block at
    uint64_t offset
    uint64_t time_us            # largest time of a record before it

ctypedef struct Consumer:
    uint32_t n                  # shards it knows of; of others it has read nothing
    uint64_t updated_us
    uint64_t seqs[64]           # behind what it is done with

cdef inline uint32_t mark_bytes(uint32_t shards) noexcept nogil:
    return MARK_HEAD + shards * MARK_SHARD + 4

cdef inline uint32_t consumer_bytes(uint32_t shards) noexcept nogil:
    return CONSUMER_HEAD + shards * 8 + 4

# What reads: 0; -1: it is none (of a format that is not known: read as far as that, and 0).
cdef void segment_head_write(bint hardware, uint8_t* p, const SegmentHead* h) noexcept nogil           # SEGMENT_HEAD_BYTES
cdef int segment_head_read(bint hardware, const uint8_t* p, SegmentHead* h) noexcept nogil
cdef void segment_head_seed(bint hardware, SegmentHead* h) noexcept nogil
# At `at` of a segment; the body lies behind the head, and is checked too.
cdef void block_seal(bint hardware, uint8_t* p, uint32_t seed, uint64_t at, const BlockHead* h) noexcept nogil
cdef int block_head_read(bint hardware, const uint8_t* p, uint32_t seed, uint64_t at, BlockHead* h) noexcept nogil
cdef uint32_t block_body_crc(bint hardware, const uint8_t* body, uint32_t n, uint32_t seed, uint64_t at) noexcept nogil
cdef void mark_write(bint hardware, uint8_t* p, const Marks* m) noexcept nogil          # mark_bytes(m.n)
cdef int mark_read(bint hardware, const uint8_t* p, uint64_t n, Marks* m) noexcept nogil
cdef void index_write(bint hardware, uint8_t* p, uint32_t seed, uint64_t number, const IndexEntry* e) noexcept nogil
cdef int index_read(bint hardware, const uint8_t* p, uint32_t seed, uint64_t number, IndexEntry* e) noexcept nogil
cdef void consumer_write(bint hardware, uint8_t* p, const Consumer* c) noexcept nogil   # consumer_bytes(c.n)
cdef int consumer_read(bint hardware, const uint8_t* p, uint64_t n, Consumer* c) noexcept nogil
# Which shard a topic's messages lie in: CRC-32C of it, times their number, the upper half. Unkeyed, so that readers know it.
cdef uint32_t shard_of(bint hardware, const uint8_t* topic, uint32_t n, uint32_t shards) noexcept nogil
