# The memory of the whole process, as the system counts it.
from libc.stdint cimport uint64_t
from cext.broker.core.broker cimport Broker

cdef void resident_begin(Broker* b) noexcept nogil      # the loop starts
cdef void resident_end(Broker* b) noexcept nogil
# Read the memory again if it may have changed much since the last time. Call it once per turn, and after unusual allocations.
cdef void resident_check(Broker* b) noexcept nogil
# Return whether the counted bytes, or the process, exceed memory_limit and `reserve` bytes.
cdef bint memory_over(Broker* b, uint64_t reserve) noexcept nogil
# Return the bytes of $SYS/broker/heap/current: messages, buffers and the index.
cdef uint64_t heap_bytes(Broker* b) noexcept nogil
# Return the bytes that the broker counts: messages, buffers, the index, retained messages.
cdef uint64_t memory_counted(Broker* b) noexcept nogil
