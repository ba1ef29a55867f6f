from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memcmp, memchr
from cext.base.view cimport View

cdef int name_check(const uint8_t* s, uint32_t n) noexcept nogil:
    cdef uint32_t i, levels = 1
    if n == 0 or n > 65535: return 0x90
    for i in range(n):
        if s[i] == c'+' or s[i] == c'#': return 0x90
        if s[i] == c'/': levels += 1
    return 0x90 if levels > LEVELS_MAX else 0

cdef int filter_parse(const uint8_t* s, uint32_t n, Filter* out) noexcept nogil:
    cdef uint32_t i, levels = 1
    cdef const uint8_t* p
    out.whole.p = s; out.whole.n = n
    out.filter = out.whole
    out.group.p = s; out.group.n = 0
    out.wildcard = 0
    if n == 0 or n > 65535: return 0x8F
    if n >= 7 and memcmp(s, "$share/", 7) == 0:
        p = <const uint8_t*>memchr(s + 7, c'/', n - 7)
        if p == NULL or p == s + 7 or p + 1 == s + n: return 0x8F
        out.group.p = s + 7
        out.group.n = <uint32_t>(p - s - 7)
        if memchr(out.group.p, c'+', out.group.n) != NULL or memchr(out.group.p, c'#', out.group.n) != NULL: return 0x8F
        out.filter.p = p + 1
        out.filter.n = <uint32_t>(s + n - p - 1)
    s = out.filter.p; n = out.filter.n
    for i in range(n):
        if s[i] == c'/': levels += 1
        if s[i] == c'+' or s[i] == c'#':
            out.wildcard = 1
            if i and s[i-1] != c'/': return 0x8F
            if s[i] == c'#' and i + 1 != n: return 0x8F
            if i + 1 < n and s[i+1] != c'/': return 0x8F
    return 0x8F if levels > LEVELS_MAX else 0

cdef bint filter_matches(View f, View t) noexcept nogil:
    cdef uint32_t i = 0, j = 0
    if t.n and f.n and t.p[0] == c'$' and (f.p[0] == c'+' or f.p[0] == c'#'): return 0
    while True:
        if i < f.n and f.p[i] == c'#': return 1
        if i < f.n and f.p[i] == c'+':
            i += 1
            while j < t.n and t.p[j] != c'/': j += 1
        else:
            while i < f.n and f.p[i] != c'/' and j < t.n and t.p[j] == f.p[i]:
                i += 1; j += 1
        if i == f.n and j == t.n: return 1
        if j == t.n and i + 2 == f.n and f.p[i] == c'/' and f.p[i+1] == c'#': return 1
        if i == f.n or j == t.n or f.p[i] != c'/' or t.p[j] != c'/': return 0
        i += 1; j += 1

cdef bint filter_covers(View f, View t) noexcept nogil:
    return filter_matches(f, t)
