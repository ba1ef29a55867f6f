# Levels of topics as edges of a tree that lies in one hash table: what acl.pyx and roles.pyx have in common.
# What is hashed are the operator's rules, so the hash needs no key: a client chooses what is looked up, not what lies there.
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memchr, memcpy

from cext.base.view cimport View


cdef inline uint64_t mixed(uint64_t h, uint64_t word) noexcept nogil:
    h = (h ^ word) * <uint64_t>0x9E3779B97F4A7C15
    return h ^ (h >> 29)


cdef inline uint32_t edge_hash(uint32_t path, const uint8_t* p, uint32_t n) noexcept nogil:
    """`path`: of the node that the edge begins at."""
    cdef uint64_t h = mixed(path, n)
    cdef uint64_t word = 0
    cdef uint32_t half = 0
    if n >= 8:
        while n > 8:
            memcpy(&word, p, 8)
            h = mixed(h, word)
            p += 8
            n -= 8
        memcpy(&word, p + n - 8, 8)      # overlaps what was read before, or is all there is
    elif n >= 4:
        memcpy(&half, p + n - 4, 4)
        word = <uint64_t>half << 32
        memcpy(&half, p, 4)
        word |= half
    elif n:
        word = p[0] | <uint64_t>p[n >> 1] << 8 | <uint64_t>p[n - 1] << 16
    h = mixed(h, word)
    return <uint32_t>(h >> 32)


cdef inline uint32_t sign_hash(uint32_t path, uint8_t sign) noexcept nogil:
    return <uint32_t>(mixed(path, <uint64_t>sign << 32) >> 32)


cdef inline uint32_t level_end(View v, uint32_t at) noexcept nogil:
    cdef const uint8_t* slash = <const uint8_t*>memchr(v.p + at, c'/', v.n - at)
    return v.n if slash == NULL else <uint32_t>(slash - v.p)
