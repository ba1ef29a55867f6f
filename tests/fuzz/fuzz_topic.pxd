from libc.stdint cimport uint8_t, uint64_t

cdef uint64_t name(const uint8_t* p, size_t n) noexcept nogil
cdef uint64_t filters(const uint8_t* p, size_t n) noexcept nogil
