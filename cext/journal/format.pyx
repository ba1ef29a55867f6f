"""Encode and decode heads, marks, index entries and the marks of consumers. This module knows no files. It checks every length
that it reads against its bound."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset, strlen

from cext.base.words cimport load32, load64, store32, store64
from cext.store.crc cimport crc_bytes

cdef const char* SEGMENT_MAGIC = b"mosqjrn\n"
cdef const char* MARK_MAGIC = b"mosqmrk\n"
cdef const char* CONSUMER_MAGIC = b"mosqcon\n"


# ---- segment head: magic, format, bytes of the page, stream, shard, shards, base, salt, made, time, number, checksum; checksum of the
# node's name, its length, the name. Earlier versions wrote zeros there, and ignore the name.

cdef enum:
    NODE_AT = 88                # SEGMENT_HEAD_USED
    NODE_BYTES = 72             # checksum, length, JOURNAL_NODE_MAX bytes

cdef void segment_head_seed(bint hardware, SegmentHead* h) noexcept nogil:
    cdef uint8_t salt[36]
    memcpy(salt, h.stream_id, 16)
    store32(salt + 16, h.shard)
    store64(salt + 20, h.base_seq)
    store64(salt + 28, h.salt)
    h.seed = crc_bytes(hardware, 0, salt, 36)


cdef void node_write(bint hardware, uint8_t* p, const SegmentHead* h) noexcept nogil:
    cdef uint32_t n = <uint32_t>strlen(h.node)
    store32(p + 4, n)
    memcpy(p + 8, h.node, n)
    store32(p, crc_bytes(hardware, h.seed, p + 4, NODE_BYTES - 4))


cdef bint node_read(bint hardware, const uint8_t* p, SegmentHead* h) noexcept nogil:
    cdef uint32_t n = load32(p + 4)
    if n == 0 or n > JOURNAL_NODE_MAX or load32(p) != crc_bytes(hardware, h.seed, p + 4, NODE_BYTES - 4):
        return 0
    memcpy(h.node, p + 8, n)
    return 1


cdef void segment_head_write(bint hardware, uint8_t* p, const SegmentHead* h) noexcept nogil:
    memset(p, 0, SEGMENT_HEAD_BYTES)
    memcpy(p, SEGMENT_MAGIC, 8)
    store32(p + 8, JOURNAL_FORMAT)
    store32(p + 12, SEGMENT_HEAD_BYTES)
    memcpy(p + 16, h.stream_id, 16)
    store32(p + 32, h.shard)
    store32(p + 36, h.shards)
    store64(p + 40, h.base_seq)
    store64(p + 48, h.salt)
    store64(p + 56, h.made_us)
    store64(p + 64, h.time_us)
    store64(p + 72, h.number)
    store32(p + SEGMENT_HEAD_USED - 4, crc_bytes(hardware, 0, p, SEGMENT_HEAD_USED - 4))
    if h.node[0]:
        node_write(hardware, p + NODE_AT, h)
    memcpy(p + SEGMENT_HEAD_COPY, p, NODE_AT + NODE_BYTES)


cdef int segment_copy_read(bint hardware, const uint8_t* p, SegmentHead* h) noexcept nogil:
    if memcmp(p, SEGMENT_MAGIC, 8) != 0 or load32(p + SEGMENT_HEAD_USED - 4) != crc_bytes(hardware, 0, p, SEGMENT_HEAD_USED - 4):
        return -1
    memset(h, 0, sizeof(SegmentHead))
    h.format = load32(p + 8)
    memcpy(h.stream_id, p + 16, 16)
    if h.format > JOURNAL_FORMAT:
        return 0
    h.shard = load32(p + 32)
    h.shards = load32(p + 36)
    h.base_seq = load64(p + 40)
    h.salt = load64(p + 48)
    h.made_us = load64(p + 56)
    h.time_us = load64(p + 64)
    h.number = load64(p + 72)
    segment_head_seed(hardware, h)
    return 0


cdef int segment_head_read(bint hardware, const uint8_t* p, SegmentHead* h) noexcept nogil:
    cdef const uint8_t* copy = p + SEGMENT_HEAD_COPY
    if segment_copy_read(hardware, p, h) != 0 and segment_copy_read(hardware, copy, h) != 0:
        return -1
    if not node_read(hardware, p + NODE_AT, h):
        node_read(hardware, copy + NODE_AT, h)
    return 0


# ---- block: checksum of the head, checksum of the body, bytes, count, first, time, commit, span, 0

cdef inline uint32_t place_crc(bint hardware, uint32_t seed, uint64_t at) noexcept nogil:
    return crc_bytes(hardware, seed, <const uint8_t*>&at, 8)


cdef uint32_t block_body_crc(bint hardware, const uint8_t* body, uint32_t n, uint32_t seed, uint64_t at) noexcept nogil:
    return crc_bytes(hardware, place_crc(hardware, seed, at), body, n)


cdef void block_seal(bint hardware, uint8_t* p, uint32_t seed, uint64_t at, const BlockHead* h) noexcept nogil:
    store32(p + 4, block_body_crc(hardware, p + BLOCK_HEAD, h.body_n, seed, at))
    store32(p + 8, h.body_n)
    store32(p + 12, h.count)
    store64(p + 16, h.first_seq)
    store64(p + 24, h.time_us)
    store64(p + 32, h.commit_us)
    store32(p + 40, h.span_us)
    store32(p + 44, 0)
    store32(p, crc_bytes(hardware, place_crc(hardware, seed, at), p + 4, BLOCK_HEAD - 4))


cdef int block_head_read(bint hardware, const uint8_t* p, uint32_t seed, uint64_t at, BlockHead* h) noexcept nogil:
    if load32(p) != crc_bytes(hardware, place_crc(hardware, seed, at), p + 4, BLOCK_HEAD - 4):
        return -1
    h.body_crc = load32(p + 4)
    h.body_n = load32(p + 8)
    h.count = load32(p + 12)
    h.first_seq = load64(p + 16)
    h.time_us = load64(p + 24)
    h.commit_us = load64(p + 32)
    h.span_us = load32(p + 40)
    if h.body_n > BLOCK_BODY_MAX or h.body_n % BLOCK_ALIGN or h.count == 0 or h.count > h.body_n // RECORD_BYTES_MIN or h.first_seq >> 62:
        return -1
    return 0


# ---- marks

cdef void mark_write(bint hardware, uint8_t* p, const Marks* m) noexcept nogil:
    cdef uint32_t i
    cdef uint8_t* at = p + MARK_HEAD
    memcpy(p, MARK_MAGIC, 8)
    store32(p + 8, JOURNAL_FORMAT)
    store32(p + 12, m.n)
    memcpy(p + 16, m.stream_id, 16)
    store64(p + 32, m.generation)
    store64(p + 40, m.made_us)
    for i in range(m.n):
        store64(at, m.shards[i].first_seq)
        store64(at + 8, m.shards[i].seq)
        store64(at + 16, m.shards[i].segment)
        store64(at + 24, m.shards[i].offset)
        store64(at + 32, m.shards[i].time_us)
        store64(at + 40, m.shards[i].behind)
        at += MARK_SHARD
    store32(at, crc_bytes(hardware, 0, p, <size_t>(at - p)))


cdef int mark_read(bint hardware, const uint8_t* p, uint64_t n, Marks* m) noexcept nogil:
    cdef uint32_t i, shards
    cdef const uint8_t* at = p + MARK_HEAD
    if n < MARK_HEAD + 4 or memcmp(p, MARK_MAGIC, 8) != 0:
        return -1
    shards = load32(p + 12)
    if shards == 0 or shards > JOURNAL_SHARDS_MAX or mark_bytes(shards) > n:
        return -1
    if load32(p + mark_bytes(shards) - 4) != crc_bytes(hardware, 0, p, mark_bytes(shards) - 4):
        return -1
    m.format = load32(p + 8)
    m.n = shards
    memcpy(m.stream_id, p + 16, 16)
    m.generation = load64(p + 32)
    m.made_us = load64(p + 40)
    for i in range(shards):
        m.shards[i].first_seq = load64(at)
        m.shards[i].seq = load64(at + 8)
        m.shards[i].segment = load64(at + 16)
        m.shards[i].offset = load64(at + 24)
        m.shards[i].time_us = load64(at + 32)
        m.shards[i].behind = load64(at + 40)
        at += MARK_SHARD
        if m.shards[i].seq >> 62 or m.shards[i].first_seq > m.shards[i].seq or m.shards[i].segment >> 62 or m.shards[i].behind >> 62 or m.shards[i].offset >> 62:
            return -1
    return 0


# ---- index entries and consumers

cdef void index_write(bint hardware, uint8_t* p, uint32_t seed, uint64_t number, const IndexEntry* e) noexcept nogil:
    store64(p, e.first_seq)
    store64(p + 8, e.offset)
    store64(p + 16, e.time_us)
    store32(p + 24, 0)
    store32(p + 28, crc_bytes(hardware, place_crc(hardware, seed, number), p, INDEX_ENTRY - 4))


cdef int index_read(bint hardware, const uint8_t* p, uint32_t seed, uint64_t number, IndexEntry* e) noexcept nogil:
    if load32(p + 28) != crc_bytes(hardware, place_crc(hardware, seed, number), p, INDEX_ENTRY - 4):
        return -1
    e.first_seq = load64(p)
    e.offset = load64(p + 8)
    e.time_us = load64(p + 16)
    return 0


cdef void consumer_write(bint hardware, uint8_t* p, const Consumer* c) noexcept nogil:
    cdef uint32_t i, n = consumer_bytes(c.n)
    memcpy(p, CONSUMER_MAGIC, 8)
    store32(p + 8, JOURNAL_FORMAT)
    store32(p + 12, c.n)
    store64(p + 16, c.updated_us)
    for i in range(c.n):
        store64(p + CONSUMER_HEAD + i * 8, c.seqs[i])
    store32(p + n - 4, crc_bytes(hardware, 0, p, n - 4))


cdef int consumer_read(bint hardware, const uint8_t* p, uint64_t n, Consumer* c) noexcept nogil:
    cdef uint32_t i, bytes_
    memset(c, 0, sizeof(Consumer))
    if n < CONSUMER_HEAD + 4 or memcmp(p, CONSUMER_MAGIC, 8) != 0 or load32(p + 12) > JOURNAL_SHARDS_MAX:
        return -1
    bytes_ = consumer_bytes(load32(p + 12))
    if bytes_ > n or load32(p + bytes_ - 4) != crc_bytes(hardware, 0, p, bytes_ - 4):
        return -1
    c.n = load32(p + 12)
    c.updated_us = load64(p + 16)
    for i in range(c.n):
        c.seqs[i] = load64(p + CONSUMER_HEAD + i * 8)
    return 0


cdef uint32_t shard_of_topic(bint hardware, const uint8_t* topic, uint32_t n, uint32_t shards) noexcept nogil:
    return <uint32_t>((<uint64_t>crc_bytes(hardware, 0, topic, n) * shards) >> 32)
