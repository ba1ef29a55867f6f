# Memory of one index or tree: cells with a count of bytes, and a fuse with which tests make the n-th allocation fail.
from libc.stdint cimport uint64_t
from cext.base.cells cimport Cells, cells_give, cells_take, cells_take_zeroed

cdef struct MemoryAccount:
    Cells cells                 # .used_bytes: sum of all allocations
    uint64_t fuse               # 0 = off; 1 = allocations fail; a larger value counts down to 1


cdef inline bint blown(MemoryAccount* a) noexcept nogil:
    if a.fuse == 0:
        return False
    if a.fuse == 1:
        return True
    a.fuse -= 1
    return False


cdef inline void* memory_take(MemoryAccount* a, size_t n) noexcept nogil:
    return NULL if blown(a) else cells_take(&a.cells, n)


cdef inline void* take_zeroed(MemoryAccount* a, size_t n) noexcept nogil:
    return NULL if blown(a) else cells_take_zeroed(&a.cells, n)


# n must be the size that the object was taken with.
cdef inline void memory_give(MemoryAccount* a, void* p, size_t n) noexcept nogil:
    cells_give(&a.cells, p, n)
