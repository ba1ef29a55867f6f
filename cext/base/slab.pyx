# Slab pool for objects of one size that come and go often, such as clients. This module knows memory and nothing else.
#
#   blocks[0] -> [SlabBlock | item | item | ...]      an item's index: number of the block * block_items + place
#   blocks[1] -> vacant (its block was returned)
#
# Blocks with an idle item are in one list, used blocks before empty ones, and an item is taken from the first block of the list.
# So the used items gather in few blocks, and the other blocks drain. One block that has become empty stays as it is, so that
# objects that come and go at a block's edge cost nothing. Further empty blocks stay without their memory pages while there are at
# most idle_max idle items; otherwise they return to the system.
# Invariants:
#   - used + idle is the number of items in all blocks.
#   - A handle of a returned block, or of an item that was given back, never finds another object: generations only rise, also
#     over the return of a block (Slab.generations).
# Cost: take and give are O(1) in any order of calls. A block's memory is touched as far as its items were used,
# plus up to POPULATE_BYTES ahead.
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memset

cdef extern from "<sys/mman.h>" nogil:
    void* mmap(void* at, size_t n, int protection, int flags, int fd, long offset)
    int munmap(void* at, size_t n)
    int madvise(void* at, size_t n, int advice)
    int PROT_READ, PROT_WRITE, MAP_PRIVATE, MAP_ANONYMOUS, MADV_DONTNEED
    void* MAP_FAILED

cdef enum:
    SLAB_MAP_FROM_BYTES = 1 << 17    # size from which a block has its own mapping: malloc would keep freed blocks, or parts of them
    SYSTEM_PAGE_BYTES = 4096
    POPULATE_BYTES = 1 << 16
    MADV_POPULATE_WRITE = 23    # Linux 5.14; older kernels refuse it, which does no harm
    SLAB_HEAD_BYTES = 48        # size of a SlabBlock, rounded up so that items are aligned

cdef struct SlabBlock:
    SlabItem* free
    SlabBlock* next             # neighbour in the list of blocks with an idle item
    SlabBlock* prev
    uint32_t number
    uint32_t used
    uint32_t fresh              # index of the first item that was never used; all later items are unused too
    uint32_t generations        # the highest generation of its items
    uint32_t populated          # bytes from the block's start whose pages are resident


cdef void slab_init(Slab* s, uint32_t item_bytes, uint32_t block_items, uint32_t idle_max) noexcept nogil:
    memset(s, 0, sizeof(Slab))
    s.item_bytes = (item_bytes + 15) & ~<uint32_t>15
    s.block_items = block_items
    s.idle_max = idle_max


cdef inline size_t slab_block_bytes(const Slab* s) noexcept nogil:
    return SLAB_HEAD_BYTES + <size_t>s.block_items * s.item_bytes


cdef uint64_t slab_bytes(const Slab* s) noexcept nogil:
    return <uint64_t>(s.used + s.idle) // s.block_items * slab_block_bytes(s) + <uint64_t>s.cap_blocks * sizeof(void*)


cdef inline SlabBlock* block_at(const Slab* s, uint32_t number) noexcept nogil:
    # NULL means that the place is vacant.
    return s.blocks[number] if not <uintptr_t>s.blocks[number] & 1 else NULL


# ---- blocks ----

