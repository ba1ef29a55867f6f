# Keyed hashing of what clients choose (topics, filters, client ids): SipHash-1-3 with a random key per broker.
from libc.stdint cimport uint8_t, uint64_t

ctypedef struct HashKey:
    uint64_t k0
    uint64_t k1

cdef int hash_key_init(HashKey* key) noexcept nogil          # from the system's randomness; -1 when there is none
cdef uint64_t hash_bytes(const HashKey* key, const uint8_t* p, size_t n) noexcept nogil
