# Keyed hash for values that clients choose (topics, filters, client ids): SipHash-1-3 with a random key per broker. And a keyed hash as a proof.
from libc.stdint cimport uint8_t, uint64_t

ctypedef struct HashKey:
    uint64_t k0
    uint64_t k1

cdef int hash_key_init(HashKey* key) noexcept nogil          # key from the system's random source; -1 = it failed
cdef uint64_t hash_bytes(const HashKey* key, const uint8_t* p, size_t n) noexcept nogil
# SipHash-2-4 with 128 bits of result: a proof that its sender knows the key.
cdef void hash_proof(const HashKey* key, const uint8_t* p, size_t n, uint64_t* proof) noexcept nogil
