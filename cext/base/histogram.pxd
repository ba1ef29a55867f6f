# A histogram of durations in fixed memory: buckets of equal width, four in each power of two. This module knows only numbers.
# The shortest buckets are 64 ns wide; a duration of 17 s or more counts in the last bucket. `sum_ns` is exact.
# Cost of an addition: a count of leading zeros and three additions.
from libc.stdint cimport uint32_t, uint64_t

cdef extern from * nogil:
    int __builtin_clzll(unsigned long long)

cdef enum:
    HISTOGRAM_UNIT_SHIFT = 6            # a unit is 64 ns
    HISTOGRAM_PARTS = 4                 # buckets in each power of two
    HISTOGRAM_PARTS_SHIFT = 2
    HISTOGRAM_UNITS_BITS = 28           # units below 2**28 have buckets
    HISTOGRAM_BUCKETS = 108             # (HISTOGRAM_UNITS_BITS - HISTOGRAM_PARTS_SHIFT + 1) * HISTOGRAM_PARTS

ctypedef struct Histogram:
    uint64_t count
    uint64_t sum_ns
    uint64_t buckets[108]               # HISTOGRAM_BUCKETS


# Return the bucket of a duration.
cdef inline uint32_t histogram_place(uint64_t ns) noexcept nogil:
    cdef uint64_t units = ns >> HISTOGRAM_UNIT_SHIFT
    cdef uint32_t shift
    if units < HISTOGRAM_PARTS:
        return <uint32_t>units
    if units >> HISTOGRAM_UNITS_BITS:
        return HISTOGRAM_BUCKETS - 1
    shift = 63 - HISTOGRAM_PARTS_SHIFT - <uint32_t>__builtin_clzll(units)      # PARTS <= units >> shift < 2 * PARTS
    return (shift + 1) * HISTOGRAM_PARTS + <uint32_t>(units >> shift) - HISTOGRAM_PARTS


cdef inline void histogram_add(Histogram* h, uint64_t ns) noexcept nogil:
    h.count += 1
    h.sum_ns += ns
    h.buckets[histogram_place(ns)] += 1


# Return the shortest duration that is too long for bucket i; the last bucket has no such limit.
cdef inline uint64_t histogram_until(uint32_t i) noexcept nogil:
    if i < HISTOGRAM_PARTS:
        return <uint64_t>(i + 1) << HISTOGRAM_UNIT_SHIFT
    return <uint64_t>(i % HISTOGRAM_PARTS + HISTOGRAM_PARTS + 1) << (i // HISTOGRAM_PARTS - 1 + HISTOGRAM_UNIT_SHIFT)
