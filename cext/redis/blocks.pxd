# Blocks of files in Redis that were read lately. Queued messages of many sessions lie beside each other, so one block serves many
# small reads, and each of them would be a round trip to Redis.
from libc.stdint cimport uint8_t, uint32_t, uint64_t

cdef enum:
    BLOCK_BYTES = 64 << 10
    BLOCKS = 64                 # 4 MiB for each store

ctypedef struct Block:
    uint8_t* p                  # BLOCK_BYTES; NULL = none yet
    uint64_t content
    uint64_t begin              # a multiple of BLOCK_BYTES
    uint32_t n                  # valid bytes; 0 = free
    uint64_t used               # the clock of its last use

ctypedef struct Blocks:
    Block all[BLOCKS]
    uint64_t clock

# Copy bytes of a content from `at` on, up to n and up to the end of the block. Return their number; 0 = they are not here.
cdef uint64_t blocks_copy(Blocks* b, uint64_t content, uint64_t at, uint8_t* p, uint64_t n) noexcept nogil
# Return a block with memory for BLOCK_BYTES, which holds nothing: the one that was not used for the longest time. NULL = no memory.
cdef Block* blocks_take(Blocks* b) noexcept nogil
# Note the n bytes that were read into a block of `blocks_take`.
cdef void blocks_filled(Blocks* b, Block* block, uint64_t content, uint64_t begin, uint32_t n) noexcept nogil
# Forget the bytes of a content from `begin` on: they are changed.
cdef void blocks_forget(Blocks* b, uint64_t content, uint64_t begin) noexcept nogil
cdef void blocks_fini(Blocks* b) noexcept nogil
