from libc.stdint cimport uint8_t, uint64_t

# A fuzz target: takes the fuzzer's bytes, returns a sum over all that it decoded.
cdef uint64_t tls_records(const uint8_t* p, size_t n) noexcept nogil
