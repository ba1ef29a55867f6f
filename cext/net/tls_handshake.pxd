# Handshakes of TLS connections. See tls_handshake.pyx.
from cext.net.conn_state cimport Conn, Reactor
from cext.net.tls_state cimport Tls, TlsLayer

# Return -1 if there is no memory.
cdef int tls_ssl_new(TlsLayer* y, Tls* t) noexcept nogil
cdef int tls_prepare(Reactor* r, Conn* c, const char* host) noexcept nogil
cdef int tls_start(Reactor* r, Conn* c) noexcept nogil
cdef void tls_handshake(Reactor* r, Conn* c) noexcept nogil
