# CRC-32C: of bytes, and of a record (its place and head first, then its body). By the processor (SSE4.2, PCLMUL) where it can, else by a table.
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

cdef bint crc_hardware() noexcept nogil
# Goes on from `state` (begin with 0). The usual CRC-32C: of "123456789" it is 0xE3069283.
cdef uint32_t crc_bytes(bint hardware, uint32_t state, const uint8_t* p, size_t n) noexcept nogil
# A record's two checks: *check of seed, lsn and head alone, so that a length is believed before the body is read; then of all.
cdef uint32_t crc_record(bint hardware, uint32_t seed, uint64_t lsn, uint64_t head, const uint8_t* body, size_t n,
                         uint16_t* check) noexcept nogil
cdef uint16_t crc_head(bint hardware, uint32_t seed, uint64_t lsn, uint64_t head) noexcept nogil
