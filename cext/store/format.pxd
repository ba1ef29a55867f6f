# The content of a segment file, little-endian:
#
#     header (HEADER_BYTES, two copies of it) | records ... COMMIT | records ... COMMIT | ... | SEGEND | stale bytes
#
# A record: {crc u32, n u32, kind u8, flags u8, check u16} body, padded with zeros to STORE_RECORD_ALIGN. Its offset in the file
# follows from its lsn: HEADER_BYTES + (lsn - base_lsn). Both checksums are salted with the store id, the segment number and the
# lsn, so that neither stale bytes nor a payload chosen by a client can look like a record. SEGEND takes no lsn. A batch lies
# within one segment. See docs/adr/0007.
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy
from cext.base.words cimport load32, load64, store32
from cext.store.crc cimport crc_head, crc_record

cdef enum:
    FORMAT = 1
    HEADER_BYTES = 4096
    HEADER_COPY = 2048          # offset of the second copy, in another sector
    HEADER_USED = 88            # bytes of one copy
    STORE_RECORD_HEAD = 12
    STORE_RECORD_ALIGN = 4
    RECORD_BODY_MAX = 0x1FFFFFFF
    COMMIT_BODY = 16            # {lsn of the batch u64, synced u64: lsn known to be on the disk at the time of writing}
    SEGEND_BODY = 8             # {end u64: lsn after the segment}
    COMMIT_BYTES = STORE_RECORD_HEAD + COMMIT_BODY
    SEGEND_BYTES = STORE_RECORD_HEAD + SEGEND_BODY

cdef enum:
    KIND_COMMIT = 255           # kinds 1 .. STORE_KIND_MAX belong to the owner
    KIND_SEGEND = 254
    STORE_KIND_MAX = 239

ctypedef struct Header:
    uint32_t format
    uint8_t store_id[16]
    uint64_t number             # number of the segment; rises and is never reused
    uint64_t base_lsn
    uint64_t tail_lsn           # beginning of the log; written to the newest header before a segment is dropped
    uint64_t capacity           # size of the file in bytes
    uint8_t sync_failed         # a sync of this file failed: the disk may not have its content
    uint32_t seed               # seed of the checksums of the records; not stored

cdef inline uint64_t record_bytes(uint32_t body_n) noexcept nogil:
    return STORE_RECORD_HEAD + ((<uint64_t>body_n + (STORE_RECORD_ALIGN - 1)) & ~<uint64_t>(STORE_RECORD_ALIGN - 1))

cdef inline uint64_t record_head_word(const uint8_t* p) noexcept nogil:     # n, kind and flags
    return (load64(p + 4) << 16) >> 16

cdef inline void record_begin(uint8_t* p, uint8_t kind, uint8_t flags, uint32_t n) noexcept nogil:
    store32(p, 0)
    store32(p + 4, n)
    p[8] = kind
    p[9] = flags
    p[10] = p[11] = 0

cdef inline void record_seal(bint hardware, uint8_t* p, uint32_t seed, uint64_t lsn) noexcept nogil:
    cdef uint16_t check
    store32(p, crc_record(hardware, seed, lsn, record_head_word(p), p + STORE_RECORD_HEAD, load32(p + 4), &check))
    memcpy(p + 10, &check, 2)

cdef enum:
    RECORD_NONE = -1
    RECORD_DAMAGED = -2

# Check for a whole record at p, where `most` bytes are available. Return the length of its body; RECORD_NONE if there is no
# record, at a low cost; RECORD_DAMAGED if the head is valid and the body is not.
cdef inline long log_record_at(bint hardware, const uint8_t* p, uint64_t most, uint32_t seed, uint64_t lsn) noexcept nogil:
    cdef uint16_t stored, check
    cdef uint64_t head
    cdef uint32_t n
    if most < STORE_RECORD_HEAD or p[8] == 0:
        return RECORD_NONE
    memcpy(&stored, p + 10, 2)
    head = record_head_word(p)
    n = <uint32_t>head
    if n > RECORD_BODY_MAX or record_bytes(n) > most or crc_head(hardware, seed, lsn, head) != stored:
        return RECORD_NONE
    if crc_record(hardware, seed, lsn, head, p + STORE_RECORD_HEAD, n, &check) != load32(p):
        return RECORD_DAMAGED
    return n

# Read the newer of the two copies at p (HEADER_BYTES). Return 0, or -1 if neither copy is valid.
cdef int header_read(bint hardware, const uint8_t* p, Header* h) noexcept nogil
cdef void header_write(bint hardware, uint8_t* p, const Header* h) noexcept nogil
cdef void header_seed(bint hardware, Header* h) noexcept nogil
