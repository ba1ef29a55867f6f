# What all parts of the simulator use: notes of a schedule, and the first failure.
from libc.stdint cimport int64_t
from libc.stdio cimport snprintf


cdef void note(World* g, const char* text, int64_t a, int64_t b, int64_t c) noexcept nogil:
    cdef int n
    if g.trace == NULL or g.trace_cap - g.trace_n < 400:
        return
    n = snprintf(g.trace + g.trace_n, 200, b"%5u  ", g.step)
    g.trace_n += n
    n = snprintf(g.trace + g.trace_n, 190, text, <long long>a, <long long>b, <long long>c)
    g.trace_n += n
    g.trace[g.trace_n] = c'\n'
    g.trace_n += 1


cdef void fail(World* g, const char* text, int64_t a, int64_t b, int64_t c) noexcept nogil:
    if g.failure == NULL:
        g.failure = text
        g.detail[0], g.detail[1], g.detail[2] = a, b, c
        note(g, text, a, b, c)


cdef bint without(World* g, int rule) noexcept nogil:
    return g.off >> rule & 1
