"""Blocks of files in Redis that were read lately (blocks.pxd). This module knows numbers of contents and bytes. It does not know Redis.

Invariant: a valid byte equals that of the file as its owner has written it, because the owner forgets what it changes, and no other
process changes anything. Cost: a search compares BLOCKS entries.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy


cdef uint64_t blocks_copy(Blocks* b, uint64_t content, uint64_t at, uint8_t* p, uint64_t n) noexcept nogil:
    cdef uint64_t begin = at - at % <uint64_t>BLOCK_BYTES
    cdef uint64_t skipped = at - begin
    cdef Block* block
    cdef int i
    for i in range(BLOCKS):
        block = &b.all[i]
        if block.content == content and block.begin == begin and block.n > skipped:
            n = min(n, block.n - skipped)
            memcpy(p, block.p + skipped, <size_t>n)
            b.clock += 1
            block.used = b.clock
            return n
    return 0


cdef Block* blocks_take(Blocks* b) noexcept nogil:
    cdef Block* oldest = &b.all[0]
    cdef int i
    for i in range(BLOCKS):
        if b.all[i].used < oldest.used:
            oldest = &b.all[i]
    if oldest.p == NULL:
        oldest.p = <uint8_t*>malloc(BLOCK_BYTES)
    oldest.n = 0
    return oldest if oldest.p != NULL else NULL


cdef void blocks_filled(Blocks* b, Block* block, uint64_t content, uint64_t begin, uint32_t n) noexcept nogil:
    b.clock += 1
    block.content, block.begin, block.n, block.used = content, begin, n, b.clock


cdef void blocks_forget(Blocks* b, uint64_t content, uint64_t begin) noexcept nogil:
    cdef Block* block
    cdef int i
    for i in range(BLOCKS):
        block = &b.all[i]
        if block.content == content and block.begin + block.n > begin:
            block.n = <uint32_t>(begin - block.begin) if begin > block.begin else 0


cdef void blocks_fini(Blocks* b) noexcept nogil:
    cdef int i
    for i in range(BLOCKS):
        free(b.all[i].p)
        b.all[i].p = NULL
        b.all[i].n = 0
