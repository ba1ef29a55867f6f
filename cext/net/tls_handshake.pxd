# Handshakes of TLS connections. See tls_handshake.pyx.
from libc.stdint cimport uint8_t, uint32_t
from cext.net.conn_state cimport Conn, Reactor
from cext.net.tls_pool cimport Handshake
from cext.net.tls_state cimport Tls, TlsLayer

cdef int tls_prepare(Reactor* r, Conn* c, const char* host) noexcept nogil
cdef int tls_start(Reactor* r, Conn* c) noexcept nogil
cdef int handshake_give(Reactor* r, Conn* c, const uint8_t* p, uint32_t n) noexcept nogil
cdef size_t handshake_use(Reactor* r, Conn* c) noexcept nogil
cdef void handshake_step(Handshake* h) noexcept nogil
cdef void handshake_free(TlsLayer* y, Tls* t) noexcept nogil
