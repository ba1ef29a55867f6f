from libc.stdint cimport uint8_t, uint64_t

cdef uint64_t journal_blocks(const uint8_t* p, size_t n) noexcept nogil
cdef uint64_t journal_raw(const uint8_t* p, size_t n) noexcept nogil
