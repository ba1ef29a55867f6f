from libc.stdint cimport uint8_t, uint64_t

# Each is a fuzz target: it takes the fuzzer's bytes and returns a sum over all decoded bytes.
cdef uint64_t websocket(const uint8_t* p, size_t n) noexcept nogil
cdef uint64_t upgrade(const uint8_t* p, size_t n) noexcept nogil
cdef uint64_t proxy(const uint8_t* p, size_t n) noexcept nogil
cdef uint64_t relay_head(const uint8_t* p, size_t n) noexcept nogil
cdef uint64_t ticket(const uint8_t* p, size_t n) noexcept nogil
