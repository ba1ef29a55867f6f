# Walk through the blocks of one segment file. This module knows no sequence numbers: the caller checks the order.
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from cext.journal.format cimport BlockHead
from cext.store.file cimport FileOps

ctypedef struct JournalWalk:
    const FileOps* f
    bint hardware
    int fd                      # -1 = none
    uint32_t seed
    uint64_t size               # size of the file
    uint64_t at                 # offset of the next search
    uint64_t here               # offset of the block of `head`
    BlockHead head
    const uint8_t* body         # set by journal_walk_body; valid until the next call
    uint8_t* window             # bytes [window_at, window_at + window_n) of the file
    uint64_t window_at
    uint64_t window_n
    uint64_t window_cap

cdef void journal_walk_init(JournalWalk* w, const FileOps* f, bint hardware) noexcept nogil
# Begin a walk at offset `at` of a file. The walk takes over fd.
cdef void journal_walk_begin(JournalWalk* w, int fd, uint32_t seed, uint64_t size, uint64_t at) noexcept nogil
cdef void journal_walk_end(JournalWalk* w) noexcept nogil             # closes the file
cdef void journal_walk_free(JournalWalk* w) noexcept nogil
# Return 1 with the head of the block at w.at, and move w.at behind the block; 0 = there is no block; or -errno.
cdef int journal_walk_head(JournalWalk* w) noexcept nogil
# Search the next block from w.at on; unreadable places are skipped. Return as journal_walk_head does.
cdef int journal_walk_search(JournalWalk* w) noexcept nogil
# Return 1 if the body of the block is there and valid; 0 = damaged; or -errno.
cdef int journal_walk_body(JournalWalk* w) noexcept nogil
