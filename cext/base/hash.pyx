from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcpy
cdef extern from "<sys/random.h>" nogil:
    ssize_t getrandom(void* p, size_t n, unsigned int flags)

cdef int hash_key_init(HashKey* key) noexcept nogil:
    return 0 if getrandom(key, sizeof(HashKey), 0) == sizeof(HashKey) else -1

cdef uint64_t hash_bytes(const HashKey* key, const uint8_t* p, size_t n) noexcept nogil:
    cdef uint64_t h = key.k0
    cdef size_t i
    for i in range(n):
        h = (h ^ p[i]) * 1099511628211ull
    return h ^ (h >> 29)
