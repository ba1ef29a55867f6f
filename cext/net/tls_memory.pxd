# The memory that OpenSSL takes for connections.
from libc.stdint cimport int64_t, uint32_t
from cext.net.conn_state cimport Transport

# Let OpenSSL count what it allocates. Call it before OpenSSL's first allocation in the process; otherwise it has no effect.
# Any thread, once. Returns whether it counts.
cdef bint tls_memory_begin() noexcept nogil
# Return the bytes that the calls of this thread have allocated in OpenSSL, less those that they have freed.
cdef int64_t tls_memory_now() noexcept nogil
# Add to the connection's account what OpenSSL has allocated in this thread since `before`, or an estimate if it does not count:
# `estimate` bytes.
cdef void tls_memory_add(Transport* t, int64_t before, uint32_t estimate) noexcept nogil
