# What lies in a segment's file, little-endian:
#
#     header (HEADER_BYTES, two copies of it) | records ... COMMIT | records ... COMMIT | ... | SEGEND | stale bytes
#
# A record: {crc u32, n u32, kind u8, flags u8, check u16} body, padded with zeros to RECORD_ALIGN. Its place in the file follows from its
# lsn: HEADER_BYTES + (lsn - base_lsn). Both checks are salted with the store, the segment's number and the lsn, so that neither stale bytes
# nor what a client puts into a payload look like a record. SEGEND takes no lsn. A batch lies within one segment. docs/adr/0007.
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy
from cext.base.words cimport load32, load64, store32
from cext.store.crc cimport crc_head, crc_record

cdef enum:
    FORMAT = 1
    HEADER_BYTES = 4096
    HEADER_COPY = 2048          # where the second copy lies: another sector
    HEADER_USED = 88            # bytes of a copy
    RECORD_HEAD = 12
    RECORD_ALIGN = 4
    RECORD_BODY_MAX = 0x1FFFFFFF
    COMMIT_BODY = 16            # {lsn of the batch u64, synced u64: what was known to be on the disk when it was written}
    SEGEND_BODY = 8             # {end u64: lsn behind it}
    COMMIT_BYTES = RECORD_HEAD + COMMIT_BODY
    SEGEND_BYTES = RECORD_HEAD + SEGEND_BODY

cdef enum:
    KIND_COMMIT = 255           # 1 .. STORE_KIND_MAX are the owner's
    KIND_SEGEND = 254
    STORE_KIND_MAX = 239

ctypedef struct Header:
    uint32_t format
    uint8_t store_id[16]
    uint64_t number             # of the segment; rises, no two are the same
    uint64_t base_lsn
    uint64_t tail_lsn           # where the log begins; told to the newest header before anything is dropped
    uint64_t capacity           # bytes of the file
    uint32_t seed               # for the checks of its records; not stored

cdef inline uint64_t record_bytes(uint32_t body_n) noexcept nogil:
    return RECORD_HEAD + ((<uint64_t>body_n + (RECORD_ALIGN - 1)) & ~<uint64_t>(RECORD_ALIGN - 1))

cdef inline uint64_t record_head_word(const uint8_t* p) noexcept nogil:     # n, kind, flags
    return (load64(p + 4) << 16) >> 16

cdef inline void record_begin(uint8_t* p, uint8_t kind, uint8_t flags, uint32_t n) noexcept nogil:
    store32(p, 0)
    store32(p + 4, n)
    p[8] = kind
    p[9] = flags
    p[10] = p[11] = 0

cdef inline void record_seal(bint hardware, uint8_t* p, uint32_t seed, uint64_t lsn) noexcept nogil:
    cdef uint16_t check
    store32(p, crc_record(hardware, seed, lsn, record_head_word(p), p + RECORD_HEAD, load32(p + 4), &check))
    memcpy(p + 10, &check, 2)

cdef enum:
    RECORD_NONE = -1
    RECORD_DAMAGED = -2

# Is a whole record at p, of which `most` bytes are there? Its body's length; RECORD_NONE, which is cheap to find out; RECORD_DAMAGED: the head is
# right, the body is not.
cdef inline long record_at(bint hardware, const uint8_t* p, uint64_t most, uint32_t seed, uint64_t lsn) noexcept nogil:
    cdef uint16_t stored, check
    cdef uint64_t head
    cdef uint32_t n
    if most < RECORD_HEAD or p[8] == 0:
        return RECORD_NONE
    memcpy(&stored, p + 10, 2)
    head = record_head_word(p)
    n = <uint32_t>head
    if n > RECORD_BODY_MAX or record_bytes(n) > most or crc_head(hardware, seed, lsn, head) != stored:
        return RECORD_NONE
    if crc_record(hardware, seed, lsn, head, p + RECORD_HEAD, n, &check) != load32(p):
        return RECORD_DAMAGED
    return n

# 0; -1: neither copy at p (HEADER_BYTES) is one; the newer counts
cdef int header_read(bint hardware, const uint8_t* p, Header* h) noexcept nogil
cdef void header_write(bint hardware, uint8_t* p, const Header* h) noexcept nogil
cdef void header_seed(bint hardware, Header* h) noexcept nogil
