# Dispatch bytes to the packet handlers. This is the only place that ends a client for a protocol reason.
from libc.stdint cimport uint8_t
from cext.net.conn_state cimport Conn

# callback of the reactor: input_fn
cdef size_t dispatch(void* broker, Conn* conn, const uint8_t* p, size_t n) noexcept nogil
cdef size_t dispatch_traced(void* broker, Conn* conn, const uint8_t* p, size_t n) noexcept nogil     # while there is a trace
