# Byte buffers in size classes that are powers of two. Freed buffers are kept for the next caller, up to `idle_max_bytes` in
# total, so that a large payload does not cost a system call and page faults each time.
from libc.stdint cimport uint8_t, uint32_t, uint64_t

cdef enum:
    BUFFER_SHIFT_MIN = 11       # 2 KiB, the smallest class
    BUFFER_CLASSES = 12         # 2 KiB .. 4 MiB; larger buffers come from malloc

ctypedef struct Buffers:
    void* idle[12]              # one free list for each of the BUFFER_CLASSES
    uint64_t idle_bytes
    uint64_t idle_max_bytes
    uint64_t used_bytes

cdef void buffers_init(Buffers* b, uint64_t idle_max_bytes) noexcept nogil
cdef void buffers_fini(Buffers* b) noexcept nogil
# Return a buffer of at least n bytes, or NULL if there is no memory. *cap gets the true size; the
# caller passes it to buffer_give.
cdef uint8_t* buffer_take(Buffers* b, size_t n, uint32_t* cap) noexcept nogil
cdef void buffer_give(Buffers* b, void* p, uint32_t cap) noexcept nogil
