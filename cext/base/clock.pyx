"""Read the time: CLOCK_MONOTONIC for durations, mostly in milliseconds, and CLOCK_REALTIME for times that people read."""

from libc.stdint cimport int64_t, uint64_t

cdef extern from "<time.h>" nogil:
    struct timespec:
        long tv_sec
        long tv_nsec
    int clock_gettime(int clock, timespec* out)
    int CLOCK_MONOTONIC
    int CLOCK_REALTIME


cdef uint64_t clock_monotonic_ns() noexcept nogil:
    cdef timespec t
    clock_gettime(CLOCK_MONOTONIC, &t)
    return <uint64_t>t.tv_sec * 1000000000 + <uint64_t>t.tv_nsec


cdef uint64_t clock_monotonic_us() noexcept nogil:
    return clock_monotonic_ns() // 1000


cdef uint64_t clock_monotonic_ms() noexcept nogil:
    return clock_monotonic_ns() // 1000000


cdef int64_t clock_wall_s() noexcept nogil:
    cdef timespec t
    clock_gettime(CLOCK_REALTIME, &t)
    return t.tv_sec


cdef uint64_t clock_wall_ms() noexcept nogil:
    cdef timespec t
    clock_gettime(CLOCK_REALTIME, &t)
    return <uint64_t>t.tv_sec * 1000 + <uint64_t>(t.tv_nsec // 1000000)


cdef uint64_t clock_wall_us() noexcept nogil:
    cdef timespec t
    clock_gettime(CLOCK_REALTIME, &t)
    return <uint64_t>t.tv_sec * 1000000 + <uint64_t>(t.tv_nsec // 1000)
