# The exact accounting of one stream. This module knows numbers. It does not know what they count, or which client sent them.
# Invariant: gaps are ascending, do not touch, and none is empty. A number below `next` in no gap has arrived before.
# Cost: for a stream in order one comparison in the caller. A late number is a binary search, and a memmove if it splits a gap or
# closes one that is not the first. Memory: eight bytes for each gap, at most one gap for each number that arrived.
from libc.stdint cimport uint32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memmove

cdef enum:
    GAPS_MIN = 8


cdef bint gap_insert(Stream* s, uint32_t at, uint32_t first, uint32_t end) noexcept nogil:
    cdef Gap* grown
    cdef uint32_t cap
    if s.n == s.cap:
        if s.at > s.n // 2:             # room in front, from closed gaps
            memmove(s.gaps, s.gaps + s.at, (s.n - s.at) * sizeof(Gap))
            s.n -= s.at
            at -= s.at
            s.at = 0
        else:
            cap = s.cap * 2 if s.cap else GAPS_MIN
            grown = <Gap*>realloc(s.gaps, cap * sizeof(Gap))
            if grown == NULL:
                return False
            s.gaps = grown
            s.cap = cap
    memmove(s.gaps + at + 1, s.gaps + at, (s.n - at) * sizeof(Gap))
    s.gaps[at].first = first
    s.gaps[at].end = end
    s.n += 1
    return True


cdef void gap_remove(Stream* s, uint32_t at) noexcept nogil:
    if at == s.at:
        s.at += 1
    else:
        memmove(s.gaps + at, s.gaps + at + 1, (s.n - at - 1) * sizeof(Gap))
        s.n -= 1
    if s.at == s.n:
        s.at = 0
        s.n = 0


cdef int stream_take_other(Stream* s, uint32_t number) noexcept nogil:
    cdef uint32_t low = s.at, high = s.n, middle, end
    if number >= s.next:
        if not gap_insert(s, s.n, s.next, number):
            return STREAM_NO_MEMORY
        s.next = number + 1
        return STREAM_AHEAD
    while low < high:                   # search the first gap that ends after the number
        middle = low + (high - low) // 2
        if s.gaps[middle].end <= number:
            low = middle + 1
        else:
            high = middle
    if low == s.n or number < s.gaps[low].first:
        return STREAM_TWICE
    end = s.gaps[low].end
    if number == s.gaps[low].first:
        s.gaps[low].first += 1
        if s.gaps[low].first == end:
            gap_remove(s, low)
    elif number + 1 == end:
        s.gaps[low].end -= 1
    else:
        if not gap_insert(s, low + 1, number + 1, end):
            return STREAM_NO_MEMORY
        # the gap may have moved to the front of the array
        low = gap_before(s, number + 1)
        s.gaps[low].end = number
    return STREAM_LATE


cdef uint32_t gap_before(Stream* s, uint32_t first) noexcept nogil:
    """Return the gap before the one that begins at `first`."""
    cdef uint32_t low = s.at, high = s.n, middle
    while low < high:
        middle = low + (high - low) // 2
        if s.gaps[middle].first < first:
            low = middle + 1
        else:
            high = middle
    return low - 1


cdef void stream_fini(Stream* s) noexcept nogil:
    free(s.gaps)
    s.gaps = NULL
    s.at = s.n = s.cap = 0
