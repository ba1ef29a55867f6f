# Monotonic and wall time. Read once per turn of the loop, then shared by all that happens in it.
from libc.stdint cimport int64_t, uint64_t

cdef uint64_t clock_monotonic_ms() noexcept nogil
cdef uint64_t clock_monotonic_us() noexcept nogil             # for what is shorter than a turn
cdef uint64_t clock_monotonic_ns() noexcept nogil             # for what is measured
cdef int64_t clock_wall_s() noexcept nogil
cdef uint64_t clock_wall_ms() noexcept nogil
cdef uint64_t clock_wall_us() noexcept nogil
