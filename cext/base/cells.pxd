# Cells: memory for many small objects, by size class in pages that are given back. See cells.pyx.
from libc.stdint cimport uint64_t

cdef enum:
    CELL_STEP = 16              # sizes are rounded up to a multiple of it
    CELL_MAX = 512              # larger objects are malloc's
    CELL_CLASSES = CELL_MAX // CELL_STEP

cdef struct CellChunk
cdef struct CellPage

ctypedef struct Cells:
    CellPage* open[CELL_CLASSES]    # pages of each class that have a used and a free cell
    CellPage* spare[CELL_CLASSES]   # one without a used cell: what comes and goes at the edge of a page costs no system call
    CellChunk* chunks               # with a free page
    CellChunk* empty                # one of them without a used page: likewise
    uint64_t used_bytes             # of cells and of larger objects, as rounded
    uint64_t mapped_bytes           # of chunks

# Zeroed memory is a Cells without anything in it.
# n bytes, not cleared, aligned for anything; NULL: no memory.
cdef void* cells_take(Cells* c, size_t n) noexcept nogil
cdef void* cells_take_zeroed(Cells* c, size_t n) noexcept nogil
# n as it was taken.
cdef void cells_give(Cells* c, void* p, size_t n) noexcept nogil
# What an object of n bytes is counted as in used_bytes.
cdef uint64_t cells_bytes(const void* p, size_t n) noexcept nogil
# Gives the last chunk back; every object must have been given back before.
cdef void cells_fini(Cells* c) noexcept nogil
