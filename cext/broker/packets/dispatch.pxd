# From bytes to handlers. The only place that ends a client for a protocol reason.
from libc.stdint cimport uint8_t
from cext.net.reactor cimport Conn

# input_fn of the reactor
cdef size_t dispatch(void* broker, Conn* conn, const uint8_t* p, size_t n) noexcept nogil
