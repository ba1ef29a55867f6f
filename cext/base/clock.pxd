# Monotonic and wall time. The loop reads the clock once per turn, and everything in that turn uses the value.
from libc.stdint cimport int64_t, uint64_t

cdef uint64_t clock_monotonic_ms() noexcept nogil
cdef uint64_t clock_monotonic_us() noexcept nogil             # for durations shorter than a turn
cdef uint64_t clock_monotonic_ns() noexcept nogil             # for measurements
cdef int64_t clock_wall_s() noexcept nogil
cdef uint64_t clock_wall_ms() noexcept nogil
cdef uint64_t clock_wall_us() noexcept nogil
