# Memory of one index or tree, counted: what malloc really took (its header included), and a fuse for tests that let the
# n-th allocation fail.
from libc.stdint cimport uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc

cdef extern from "<malloc.h>" nogil:
    size_t malloc_usable_size(void* p)

cdef struct Account:
    uint64_t bytes
    uint64_t fuse               # 0: off; 1: allocations fail; more: counts down to 1

cdef enum:
    HEADER_BYTES = 8            # of an allocation, in glibc


cdef inline uint64_t block_bytes(void* p) noexcept nogil:
    return malloc_usable_size(p) + HEADER_BYTES


cdef inline bint blown(Account* a) noexcept nogil:
    if a.fuse == 0:
        return False
    if a.fuse == 1:
        return True
    a.fuse -= 1
    return False


cdef inline void* take(Account* a, size_t n) noexcept nogil:
    cdef void* p = NULL if blown(a) else malloc(n)
    if p != NULL:
        a.bytes += block_bytes(p)
    return p


cdef inline void* take_zeroed(Account* a, size_t n, size_t size) noexcept nogil:
    cdef void* p = NULL if blown(a) else calloc(n, size)
    if p != NULL:
        a.bytes += block_bytes(p)
    return p


cdef inline void* resize(Account* a, void* old, size_t n) noexcept nogil:
    # NULL: no memory, and `old` is as it was.
    cdef uint64_t before = block_bytes(old)
    cdef void* p = NULL if blown(a) else realloc(old, n)
    if p != NULL:
        a.bytes = a.bytes - before + block_bytes(p)
    return p


cdef inline void give(Account* a, void* p) noexcept nogil:
    a.bytes -= block_bytes(p)
    free(p)
