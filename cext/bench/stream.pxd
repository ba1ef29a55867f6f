# One stream of numbered messages, as its receiver sees it: the numbers that arrived, are missing, or arrived twice.
from libc.stdint cimport uint32_t

cdef enum:
    STREAM_NEXT = 0             # the expected number
    STREAM_AHEAD = 1            # numbers before it are missing
    STREAM_LATE = 2             # one of the missing numbers
    STREAM_TWICE = 3
    STREAM_NO_MEMORY = 4

ctypedef struct Gap:
    uint32_t first              # first missing number
    uint32_t end                # first number after the gap

ctypedef struct Stream:
    uint32_t next               # number after the highest one that arrived
    uint32_t at                 # gaps[at] .. gaps[n - 1] are missing below `next`, in ascending order
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
