# TLS of a load's connections: bytes in, bytes out.
from libc.stdint cimport uint8_t
from cext.net.openssl cimport BIO, BIO_METHOD, SSL
from cext.net.tls cimport TlsContext

cdef enum:                      # what a step of a handshake, or a read, came to
    SECURE_WELL = 0             # handshake: it is done; read: there may be more later
    SECURE_MORE = 1             # the handshake waits for the other side
    SECURE_CLOSED = 2           # the other side said so
    SECURE_FAILED = 3           # see secure_why

ctypedef struct Secure:         # of a load
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

ctypedef struct Why:
    long certificate            # what is wrong with it (X509_V_ERR_x), 0: that is not it
    const char* text            # lives as long as the program, NULL: nobody knows

# Takes over the reference, also when it fails (-1: no memory). host must stay.
cdef int secure_init(Secure* s, TlsContext* x, const char* host) noexcept nogil
cdef void secure_fini(Secure* s) noexcept nogil
cdef SSL* secure_begin(Secure* s) noexcept nogil           # NULL: no memory, or a host name that cannot be
cdef void secure_end(SSL* ssl) noexcept nogil
cdef int secure_handshake(Secure* s, SSL* ssl) noexcept nogil
# Decrypts all of in_p; p has room for it and a record of 16 KiB more. *got: how many bytes it put there
cdef int secure_read(Secure* s, SSL* ssl, uint8_t* p, size_t n, size_t* got) noexcept nogil
cdef bint secure_write(Secure* s, SSL* ssl, const uint8_t* p, size_t n) noexcept nogil      # False: it cannot be
cdef void secure_bye(Secure* s, SSL* ssl) noexcept nogil
# Why something failed; asked once, directly afterwards
cdef Why secure_why(const Secure* s, SSL* ssl) noexcept nogil
