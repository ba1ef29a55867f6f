# Who the other side of a TLS connection is, kept beyond the SSL that found out.
from libc.stdint cimport uint8_t, uint32_t
from cext.net.openssl cimport OPENSSL_STACK, SSL, SSL_CTX, X509, X509_STORE_CTX

ctypedef struct Peer:           # zeros until the handshake is done
    const char* protocol        # OpenSSL's own text, as is cipher
    const char* cipher
    char* identity              # of the pre-shared key that it has; before the handshake is done: that it says it has
    X509* leaf
    OPENSSL_STACK* chain        # that it showed with it

cdef void peer_read(Peer* p, SSL* ssl) noexcept nogil           # the handshake is done
cdef void peer_clear(Peer* p) noexcept nogil
cdef int peer_write(const Peer* p, int what, uint8_t* out, uint32_t n) noexcept nogil     # as TransportOps.tell
# Is its certificate good by what x trusts: chain, dates, revocation?
cdef bint peer_verifies(const Peer* p, SSL_CTX* x, bint any_date) noexcept nogil
# For SSL_CTX_set_verify: the client's own certificate may be expired or not valid yet.
cdef int peer_any_date(int ok, X509_STORE_CTX* x) noexcept nogil
