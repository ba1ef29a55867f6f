# A slab: objects of one size at stable addresses, in blocks of N. Take and give are O(1). Each object has an index
# while it is taken, and a generation that changes when it is given back. The pair (index, generation) is the
# handle, which may be kept over turns.
from libc.stdint cimport uint32_t, uint64_t

ctypedef struct SlabItem:       # head of every object of a slab
    uint32_t index
    uint32_t generation         # odd while the object is taken
    SlabItem* next_free

cdef struct SlabBlock

ctypedef struct Slab:
    uint32_t item_bytes
    uint32_t block_items        # objects per block
    uint32_t idle_max           # largest number of idle objects in blocks that have no used object
    uint32_t generations        # start for new blocks: above every generation that was ever given out
    SlabBlock** blocks          # blocks by number; lowest bit set: no block, the other bits are the index of the next such place
    uint32_t n_blocks           # places in use in `blocks`
    uint32_t cap_blocks
    uint32_t vacant             # the first place without a block, + 1; 0 = none
    uint32_t used
    uint32_t idle
    SlabBlock* open_first       # blocks with an idle object: used blocks first, empty blocks without memory pages last
    SlabBlock* open_last
    SlabBlock* warm             # an empty block that is in no list; NULL = none

# block_items 1 with idle_max 0 means no pool: every object comes from the system's allocator.
cdef void slab_init(Slab* s, uint32_t item_bytes, uint32_t block_items, uint32_t idle_max) noexcept nogil
cdef void slab_fini(Slab* s) noexcept nogil
# Return an object with everything after its SlabItem zeroed, or NULL if there is no memory.
cdef void* slab_take(Slab* s) noexcept nogil
cdef void slab_give(Slab* s, void* item) noexcept nogil
# Return the object at an index, or NULL if there is none or it is idle. To visit all objects, iterate over [0, slab_end()).
cdef void* slab_at(Slab* s, uint32_t index) noexcept nogil
cdef uint64_t slab_bytes(const Slab* s) noexcept nogil


cdef inline uint32_t slab_end(const Slab* s) noexcept nogil:
    return s.n_blocks * s.block_items


# Return the object of a handle, or NULL if it has been given back since.
cdef inline void* slab_get(Slab* s, uint32_t index, uint32_t generation) noexcept nogil:
    cdef SlabItem* item = <SlabItem*>slab_at(s, index)
    return item if item != NULL and item.generation == generation else NULL
