from libc.stdint cimport uint8_t, uint64_t

# One fuzz target each: takes the fuzzer's bytes, returns a sum over all that it decoded.
cdef uint64_t websocket(const uint8_t* p, size_t n) noexcept nogil
cdef uint64_t upgrade(const uint8_t* p, size_t n) noexcept nogil
cdef uint64_t proxy(const uint8_t* p, size_t n) noexcept nogil
