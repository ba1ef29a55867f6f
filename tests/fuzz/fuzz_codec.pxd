from libc.stdint cimport uint8_t, uint64_t

# One fuzz target each: takes the fuzzer's bytes, returns a sum over all that it decoded.
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
