from libc.stdint cimport uint8_t, uint64_t

# A fuzz target: it takes the fuzzer's bytes and returns a sum over all decoded bytes.
cdef uint64_t tls_records(const uint8_t* p, size_t n) noexcept nogil
