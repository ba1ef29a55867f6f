# The input of a TLS connection. See tls_input.pyx.
from libc.stdint cimport uint8_t
from cext.net.conn_state cimport Conn, Reactor
from cext.net.tls_state cimport Tls

cdef ssize_t tls_receive(Reactor* r, Conn* c, uint8_t* p, size_t n) noexcept nogil
cdef void tls_part_drop(Reactor* r, Tls* t) noexcept nogil
