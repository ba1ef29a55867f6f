# Test API of the bench room: the histogram and the accounting alone.
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memset

from cext.bench.histogram cimport HISTOGRAM_BUCKETS, Histogram, histogram_add, histogram_from
from cext.bench.stream cimport Stream, stream_fini, stream_take


def histogram_of(durations_ns):
    """Return a histogram of the durations, in the form of Generator.figures()."""
    cdef Histogram h
    cdef uint32_t i
    cdef uint64_t width, first
    memset(&h, 0, sizeof(h))
    for ns in durations_ns:
        histogram_add(&h, ns)
    buckets = []
    for i in range(HISTOGRAM_BUCKETS):
        if h.buckets[i]:
            first = histogram_from(i, &width)
            buckets.append((first, width, h.buckets[i]))
    return {"count": h.count, "least_ns": h.least_ns, "most_ns": h.most_ns, "sum_ns": h.sum_ns, "buckets": buckets}


def taken(numbers):
    """Return (result of stream_take for each number, the remaining gaps)."""
    cdef Stream s
    cdef uint32_t i
    memset(&s, 0, sizeof(s))
    try:
        said = [stream_take(&s, number) for number in numbers]
        return said, [(s.gaps[i].first, s.gaps[i].end) for i in range(s.at, s.n)]
    finally:
        stream_fini(&s)
