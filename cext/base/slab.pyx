"""Slab pool. Knows memory, nothing else. Work B adds the return of idle blocks to the system behind the same door."""

from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memset


cdef void slab_init(Slab* s, uint32_t item_bytes, uint32_t block_items) noexcept nogil:
    memset(s, 0, sizeof(Slab))
    s.item_bytes = (item_bytes + 15) & ~<uint32_t>15
    s.block_items = block_items


cdef void slab_fini(Slab* s) noexcept nogil:
    cdef uint32_t i
    for i in range(s.n_blocks):
        free(s.blocks[i])
    free(s.blocks)
    memset(s, 0, sizeof(Slab))


cdef int grow(Slab* s) noexcept nogil:
    cdef uint8_t** blocks = <uint8_t**>realloc(s.blocks, (s.n_blocks + 1) * sizeof(uint8_t*))
    if blocks == NULL:
        return -1
    s.blocks = blocks
    cdef uint8_t* block = <uint8_t*>calloc(s.block_items, s.item_bytes)
    if block == NULL:
        return -1
    blocks[s.n_blocks] = block
    # pushed in reverse, so that objects are taken in the order of their addresses
    cdef uint32_t i = s.block_items
    cdef SlabItem* item
    while i > 0:
        i -= 1
        item = <SlabItem*>(block + <size_t>i * s.item_bytes)
        item.index = s.n_blocks * s.block_items + i
        item.next_free = s.free_head
        s.free_head = item
    s.n_blocks += 1
    s.idle += s.block_items
    return 0


cdef void* slab_take(Slab* s) noexcept nogil:
    if s.free_head == NULL and grow(s) != 0:
        return NULL
    cdef SlabItem* item = s.free_head
    s.free_head = item.next_free
    item.next_free = NULL
    item.generation += 1
    memset(<uint8_t*>item + sizeof(SlabItem), 0, s.item_bytes - sizeof(SlabItem))
    s.used += 1
    s.idle -= 1
    return item


cdef void slab_give(Slab* s, void* p) noexcept nogil:
    cdef SlabItem* item = <SlabItem*>p
    item.generation += 1
    item.next_free = s.free_head
    s.free_head = item
    s.used -= 1
    s.idle += 1


cdef void* slab_at(Slab* s, uint32_t index) noexcept nogil:
    if index >= s.n_blocks * s.block_items:
        return NULL
    cdef SlabItem* item = <SlabItem*>(s.blocks[index // s.block_items]
                                      + <size_t>(index % s.block_items) * s.item_bytes)
    return item if item.generation & 1 else NULL
