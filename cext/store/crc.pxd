# CRC-32C of bytes, and of a record (its lsn and head first, then its body). Computed by the processor if it has SSE4.2 and
# PCLMUL, otherwise by a table.
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

cdef bint crc_hardware() noexcept nogil
# Continue a checksum from `state` (0 at the beginning). This is the usual CRC-32C: for "123456789" it is 0xE3069283.
cdef uint32_t crc_bytes(bint hardware, uint32_t state, const uint8_t* p, size_t n) noexcept nogil
# Return the checksum of a whole record, and set *check to the checksum of seed, lsn and head alone, so that a reader can trust
# the length in the head before it reads the body.
cdef uint32_t crc_record(bint hardware, uint32_t seed, uint64_t lsn, uint64_t head, const uint8_t* body, size_t n,
                         uint16_t* check) noexcept nogil
cdef uint16_t crc_head(bint hardware, uint32_t seed, uint64_t lsn, uint64_t head) noexcept nogil
