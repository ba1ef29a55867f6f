# One stream of numbered messages, as its receiver sees it: which numbers came, which are missing, which came twice.
from libc.stdint cimport uint32_t

cdef enum:
    STREAM_NEXT = 0             # the number that was due
    STREAM_AHEAD = 1            # numbers before it are missing as yet
    STREAM_LATE = 2             # one of those that were missing
    STREAM_TWICE = 3
    STREAM_NO_MEMORY = 4

ctypedef struct Gap:
    uint32_t first              # missing: from this one
    uint32_t end                # to before this one

ctypedef struct Stream:
    uint32_t next               # after the highest number that came
    uint32_t at                 # gaps[at] .. gaps[n - 1], ascending, are what is missing below `next`
    uint32_t n
    uint32_t cap
    Gap* gaps

cdef int stream_take_other(Stream* s, uint32_t number) noexcept nogil

cdef inline int stream_take(Stream* s, uint32_t number) noexcept nogil:
    if number == s.next:
        s.next = number + 1
        return STREAM_NEXT
    return stream_take_other(s, number)

cdef void stream_fini(Stream* s) noexcept nogil