cdef SlabBlock* block_alloc(Slab* s) noexcept nogil:
    cdef void* p
    if slab_block_bytes(s) < SLAB_MAP_FROM_BYTES:
        return <SlabBlock*>calloc(1, slab_block_bytes(s))
    p = mmap(NULL, slab_block_bytes(s), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
    return <SlabBlock*>p if p != MAP_FAILED else NULL


cdef void block_free(Slab* s, SlabBlock* block) noexcept nogil:
    if slab_block_bytes(s) < SLAB_MAP_FROM_BYTES:
        free(block)
    else:
        munmap(block, slab_block_bytes(s))


cdef void slab_fini(Slab* s) noexcept nogil:
    cdef uint32_t i
    for i in range(s.n_blocks):
        if block_at(s, i) != NULL:
            block_free(s, s.blocks[i])
    free(s.blocks)
    memset(s, 0, sizeof(Slab))


cdef void open_link(Slab* s, SlabBlock* block, bint first) noexcept nogil:
    block.prev = NULL if first else s.open_last
    block.next = s.open_first if first else NULL
    if block.prev != NULL:
        block.prev.next = block
    else:
        s.open_first = block
    if block.next != NULL:
        block.next.prev = block
    else:
        s.open_last = block


cdef void open_unlink(Slab* s, SlabBlock* block) noexcept nogil:
    if block.prev != NULL:
        block.prev.next = block.next
    else:
        s.open_first = block.next
    if block.next != NULL:
        block.next.prev = block.prev
    else:
        s.open_last = block.prev


cdef SlabBlock* block_new(Slab* s) noexcept nogil:
    cdef SlabBlock* block
    cdef SlabBlock** blocks
    cdef uint32_t cap
    if s.vacant == 0 and s.n_blocks == s.cap_blocks:
        cap = s.cap_blocks * 2 if s.cap_blocks else 8
        if <uint64_t>cap * s.block_items > 0xFFFFFFFFu:
            return NULL
        blocks = <SlabBlock**>realloc(s.blocks, cap * sizeof(SlabBlock*))
        if blocks == NULL:
            return NULL
        s.blocks = blocks
        s.cap_blocks = cap
    block = block_alloc(s)
    if block == NULL:
        return NULL
    if s.vacant:
        block.number = s.vacant - 1
        s.vacant = <uint32_t>(<uintptr_t>s.blocks[block.number] >> 1)
    else:
        block.number = s.n_blocks
        s.n_blocks += 1
    s.blocks[block.number] = block
    block.generations = s.generations
    block.populated = SYSTEM_PAGE_BYTES
    s.idle += s.block_items
    open_link(s, block, True)
    return block


cdef inline void raise_generations(Slab* s, SlabBlock* block) noexcept nogil:
    # Generations wrap around, so compare their distance.
    if <int32_t>(block.generations - s.generations) > 0:
        s.generations = block.generations


cdef void block_return(Slab* s, SlabBlock* block) noexcept nogil:
    raise_generations(s, block)
    s.idle -= s.block_items
    s.blocks[block.number] = <SlabBlock*>((<uintptr_t>s.vacant << 1) | 1)
    s.vacant = block.number + 1
    block_free(s, block)


cdef void block_chill(Slab* s, SlabBlock* block) noexcept nogil:
    # Mark all items as never used. The system takes the pages after the first until they are used again.
    raise_generations(s, block)
    block.free = NULL
    block.fresh = 0
    block.populated = SYSTEM_PAGE_BYTES
    memset(<uint8_t*>block + SLAB_HEAD_BYTES, 0, SYSTEM_PAGE_BYTES - SLAB_HEAD_BYTES)
    madvise(<uint8_t*>block + SYSTEM_PAGE_BYTES, slab_block_bytes(s) - SYSTEM_PAGE_BYTES, MADV_DONTNEED)


cdef void block_empty(Slab* s, SlabBlock* block) noexcept nogil:
    open_unlink(s, block)
    if s.warm == NULL and s.block_items > 1:
        s.warm = block
    elif s.idle > s.idle_max:
        block_return(s, block)
    else:
        if slab_block_bytes(s) >= SLAB_MAP_FROM_BYTES:
            block_chill(s, block)
        open_link(s, block, False)


cdef SlabBlock* block_for_one(Slab* s) noexcept nogil:
    # Prefer the first used block with an idle item, then the warm block, then an empty block without pages, then a new block.
    cdef SlabBlock* block = s.open_first
    if block != NULL and block.used:
        return block
    if s.warm != NULL:
        block = s.warm
        s.warm = NULL
        open_link(s, block, True)
    return block if block != NULL else block_new(s)


cdef inline void populate(Slab* s, SlabBlock* block, uint8_t* end) noexcept nogil:
    # One call for several pages is cheaper than a fault for each page.
    if slab_block_bytes(s) >= SLAB_MAP_FROM_BYTES and end > <uint8_t*>block + block.populated:
        madvise(<uint8_t*>block + block.populated, POPULATE_BYTES, MADV_POPULATE_WRITE)    # harmless beyond the block's end
        block.populated += POPULATE_BYTES


# ---- items ----

cdef inline SlabItem* item_at(const Slab* s, SlabBlock* block, uint32_t i) noexcept nogil:
    return <SlabItem*>(<uint8_t*>block + SLAB_HEAD_BYTES + <size_t>i * s.item_bytes)


cdef void* slab_take(Slab* s) noexcept nogil:
    cdef SlabBlock* block = block_for_one(s)
    cdef SlabItem* item
    if block == NULL:
        return NULL
    item = block.free
    if item != NULL:
        block.free = item.next_free
        item.next_free = NULL
        memset(item + 1, 0, s.item_bytes - sizeof(SlabItem))
    else:
        item = item_at(s, block, block.fresh)
        populate(s, block, <uint8_t*>item + s.item_bytes)
        item.index = block.number * s.block_items + block.fresh
        item.generation = s.generations
        block.fresh += 1
    item.generation += 1
    block.used += 1
    if block.used == s.block_items:
        open_unlink(s, block)
    s.used += 1
    s.idle -= 1
    return item


cdef void slab_give(Slab* s, void* p) noexcept nogil:
    cdef SlabItem* item = <SlabItem*>p
    cdef SlabBlock* block = s.blocks[item.index // s.block_items]
    item.generation += 1
    if <int32_t>(item.generation - block.generations) > 0:
        block.generations = item.generation
    item.next_free = block.free
    block.free = item
    s.used -= 1
    s.idle += 1
    if block.used == s.block_items:
        open_link(s, block, True)
    block.used -= 1
    if block.used == 0:
        block_empty(s, block)


cdef void* slab_at(Slab* s, uint32_t index) noexcept nogil:
    cdef SlabBlock* block
    cdef SlabItem* item
    if index >= slab_end(s):
        return NULL
    block = block_at(s, index // s.block_items)
    if block == NULL or index % s.block_items >= block.fresh:
        return NULL
    item = item_at(s, block, index % s.block_items)
    return item if item.generation & 1 else NULL
