"""Recycle byte buffers. This module knows sizes, not contents. idle_max_bytes bounds the idle memory; take and give are O(1)."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

cdef extern from * nogil:
    int __builtin_clzll(unsigned long long)


cdef inline int buffer_class(size_t n) noexcept nogil:
    if n <= <size_t>1 << BUFFER_SHIFT_MIN:
        return 0
    return 64 - __builtin_clzll(n - 1) - BUFFER_SHIFT_MIN


cdef void buffers_init(Buffers* b, uint64_t idle_max_bytes) noexcept nogil:
    memset(b, 0, sizeof(Buffers))
    b.idle_max_bytes = idle_max_bytes


cdef void buffers_fini(Buffers* b) noexcept nogil:
    cdef int k
    cdef void* p
    for k in range(BUFFER_CLASSES):
        while b.idle[k] != NULL:
            p = b.idle[k]
            b.idle[k] = (<void**>p)[0]
            free(p)
    b.idle_bytes = 0


cdef uint8_t* buffer_take(Buffers* b, size_t n, uint32_t* cap) noexcept nogil:
    cdef int k = buffer_class(n)
    cdef uint8_t* p
    if n > 0xFFFFFFFFu:
        return NULL
    if k >= BUFFER_CLASSES:
        cap[0] = <uint32_t>n
        p = <uint8_t*>malloc(n)
    else:
        cap[0] = <uint32_t>1 << (k + BUFFER_SHIFT_MIN)
        if b.idle[k] != NULL:
            p = <uint8_t*>b.idle[k]
            b.idle[k] = (<void**>p)[0]
            b.idle_bytes -= cap[0]
        else:
            p = <uint8_t*>malloc(cap[0])
    if p != NULL:
        b.used_bytes += cap[0]
    return p


cdef void buffer_give(Buffers* b, void* p, uint32_t cap) noexcept nogil:
    cdef int k = buffer_class(cap)
    b.used_bytes -= cap
    if k >= BUFFER_CLASSES or b.idle_bytes + cap > b.idle_max_bytes:
        free(p)
        return
    (<void**>p)[0] = b.idle[k]
    b.idle[k] = p
    b.idle_bytes += cap
