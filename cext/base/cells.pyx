# Cells: memory for many small objects (subscriptions, tree nodes, messages).
#
#   chunk: 2 MiB, aligned to its size -- 64 pages of 32 KiB -- cells of one size class
#
# The head of a cell's page is found by masking the cell's address, and so is the chunk's head in its first page: objects carry no
# header. malloc takes 8 bytes more per object, and does not return memory that is freed in the middle of its heap.
#
# Invariants:
#   - All cells of a page have one class. A page is in its class's `open` list exactly while it has used and free cells.
#   - A page without used cells is its class's spare page, or it returns to its chunk and its memory to the system. A chunk that is
#     a huge page returns memory only once half of it is free, because that breaks the huge page up.
#   - A chunk without used pages is the one that `empty` keeps, or it returns to the system. The memory of a chunk's first page
#     stays as long as the chunk.
#
# Cost: O(1) for take and give; at most one partly used page per class while objects are only taken. From HUGE_FROM_BYTES on
# chunks are huge pages: without them a walk through a large tree misses the TLB at every node.
# Under the address sanitizer every object comes from malloc, so that the sanitizer sees each object.
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

cdef extern from *:
    """
    #include <malloc.h>
    #include <sys/mman.h>
    #if defined(__SANITIZE_ADDRESS__)
    #define MOSQ_CELLS_PLAIN 1
    #elif defined(__has_feature)
    #if __has_feature(address_sanitizer)
    #define MOSQ_CELLS_PLAIN 1
    #endif
    #endif
    #ifndef MOSQ_CELLS_PLAIN
    #define MOSQ_CELLS_PLAIN 0
    #endif
    """
    const bint PLAIN "MOSQ_CELLS_PLAIN"
    size_t malloc_usable_size(void* p) nogil
    void* mmap(void* at, size_t n, int protection, int flags, int fd, long offset) nogil
    int munmap(void* at, size_t n) nogil
    int madvise(void* at, size_t n, int advice) nogil
    int PROT_READ, PROT_WRITE, MAP_PRIVATE, MAP_ANONYMOUS, MADV_DONTNEED, MADV_HUGEPAGE, MADV_NOHUGEPAGE
    void* MAP_FAILED
    int __builtin_ctzll(unsigned long long x) nogil
    int __builtin_popcountll(unsigned long long x) nogil

cdef enum:
    CHUNK_BYTES = 1 << 21       # the size of a huge page
    PAGE_BYTES = 1 << 15
    PAGES = CHUNK_BYTES // PAGE_BYTES
    MALLOC_HEADER_BYTES = 8     # glibc's header of an allocation
    HUGE_FROM_BYTES = 64 << 20  # limit of mapped bytes for small pages: huge pages keep unused memory resident
    CELL_MAP_FROM_BYTES = 1 << 18    # size from which an object has its own mapping: malloc would pause to tidy up when it is freed

cdef struct FreeCell:
    FreeCell* next

cdef struct CellPage:           # head of a page, at the page's start; in a chunk's first page after the CellChunk
    CellPage* next              # neighbour in Cells.open
    CellPage* prev
    FreeCell* free
    uint16_t used
    uint16_t cells              # number of cells that fit
    uint16_t fresh              # index of the first cell that was never used; all later cells are unused too
    uint16_t klass

cdef struct CellChunk:
    CellChunk* next             # neighbour in Cells.chunks
    CellChunk* prev
    uint64_t idle               # bit i: page i is free
    uint64_t huge               # 1 = the chunk is a huge page, which the return of a part would break up

cdef enum:
    CELL_HEAD_BYTES = 64        # room for a CellPage or a CellChunk, rounded up so that cells are aligned


