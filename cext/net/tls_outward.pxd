# What is different in TLS when we are the client: whom we expect, the key that is ours, and a stapled word of its certificate's authority.
from cext.net.openssl cimport SSL
from cext.net.tls cimport TlsContext

cdef bint tls_numeric(const char* host) noexcept nogil
cdef int tls_expect(SSL* ssl, const char* host, bint numeric) noexcept nogil          # 1: well
cdef bint tls_peer_good(SSL* ssl, const TlsContext* x) noexcept nogil        # what is only known after the handshake
cdef void tls_outward_callbacks(TlsContext* x) noexcept nogil
