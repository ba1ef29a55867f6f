# TLS of a load's connections: bytes in, bytes out.
from libc.stdint cimport uint8_t
from cext.net.openssl cimport BIO, BIO_METHOD, SSL
from cext.net.tls cimport TlsContext

cdef enum:                      # what a step of a handshake, or a read, came to
    LOAD_TLS_OK = 0             # handshake: it is done; read: there may be more later
    LOAD_TLS_MORE = 1             # the handshake waits for the other side
    LOAD_TLS_CLOSED = 2           # the other side said so
    LOAD_TLS_FAILED = 3           # see load_tls_error

ctypedef struct LoadTls:         # of a load
    TlsContext* x               # with a reference
    const char* host            # whom we expect
    BIO_METHOD* method
    BIO* bio
    const uint8_t* in_p         # what came and is not decrypted
    size_t in_n
    uint8_t* out                # what is to be sent: the owner takes it, and sets out_n to 0
    size_t out_n
    size_t out_cap
    const char* protocol        # of the last handshake; OpenSSL's own text
    const char* cipher

ctypedef struct LoadTlsError:
    long certificate            # what is wrong with it (X509_V_ERR_x), 0: that is not it
    const char* text            # lives as long as the program, NULL: nobody knows

# Takes over the reference, also when it fails (-1: no memory). host must stay.
cdef int load_tls_init(LoadTls* s, TlsContext* x, const char* host) noexcept nogil
cdef void load_tls_fini(LoadTls* s) noexcept nogil
cdef SSL* load_tls_begin(LoadTls* s) noexcept nogil           # NULL: no memory, or a host name that cannot be
cdef void load_tls_end(SSL* ssl) noexcept nogil
cdef int load_tls_handshake(LoadTls* s, SSL* ssl) noexcept nogil
# Decrypts all of in_p; p has room for it and a record of 16 KiB more. *got: how many bytes it put there
cdef int load_tls_read(LoadTls* s, SSL* ssl, uint8_t* p, size_t n, size_t* got) noexcept nogil
cdef bint load_tls_write(LoadTls* s, SSL* ssl, const uint8_t* p, size_t n) noexcept nogil      # False: it cannot be
cdef void load_tls_close(LoadTls* s, SSL* ssl) noexcept nogil
# Why something failed; asked once, directly afterwards
cdef LoadTlsError load_tls_error(const LoadTls* s, SSL* ssl) noexcept nogil
