# A histogram of durations as HdrHistogram has them: buckets of equal width within each power of two. This module knows only
# numbers. 128 buckets in each power of two: the middle of a bucket differs from its values by at most 0.4 %.
# Cost: a count of leading zeros and two additions.
from libc.stdint cimport uint32_t, uint64_t

cdef extern from * nogil:
    int __builtin_clzll(unsigned long long)

cdef enum:
    HISTOGRAM_SHIFT = 7
    HISTOGRAM_HALF = 128                # 1 << HISTOGRAM_SHIFT
    HISTOGRAM_BITS = 44                 # longer durations count as 2**44 ns, five hours
    HISTOGRAM_BUCKETS = 4864            # (HISTOGRAM_BITS - HISTOGRAM_SHIFT + 1) * HISTOGRAM_HALF

ctypedef struct Histogram:
    uint64_t count
    uint64_t least_ns                   # least, most and sum are exact
    uint64_t most_ns
    double sum_ns
    uint64_t buckets[4864]              # HISTOGRAM_BUCKETS

cdef inline void histogram_add(Histogram* h, uint64_t ns) noexcept nogil:
    cdef uint32_t shift
    h.sum_ns += <double>ns
    if ns > h.most_ns:
        h.most_ns = ns
    if h.count == 0 or ns < h.least_ns:
        h.least_ns = ns
    h.count += 1
    if ns < HISTOGRAM_HALF:
        h.buckets[ns] += 1
        return
    if ns >> HISTOGRAM_BITS:
        ns = (1ULL << HISTOGRAM_BITS) - 1
    shift = 63 - HISTOGRAM_SHIFT - <uint32_t>__builtin_clzll(ns)       # HALF <= ns >> shift < 2 * HALF
    h.buckets[(shift + 1) * HISTOGRAM_HALF + (ns >> shift) - HISTOGRAM_HALF] += 1

# Return the shortest duration of bucket i, and the number of durations in it (*width).
cdef inline uint64_t histogram_from(uint32_t i, uint64_t* width) noexcept nogil:
    width[0] = 1
    if i < HISTOGRAM_HALF:
        return i
    width[0] = 1ULL << (i // HISTOGRAM_HALF - 1)
    return <uint64_t>(i % HISTOGRAM_HALF + HISTOGRAM_HALF) << (i // HISTOGRAM_HALF - 1)
