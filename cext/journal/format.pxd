# The content of a stream's folder, little-endian (docs/journal.md shows it as tables):
#
#     lock | mark.a | mark.b | SSS-BASE-NUMBER.seg | SSS-BASE-NUMBER.idx | consumers/NAME
#
# Segments are numbered in the order of their creation, over all shards, from 1 on. **A segment counts up to the beginning of a
# later segment of its shard**, whatever its file has behind that place. So records that could not be synced are written to
# another segment, from the first of them on.
#
# A segment: a head (SEGMENT_HEAD_BYTES, two copies), then blocks. A block: a head, then records. Both checksums of a block are
# salted with its segment and its offset, so that neither old bytes nor a payload chosen by a client can look like a block.
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

cdef enum:
    JOURNAL_FORMAT = 1
    JOURNAL_SHARDS_MAX = 64
    SEGMENT_HEAD_BYTES = 4096
    SEGMENT_HEAD_COPY = 2048    # offset of the second copy, in another sector
    SEGMENT_HEAD_USED = 88      # bytes of one copy, without the name of the node behind it
    JOURNAL_NODE_MAX = 64       # length of the name of a node
    BLOCK_HEAD = 48
    BLOCK_ALIGN = 8
    BLOCK_BODY_MAX = 0x1FFFFFF8
    JOURNAL_RECORD_HEAD = 28
    JOURNAL_RECORD_ALIGN = 8
    RECORD_BYTES_MIN = 32
    INDEX_ENTRY = 32
    INDEX_STEP_BYTES = 64 << 10     # smallest distance in a segment between two entries
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
    uint32_t shards             # number of shards when the segment was created
    uint64_t base_seq           # sequence number of its first record
    uint64_t number             # segment number; later segments have higher numbers
    uint64_t salt               # random, so that a re-created file does not accept the blocks of an older one
    uint64_t made_us            # creation time, wall clock
    uint64_t time_us            # largest time of an earlier record of the shard; 0 = none
    uint32_t seed               # seed of the checksums of the blocks; not stored
    char node[65]               # JOURNAL_NODE_MAX + 1: node of a cluster that has appended all its records; empty = unknown, or no cluster

ctypedef struct BlockHead:
    uint32_t body_crc
    uint32_t body_n             # size in bytes, a multiple of BLOCK_ALIGN
    uint32_t count              # number of records, at least 1
    uint32_t span_us            # largest time of its records, relative to time_us
    uint64_t first_seq
    uint64_t time_us            # base of the times of its records
    uint64_t commit_us          # time of the write

ctypedef struct ShardMark:
    uint64_t first_seq          # oldest record that is kept
    uint64_t seq                # number after the last record on the disk
    uint64_t segment            # number of the segment that ends there; 0 = none
    uint64_t offset             # offset of the end in that segment
    uint64_t time_us            # largest time of a record so far
    uint64_t behind             # lowest number of the segments that may hold later records

ctypedef struct Marks:
    uint32_t format
    uint32_t n                  # number of shards
    uint8_t stream_id[16]
    uint64_t generation         # rises with each mark
    uint64_t made_us
    ShardMark shards[64]        # size = JOURNAL_SHARDS_MAX

ctypedef struct IndexEntry:
    uint64_t first_seq          # first sequence number of the block at `offset`
    uint64_t offset
    uint64_t time_us            # largest time of a record before the block

ctypedef struct Consumer:
    uint32_t n                  # number of shards that the consumer knows; it has read nothing of the others
    uint64_t updated_us
    uint64_t seqs[64]           # numbers after the records that the consumer has processed

cdef inline uint32_t mark_bytes(uint32_t shards) noexcept nogil:
    return MARK_HEAD + shards * MARK_SHARD + 4

cdef inline uint32_t consumer_bytes(uint32_t shards) noexcept nogil:
    return CONSUMER_HEAD + shards * 8 + 4

# Functions that read return 0, or -1 for invalid bytes. A later format is read as far as it is known, and the result is 0.
cdef void segment_head_write(bint hardware, uint8_t* p, const SegmentHead* h) noexcept nogil           # writes SEGMENT_HEAD_BYTES
cdef int segment_head_read(bint hardware, const uint8_t* p, SegmentHead* h) noexcept nogil
cdef void segment_head_seed(bint hardware, SegmentHead* h) noexcept nogil
# Both take the offset `at` of a block in its segment. The body is after the head; block_seal computes both checksums.
cdef void block_seal(bint hardware, uint8_t* p, uint32_t seed, uint64_t at, const BlockHead* h) noexcept nogil
cdef int block_head_read(bint hardware, const uint8_t* p, uint32_t seed, uint64_t at, BlockHead* h) noexcept nogil
cdef uint32_t block_body_crc(bint hardware, const uint8_t* body, uint32_t n, uint32_t seed, uint64_t at) noexcept nogil
cdef void mark_write(bint hardware, uint8_t* p, const Marks* m) noexcept nogil          # writes mark_bytes(m.n)
cdef int mark_read(bint hardware, const uint8_t* p, uint64_t n, Marks* m) noexcept nogil
cdef void index_write(bint hardware, uint8_t* p, uint32_t seed, uint64_t number, const IndexEntry* e) noexcept nogil
cdef int index_read(bint hardware, const uint8_t* p, uint32_t seed, uint64_t number, IndexEntry* e) noexcept nogil
cdef void consumer_write(bint hardware, uint8_t* p, const Consumer* c) noexcept nogil   # writes consumer_bytes(c.n)
cdef int consumer_read(bint hardware, const uint8_t* p, uint64_t n, Consumer* c) noexcept nogil
# Return the shard of a topic: the upper half of the product of its CRC-32C and the number of shards. There is no key, so that
# readers can compute it.
cdef uint32_t shard_of_topic(bint hardware, const uint8_t* topic, uint32_t n, uint32_t shards) noexcept nogil
