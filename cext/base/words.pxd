# Numbers as they are in files: in the machine's byte order (little-endian on all supported machines), at any address.
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef inline uint32_t load32(const uint8_t* p) noexcept nogil:
    cdef uint32_t v
    memcpy(&v, p, 4)
    return v

cdef inline uint64_t load64(const uint8_t* p) noexcept nogil:
    cdef uint64_t v
    memcpy(&v, p, 8)
    return v

cdef inline void store32(uint8_t* p, uint32_t v) noexcept nogil:
    memcpy(p, &v, 4)

cdef inline void store64(uint8_t* p, uint64_t v) noexcept nogil:
    memcpy(p, &v, 8)
