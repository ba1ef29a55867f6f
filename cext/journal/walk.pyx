"""Read the blocks of a segment in order, through a window of the file. A length is trusted only after the checksum of its head
was checked.

Cost: one pread per window (512 KiB, or a larger block). A search checks each aligned place once, with a checksum over 56 bytes.
"""

from libc.errno cimport ENOMEM
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memset

from cext.journal.format cimport BLOCK_ALIGN, BLOCK_HEAD, block_body_crc, block_head_read
from cext.journal.listing cimport is_passing
from cext.store.file cimport FileOps, file_read

cdef enum:
    WALK_WINDOW_BYTES = 512 << 10
    SECTOR = 512                # size of the step over unreadable bytes


cdef void journal_walk_init(JournalWalk* w, const FileOps* f, bint hardware) noexcept nogil:
    memset(w, 0, sizeof(JournalWalk))
    w.f = f
    w.hardware = hardware
    w.fd = -1


cdef void journal_walk_begin(JournalWalk* w, int fd, uint32_t seed, uint64_t size, uint64_t at) noexcept nogil:
    journal_walk_end(w)
    w.fd = fd
    w.seed = seed
    w.size = size
    w.at = (at + BLOCK_ALIGN - 1) // BLOCK_ALIGN * BLOCK_ALIGN


cdef void journal_walk_end(JournalWalk* w) noexcept nogil:
    if w.fd >= 0:
        w.f.close(w.f.ctx, w.fd)
    w.fd = -1
    w.window_n = 0


cdef void journal_walk_free(JournalWalk* w) noexcept nogil:
    journal_walk_end(w)
    free(w.window)
    w.window = NULL
    w.window_cap = 0


cdef const uint8_t* bytes_at(JournalWalk* w, uint64_t at, uint64_t n, int* error) noexcept nogil:
    """Return n bytes of the file. NULL = they are not there (*error 0), or cannot be read."""
    cdef uint64_t want
    cdef uint8_t* more
    cdef int64_t got
    error[0] = 0
    if at < w.window_at or at + n > w.window_at + w.window_n:
        if at > w.size or n > w.size - at:
            return NULL
        want = min(max(n, <uint64_t>WALK_WINDOW_BYTES), w.size - at)
        if want > w.window_cap:
            more = <uint8_t*>realloc(w.window, want)
            if more == NULL:
                error[0] = -ENOMEM
                return NULL
            w.window = more
            w.window_cap = want
        w.window_n = 0
        got = file_read(w.f, w.fd, w.window, want, at)
        if got < 0 and want > n:        # a part of the window that was not requested cannot be read
            got = file_read(w.f, w.fd, w.window, min(want, max(n, <uint64_t>SECTOR)), at)
        if got < 0:
            error[0] = <int>got
            return NULL
        w.window_at = at
        w.window_n = <uint64_t>got
        if <uint64_t>got < n:
            return NULL
    return w.window + (at - w.window_at)


cdef int journal_walk_head(JournalWalk* w) noexcept nogil:
    cdef int error
    cdef const uint8_t* p = bytes_at(w, w.at, BLOCK_HEAD, &error)
    if p == NULL:
        return error
    if block_head_read(w.hardware, p, w.seed, w.at, &w.head) != 0 or w.head.body_n > w.size - w.at - BLOCK_HEAD:
        return 0
    w.here = w.at
    w.at += BLOCK_HEAD + w.head.body_n
    return 1


cdef int journal_walk_search(JournalWalk* w) noexcept nogil:
    cdef int got
    while w.at + BLOCK_HEAD <= w.size:
        got = journal_walk_head(w)
        if got == 1 or is_passing(got):
            return got
        w.at += BLOCK_ALIGN if got == 0 else SECTOR
    return 0


cdef int journal_walk_body(JournalWalk* w) noexcept nogil:
    cdef int error
    cdef const uint8_t* p = bytes_at(w, w.here + BLOCK_HEAD, w.head.body_n, &error)
    if p == NULL:
        return error
    if block_body_crc(w.hardware, p, w.head.body_n, w.seed, w.here) != w.head.body_crc:
        return 0
    w.body = p
    return 1
