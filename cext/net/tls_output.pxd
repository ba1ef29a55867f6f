# The output of a TLS connection. See tls_output.pyx.
from libc.stdint cimport uint8_t
from cext.net.conn_state cimport Conn, Reactor
from cext.net.tls_state cimport Tls, TlsLayer

cdef ssize_t tls_send(Reactor* r, Conn* c) noexcept nogil
cdef bint tls_put_alert(TlsLayer* y, Tls* t, uint8_t alert) noexcept nogil
cdef void tls_queue_output(Reactor* r, Conn* c, bint now) noexcept nogil
cdef void tls_out_drop(Reactor* r, Tls* t) noexcept nogil
