# Byte buffers in classes of powers of two, recycled: what is freed is kept for the next taker up to `idle_max_bytes`, so that
# large payloads do not cost a system call and a page fault each.
from libc.stdint cimport uint8_t, uint32_t, uint64_t

cdef enum:
    BUFFER_SHIFT_MIN = 11       # 2 KiB, the smallest class
    BUFFER_CLASSES = 12         # 2 KiB .. 4 MiB; larger ones go to malloc

ctypedef struct Buffers:
    void* idle[12]              # BUFFER_CLASSES
    uint64_t idle_bytes
    uint64_t idle_max_bytes
    uint64_t used_bytes

cdef void buffers_init(Buffers* b, uint64_t idle_max_bytes) noexcept nogil
cdef void buffers_fini(Buffers* b) noexcept nogil
# At least n bytes; *cap gets the true size, which buffer_give wants back. NULL: no memory.
cdef uint8_t* buffer_take(Buffers* b, size_t n, uint32_t* cap) noexcept nogil
cdef void buffer_give(Buffers* b, void* p, uint32_t cap) noexcept nogil
