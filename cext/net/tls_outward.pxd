# TLS in which the broker is the client: the expected name of the peer, our key, and a stapled OCSP
# response about the peer's certificate.
from cext.net.openssl cimport SSL
from cext.net.tls_state cimport TlsContext

cdef bint tls_numeric(const char* host) noexcept nogil
cdef int tls_expect_name(SSL* ssl, const char* host, bint numeric) noexcept nogil          # 1 = success
cdef bint tls_peer_good(SSL* ssl, const TlsContext* x) noexcept nogil        # checks that are possible only after the handshake
cdef void tls_outward_callbacks(TlsContext* x) noexcept nogil
