# The identity of the other side of a TLS connection, stored so that the SSL can be freed.
from libc.stdint cimport uint8_t, uint32_t
from cext.net.openssl cimport OPENSSL_STACK, SSL, SSL_CTX, SSL_SESSION, X509, X509_STORE_CTX

ctypedef struct Peer:           # zeroed until the handshake is done
    const char* protocol        # OpenSSL's own static text, like `cipher`
    const char* cipher
    char* identity              # identity of the peer's pre-shared key; before the handshake is done only a claim
    X509* leaf
    OPENSSL_STACK* chain        # chain that the peer sent with it

cdef void peer_read(Peer* p, SSL* ssl) noexcept nogil           # after the handshake
cdef void peer_clear(Peer* p) noexcept nogil
cdef int peer_write(const Peer* p, int what, uint8_t* out, uint32_t n) noexcept nogil     # as TransportOps.log
# Return whether the peer's certificate is valid by the trust settings of x: chain, dates, revocation.
cdef bint peer_verifies(const Peer* p, SSL_CTX* x, bint any_date) noexcept nogil
cdef bint certificate_verifies(X509* leaf, OPENSSL_STACK* chain, SSL_CTX* x, bint any_date) noexcept nogil
# For SSL_CTX_set_verify: the client's own certificate may be expired or not valid yet.
cdef int peer_any_date(int ok, X509_STORE_CTX* x) noexcept nogil
# Return the chain that the client sent in the full handshake of this session; NULL = none. The caller frees it.
cdef OPENSSL_STACK* ticket_chain(SSL_SESSION* session) noexcept nogil
