# Cells: memory for many small objects, in pages of one size class. Unused pages return to the system. See cells.pyx.
from libc.stdint cimport uint64_t

cdef enum:
    CELL_STEP = 16              # unit of sizes, which are rounded up to a multiple of it
    CELL_MAX = 512              # larger objects come from malloc
    CELL_CLASSES = CELL_MAX // CELL_STEP

cdef struct CellChunk
cdef struct CellPage

ctypedef struct Cells:
    CellPage* open[CELL_CLASSES]    # pages of each class that have a used and a free cell
    CellPage* spare[CELL_CLASSES]   # one page per class without a used cell: coming and going objects cost no system call
    CellChunk* chunks           # chunks with a free page
    CellChunk* empty            # one chunk without a used page, for the same reason; NULL = none
    uint64_t used_bytes         # sum of cells and larger objects, in rounded sizes
    uint64_t mapped_bytes       # sum of all chunks

# A Cells of zeroed memory is valid and empty.
# cells_take returns n uncleared bytes, aligned for any type, or NULL if there is no memory.
cdef void* cells_take(Cells* c, size_t n) noexcept nogil
cdef void* cells_take_zeroed(Cells* c, size_t n) noexcept nogil
# n must be the size that the object was taken with.
cdef void cells_give(Cells* c, void* p, size_t n) noexcept nogil
# Return the number of bytes that an object of n bytes adds to used_bytes.
cdef uint64_t cells_bytes(const void* p, size_t n) noexcept nogil
# Return the last chunk to the system. Every object must have been given back before.
cdef void cells_fini(Cells* c) noexcept nogil
