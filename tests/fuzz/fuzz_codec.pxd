from libc.stdint cimport uint8_t, uint64_t

# Each is a fuzz target: it takes the fuzzer's bytes and returns a sum over all decoded bytes.
cdef uint64_t frame(const uint8_t* p, size_t n) noexcept nogil
cdef uint64_t utf8(const uint8_t* p, size_t n) noexcept nogil
cdef uint64_t properties(const uint8_t* p, size_t n) noexcept nogil
cdef uint64_t connect(const uint8_t* p, size_t n) noexcept nogil
cdef uint64_t publish(const uint8_t* p, size_t n) noexcept nogil
cdef uint64_t ack(const uint8_t* p, size_t n) noexcept nogil
cdef uint64_t subscribe(const uint8_t* p, size_t n) noexcept nogil
cdef uint64_t unsubscribe(const uint8_t* p, size_t n) noexcept nogil
cdef uint64_t disconnect(const uint8_t* p, size_t n) noexcept nogil
cdef uint64_t auth(const uint8_t* p, size_t n) noexcept nogil