cdef inline uint32_t cell_class(size_t n) noexcept nogil:
    return <uint32_t>((n + CELL_STEP - 1) // CELL_STEP - 1) if n else 0


cdef inline CellChunk* chunk_of(const void* p) noexcept nogil:
    return <CellChunk*>(<uintptr_t>p & ~<uintptr_t>(CHUNK_BYTES - 1))


cdef inline uint32_t page_number(const void* p) noexcept nogil:
    return <uint32_t>((<uintptr_t>p & (CHUNK_BYTES - 1)) // PAGE_BYTES)


cdef inline uint8_t* page_start(CellChunk* chunk, uint32_t i) noexcept nogil:
    # The first page begins after the chunk's head.
    return <uint8_t*>chunk + <size_t>i * PAGE_BYTES + (CELL_HEAD_BYTES if i == 0 else 0)


cdef inline size_t mapping_of(size_t n) noexcept nogil:
    return (n + 4095) & ~<size_t>4095


cdef uint64_t cells_bytes(const void* p, size_t n) noexcept nogil:
    if n >= CELL_MAP_FROM_BYTES:
        return mapping_of(n)
    if n > CELL_MAX or PLAIN:
        return malloc_usable_size(<void*>p) + MALLOC_HEADER_BYTES
    return (cell_class(n) + 1) * CELL_STEP


cdef void* map_new(size_t n) noexcept nogil:
    # The memory is zeroed. NULL means that there is no memory.
    cdef void* p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
    return p if p != MAP_FAILED else NULL


# ---- chunks ----

cdef void chunk_link(Cells* c, CellChunk* chunk) noexcept nogil:
    chunk.prev = NULL
    chunk.next = c.chunks
    if c.chunks != NULL:
        c.chunks.prev = chunk
    c.chunks = chunk


cdef void chunk_unlink(Cells* c, CellChunk* chunk) noexcept nogil:
    if chunk.prev != NULL:
        chunk.prev.next = chunk.next
    else:
        c.chunks = chunk.next
    if chunk.next != NULL:
        chunk.next.prev = chunk.prev


cdef CellChunk* chunk_new(Cells* c) noexcept nogil:
    # To get an aligned chunk, map twice as much and unmap the memory around it.
    cdef uint8_t* p = <uint8_t*>map_new(2 * CHUNK_BYTES)
    cdef uint8_t* start
    cdef CellChunk* chunk
    if p == NULL:
        return NULL
    start = <uint8_t*>((<uintptr_t>p + CHUNK_BYTES - 1) & ~<uintptr_t>(CHUNK_BYTES - 1))
    if start != p:
        munmap(p, start - p)
    munmap(start + CHUNK_BYTES, p + CHUNK_BYTES - start)
    chunk = <CellChunk*>start
    # The advice must come before the first access, or the chunk already has small pages.
    madvise(chunk, CHUNK_BYTES, MADV_HUGEPAGE if c.mapped_bytes >= HUGE_FROM_BYTES else MADV_NOHUGEPAGE)
    chunk.huge = c.mapped_bytes >= HUGE_FROM_BYTES
    chunk.idle = ~<uint64_t>0
    c.mapped_bytes += CHUNK_BYTES
    chunk_link(c, chunk)
    return chunk


cdef void chunk_empty(Cells* c, CellChunk* chunk) noexcept nogil:
    # The caller passes a chunk without used pages.
    if c.empty == NULL:
        c.empty = chunk
        return
    chunk_unlink(c, chunk)
    munmap(chunk, CHUNK_BYTES)
    c.mapped_bytes -= CHUNK_BYTES


cdef void chunk_release(CellChunk* chunk, uint64_t pages) noexcept nogil:
    # Return the memory of these free pages to the system, except that of the first page, which contains the chunk's head.
    cdef uint32_t i
    pages &= ~<uint64_t>1
    while pages:
        i = __builtin_ctzll(pages)
        pages &= pages - 1
        madvise(<uint8_t*>chunk + <size_t>i * PAGE_BYTES, PAGE_BYTES, MADV_DONTNEED)


# ---- pages ----

cdef void page_open(Cells* c, CellPage* page) noexcept nogil:
    page.prev = NULL
    page.next = c.open[page.klass]
    if page.next != NULL:
        page.next.prev = page
    c.open[page.klass] = page


cdef CellPage* page_new(Cells* c, uint32_t klass) noexcept nogil:
    cdef CellChunk* chunk = c.chunks if c.chunks != NULL else chunk_new(c)
    cdef CellPage* page
    cdef uint32_t i
    if chunk == NULL:
        return NULL
    i = __builtin_ctzll(chunk.idle)
    chunk.idle &= chunk.idle - 1
    if chunk == c.empty:
        c.empty = NULL
    if chunk.idle == 0:
        chunk_unlink(c, chunk)
    page = <CellPage*>page_start(chunk, i)
    page.free = NULL
    page.used = page.fresh = 0
    page.klass = <uint16_t>klass
    page.cells = <uint16_t>((PAGE_BYTES - (2 if i == 0 else 1) * CELL_HEAD_BYTES) // ((klass + 1) * CELL_STEP))
    return page


cdef void page_close(Cells* c, CellPage* page) noexcept nogil:
    # Take the page out of `open`.
    if page.prev != NULL:
        page.prev.next = page.next
    else:
        c.open[page.klass] = page.next
    if page.next != NULL:
        page.next.prev = page.prev


cdef void page_return(Cells* c, CellPage* page) noexcept nogil:
    # The page must be in no list.
    cdef CellChunk* chunk = chunk_of(page)
    cdef uint64_t bit = <uint64_t>1 << page_number(page)
    if chunk.idle == 0:
        chunk_link(c, chunk)
    chunk.idle |= bit
    if not chunk.huge:
        chunk_release(chunk, bit)
    elif __builtin_popcountll(chunk.idle) >= PAGES // 2:
        chunk.huge = 0
        chunk_release(chunk, chunk.idle)
    if chunk.idle == ~<uint64_t>0:
        chunk_empty(c, chunk)


# ---- cells ----

cdef void* large_take(Cells* c, size_t n) noexcept nogil:
    cdef void* p
    if n >= CELL_MAP_FROM_BYTES:
        p = map_new(mapping_of(n))
        if p != NULL and n >= 2 * CHUNK_BYTES:
            madvise(p, mapping_of(n), MADV_HUGEPAGE)
    else:
        p = malloc(n)
    if p != NULL:
        c.used_bytes += cells_bytes(p, n)
    return p


cdef void large_give(Cells* c, void* p, size_t n) noexcept nogil:
    c.used_bytes -= cells_bytes(p, n)
    if n >= CELL_MAP_FROM_BYTES:
        munmap(p, mapping_of(n))
    else:
        free(p)


cdef void* cells_take_zeroed(Cells* c, size_t n) noexcept nogil:
    cdef void* p = cells_take(c, n)
    if p != NULL and n < CELL_MAP_FROM_BYTES:
        memset(p, 0, n)
    return p


cdef void* cells_take(Cells* c, size_t n) noexcept nogil:
    cdef uint32_t klass
    cdef CellPage* page
    cdef void* p
    if n > CELL_MAX or PLAIN:
        return large_take(c, n)
    klass = cell_class(n)
    page = c.open[klass]
    if page == NULL:
        page = c.spare[klass]
        c.spare[klass] = NULL
        if page == NULL:
            page = page_new(c, klass)
            if page == NULL:
                return NULL
        page_open(c, page)
    if page.free != NULL:
        p = page.free
        page.free = page.free.next
    else:
        p = <uint8_t*>page + CELL_HEAD_BYTES + <size_t>page.fresh * (klass + 1) * CELL_STEP
        page.fresh += 1
    page.used += 1
    if page.used == page.cells:
        page_close(c, page)
    c.used_bytes += (klass + 1) * CELL_STEP
    return p


cdef void cells_give(Cells* c, void* p, size_t n) noexcept nogil:
    cdef CellPage* page
    if n > CELL_MAX or PLAIN:
        large_give(c, p, n)
        return
    page = <CellPage*>page_start(chunk_of(p), page_number(p))
    c.used_bytes -= (page.klass + 1) * CELL_STEP
    (<FreeCell*>p).next = page.free
    page.free = <FreeCell*>p
    if page.used == page.cells:
        page_open(c, page)
    page.used -= 1
    if page.used == 0:
        page_close(c, page)
        if c.spare[page.klass] != NULL:     # the page emptied last stays; the older one returns, so that its chunk can drain
            page_return(c, c.spare[page.klass])
        c.spare[page.klass] = page


cdef void cells_fini(Cells* c) noexcept nogil:
    # If a cell is still in use, its chunk stays mapped: a leak is better than a dangling pointer.
    cdef int klass
    for klass in range(CELL_CLASSES):
        if c.spare[klass] != NULL:
            page_return(c, c.spare[klass])
    if c.empty != NULL:
        munmap(c.empty, CHUNK_BYTES)
    memset(c, 0, sizeof(Cells))
