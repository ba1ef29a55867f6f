# The input of a connection. See conn_input.pyx.
from libc.stdint cimport uint8_t, uint32_t
from cext.net.conn_state cimport Conn, Reactor

# Hand the input buffer over if it contains exactly the n bytes at p (a large frame). The caller then owns it (buffer_give).
cdef uint8_t* conn_steal_input(Conn* c, const uint8_t* p, uint32_t n, uint32_t* cap) noexcept nogil

# For the reactor.
cdef void conn_read(Reactor* r, Conn* c) noexcept nogil             # one read, and on_input
cdef void conn_feed(Reactor* r, Conn* c) noexcept nogil             # passes the connection's own buffer to the owner
cdef void conn_check_end(Reactor* r, Conn* c) noexcept nogil
