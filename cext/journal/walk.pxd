# Through the blocks of one segment file. Knows no sequence: what follows what is its caller's.
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from cext.journal.format cimport BlockHead
from cext.store.file cimport FileOps

ctypedef struct Walk:
    const FileOps* f
    bint hardware
    int fd                      # -1: none
    uint32_t seed
    uint64_t size               # of the file
    uint64_t at                 # where to look next
    uint64_t here               # where `head` is
    BlockHead head
    const uint8_t* body         # after walk_body; until the next call
    uint8_t* window             # [window_at, window_at + window_n) of the file
    uint64_t window_at
    uint64_t window_n
    uint64_t window_cap

cdef void walk_init(Walk* w, const FileOps* f, bint hardware) noexcept nogil
cdef void walk_begin(Walk* w, int fd, uint32_t seed, uint64_t size, uint64_t at) noexcept nogil       # fd is the walk's from now on
cdef void walk_end(Walk* w) noexcept nogil             # closes the file
cdef void walk_free(Walk* w) noexcept nogil
# 1: a block's head is at w.at, which goes on behind the block; 0: none is there; -errno
cdef int walk_head(Walk* w) noexcept nogil
# The same from w.at on, wherever the next one is; what cannot be read is passed over
cdef int walk_search(Walk* w) noexcept nogil
# 1: the block's body is there and right; 0: damaged; -errno
cdef int walk_body(Walk* w) noexcept nogil
