from libc.stdint cimport uint8_t, uint64_t

cdef uint64_t record(const uint8_t* p, size_t n) noexcept nogil
