# A slab: objects of one size at stable addresses, in blocks of N; take and give are O(1). Each object has an index while it is
# taken and a generation that changes when it is given back: (index, generation) is the handle that may be kept over turns.
from libc.stdint cimport uint32_t, uint64_t

ctypedef struct SlabItem:       # heads every object of a slab
    uint32_t index
    uint32_t generation         # odd while taken
    SlabItem* next_free

cdef struct SlabBlock

ctypedef struct Slab:
    uint32_t item_bytes
    uint32_t block_items        # objects per block
    uint32_t idle_max           # idle objects that may be kept in blocks without any in use
    uint32_t generations        # those of new blocks begin above any that was ever given out
    SlabBlock** blocks          # by number; with the lowest bit set: none, and the number of the next such place
    uint32_t n_blocks           # places in use in `blocks`
    uint32_t cap_blocks
    uint32_t vacant             # the first place without a block, + 1; 0: none
    uint32_t used
    uint32_t idle
    SlabBlock* open_first       # blocks with an idle object: those in use first, empty ones without their pages last
    SlabBlock* open_last
    SlabBlock* warm             # an empty block, in no list; NULL: none

# block_items 1 and idle_max 0: no pool, every object is malloc's.
cdef void slab_init(Slab* s, uint32_t item_bytes, uint32_t block_items, uint32_t idle_max) noexcept nogil
cdef void slab_fini(Slab* s) noexcept nogil
# An object with everything after its SlabItem zeroed; NULL: no memory.
cdef void* slab_take(Slab* s) noexcept nogil
cdef void slab_give(Slab* s, void* item) noexcept nogil
# The object at an index, or NULL when there is none or it is idle. Iterate over [0, slab_end()).
cdef void* slab_at(Slab* s, uint32_t index) noexcept nogil
cdef uint64_t slab_bytes(const Slab* s) noexcept nogil


cdef inline uint32_t slab_end(const Slab* s) noexcept nogil:
    return s.n_blocks * s.block_items


# The object of a handle, or NULL when it has been given back since.
cdef inline void* slab_get(Slab* s, uint32_t index, uint32_t generation) noexcept nogil:
    cdef SlabItem* item = <SlabItem*>slab_at(s, index)
    return item if item != NULL and item.generation == generation else NULL
