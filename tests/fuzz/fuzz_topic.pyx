# Fuzz targets of topic names and filters. `filters` splits its input at zero bytes: a filter, another filter, a topic.
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport abort, free, malloc
from libc.string cimport memcmp, memcpy
from cext.base.view cimport View
from cext.topic.name cimport Filter, filter_covers, filter_matches, filter_parse, name_check


cdef uint64_t view_sum(View v) noexcept nogil:
    cdef uint64_t total = v.n
    cdef uint32_t i
    for i in range(v.n):
        total = total * 31 + v.p[i]
    return total


cdef uint64_t name(const uint8_t* p, size_t n) noexcept nogil:
    return name_check(p, <uint32_t>n)


cdef View part_copy(const uint8_t** p, const uint8_t* end) noexcept nogil:
    # Copy the input up to the next zero byte, into memory of exactly its size.
    cdef const uint8_t* start = p[0]
    cdef uint8_t* copy
    cdef View v
    while p[0] < end and p[0][0] != 0:
        p[0] += 1
    v.n = <uint32_t>(p[0] - start)
    copy = <uint8_t*>malloc(v.n if v.n else 1)
    if v.n:
        memcpy(copy, start, v.n)
    v.p = copy
    if p[0] < end:
        p[0] += 1
    return v


cdef uint64_t compare(const Filter* outer, const Filter* inner, View topic) noexcept nogil:
    cdef bint matched = filter_matches(inner.filter, topic)
    cdef bint same = inner.filter.n == topic.n and memcmp(inner.filter.p, topic.p, topic.n) == 0
    if filter_covers(outer.filter, inner.filter) and matched and not filter_matches(outer.filter, topic):
        abort()
    if not inner.wildcard and matched != same:
        abort()
    return matched


cdef uint64_t filters(const uint8_t* p, size_t n) noexcept nogil:
    cdef const uint8_t* end = p + n
    cdef View outer = part_copy(&p, end)
    cdef View inner = part_copy(&p, end)
    cdef View topic = part_copy(&p, end)
    cdef Filter a, b
    cdef uint64_t total = 0
    if filter_parse(outer.p, outer.n, &a) == 0:
        total += view_sum(a.whole) + view_sum(a.filter) + view_sum(a.group) + a.wildcard
        if filter_parse(inner.p, inner.n, &b) == 0 and name_check(topic.p, topic.n) == 0:
            total += compare(&a, &b, topic)
    free(<void*>outer.p)
    free(<void*>inner.p)
    free(<void*>topic.p)
    return total
