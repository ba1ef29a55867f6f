# A slab: objects of one size, grown N at a time, at stable addresses; take and give are O(1). Each object has an index for life
# and a generation that changes when it is given back: (index, generation) is the handle that may be kept over turns.
from libc.stdint cimport uint8_t, uint32_t, uint64_t

ctypedef struct SlabItem:       # heads every object of a slab
    uint32_t index
    uint32_t generation         # odd while taken
    SlabItem* next_free

ctypedef struct Slab:
    uint32_t item_bytes
    uint32_t block_items        # objects per block
    uint8_t** blocks
    uint32_t n_blocks
    uint32_t used
    uint32_t idle
    SlabItem* free_head

cdef void slab_init(Slab* s, uint32_t item_bytes, uint32_t block_items) noexcept nogil
cdef void slab_fini(Slab* s) noexcept nogil
# An object with everything after its SlabItem zeroed; NULL: no memory.
cdef void* slab_take(Slab* s) noexcept nogil
cdef void slab_give(Slab* s, void* item) noexcept nogil
# The object at an index, or NULL when there is none or it is idle. Iterate over [0, n_blocks * block_items).
cdef void* slab_at(Slab* s, uint32_t index) noexcept nogil
