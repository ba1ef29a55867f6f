# TLS for the connections of a load: bytes in, bytes out.
from libc.stdint cimport uint8_t
from cext.net.openssl cimport BIO, BIO_METHOD, SSL
from cext.net.tls_state cimport TlsContext

cdef enum:                      # result of a step of a handshake, or of a read
    LOAD_TLS_OK = 0             # handshake: complete; read: more may follow
    LOAD_TLS_MORE = 1           # the handshake waits for the peer
    LOAD_TLS_CLOSED = 2         # the peer closed the connection
    LOAD_TLS_FAILED = 3         # see load_tls_error

ctypedef struct LoadTls:        # state of a load
    TlsContext* x               # holds a reference
    const char* host            # expected name of the peer
    BIO_METHOD* method
    BIO* bio
    const uint8_t* in_p         # received and not yet decrypted
    size_t in_n
    uint8_t* out                # to be sent: the owner takes it and sets out_n to 0
    size_t out_n
    size_t out_cap
    const char* protocol        # of the last handshake; OpenSSL's own text
    const char* cipher

ctypedef struct LoadTlsError:
    long certificate            # X509_V_ERR_x; 0 = the certificate is not the reason
    const char* text            # constant text; NULL = unknown

# Take over the reference, also on failure (-1 = no memory). host must stay valid.
cdef int load_tls_init(LoadTls* s, TlsContext* x, const char* host) noexcept nogil
cdef void load_tls_fini(LoadTls* s) noexcept nogil
cdef SSL* load_tls_begin(LoadTls* s) noexcept nogil           # NULL = no memory, or an invalid host name
cdef void load_tls_end(SSL* ssl) noexcept nogil
cdef int load_tls_handshake(LoadTls* s, SSL* ssl) noexcept nogil
# Decrypt all of in_p; p has room for it and one more record of 16 KiB. *got = number of bytes put there.
cdef int load_tls_read(LoadTls* s, SSL* ssl, uint8_t* p, size_t n, size_t* got) noexcept nogil
cdef bint load_tls_write(LoadTls* s, SSL* ssl, const uint8_t* p, size_t n) noexcept nogil      # False = impossible
cdef void load_tls_close(LoadTls* s, SSL* ssl) noexcept nogil
# Return the reason of a failure. Call it once, directly after the failure.
cdef LoadTlsError load_tls_error(const LoadTls* s, SSL* ssl) noexcept nogil
