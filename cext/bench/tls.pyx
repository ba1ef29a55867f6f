# distutils: libraries = ssl crypto
# TLS for the connections of a load by OpenSSL alone, over memory. This module knows OpenSSL. It does not know sockets. It uses
# the same contexts, names and keys as bridges (cext/setup/tls_outward, cext/net/tls_outward). One BIO serves all connections: it
# only refers to the bytes of the current connection (as in cext/net/tls). The error queue is empty before each call.
# Invariant: without `any_name`, a successful handshake has proven the identity of the peer. With it, no certificate is checked.
# Cost: that of OpenSSL: about a microsecond for each record, and 0.1 ms or more for a handshake.
from libc.stdint cimport uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

from cext.bench.load cimport OUT_MAX
from cext.net.openssl cimport (
    BIO, BIO_CTRL_FLUSH, BIO_TYPE_SOURCE_SINK, BIO_clear_retry_flags, BIO_free, BIO_get_data, BIO_meth_free, BIO_meth_new,
    BIO_meth_set_ctrl, BIO_meth_set_read, BIO_meth_set_write, BIO_new, BIO_set_data, BIO_set_init, BIO_set_retry_read,
    BIO_up_ref, ERR_clear_error, ERR_get_error, ERR_reason_error_string, SSL, SSL_CIPHER_get_name, SSL_CTX_set_verify,
    SSL_ERROR_WANT_READ, SSL_ERROR_ZERO_RETURN, SSL_VERIFY_NONE, SSL_do_handshake, SSL_free, SSL_get_current_cipher,
    SSL_get_error, SSL_get_verify_result, SSL_get_version, SSL_new, SSL_pending, SSL_read, SSL_set_bio, SSL_set_connect_state,
    SSL_set_tlsext_host_name, SSL_shutdown, SSL_write, X509_V_OK, X509_verify_cert_error_string,
)
from cext.net.tls_context cimport tls_context_release
from cext.net.tls_outward cimport tls_expect_name, tls_numeric, tls_peer_good

cdef enum:
    LOAD_BIO_INDEX = 126             # any number: no caller asks for its type
    OUT_FIRST = 32 * 1024


cdef int load_bio_read(BIO* b, char* p, int n) noexcept nogil:
    cdef LoadTls* s = <LoadTls*>BIO_get_data(b)
    cdef size_t size = <size_t>n if <size_t>n < s.in_n else s.in_n
    BIO_clear_retry_flags(b)
    if size == 0:
        BIO_set_retry_read(b)
        return -1
    memcpy(p, s.in_p, size)
    s.in_p += size
    s.in_n -= size
    return <int>size


cdef int load_bio_write(BIO* b, const char* p, int n) noexcept nogil:
    cdef LoadTls* s = <LoadTls*>BIO_get_data(b)
    cdef uint8_t* grown
    cdef size_t cap = s.out_cap if s.out_cap else OUT_FIRST
    BIO_clear_retry_flags(b)
    if n < 0 or s.out_n + <size_t>n > OUT_MAX:
        return -1
    while cap < s.out_n + <size_t>n:
        cap *= 2
    if cap != s.out_cap:
        grown = <uint8_t*>realloc(s.out, cap)
        if grown == NULL:
            return -1
        s.out = grown
        s.out_cap = cap
    memcpy(s.out + s.out_n, p, <size_t>n)
    s.out_n += <size_t>n
    return n


cdef long load_bio_ctrl(BIO* b, int command, long number, void* p) noexcept nogil:
    return 1 if command == BIO_CTRL_FLUSH else 0


cdef int load_tls_init(LoadTls* s, TlsContext* x, const char* host) noexcept nogil:
    memset(s, 0, sizeof(LoadTls))
    s.x = x
    s.host = host
    if x.any_name and x.n_psks == 0:
        SSL_CTX_set_verify(x.ctx, SSL_VERIFY_NONE, NULL)
    s.method = BIO_meth_new(LOAD_BIO_INDEX | BIO_TYPE_SOURCE_SINK, "mosq bench")
    if s.method != NULL:
        BIO_meth_set_read(s.method, load_bio_read)
        BIO_meth_set_write(s.method, load_bio_write)
        BIO_meth_set_ctrl(s.method, load_bio_ctrl)
        s.bio = BIO_new(s.method)
    if s.bio == NULL:
        load_tls_fini(s)
        return -1
    BIO_set_data(s.bio, s)
    BIO_set_init(s.bio, 1)
    return 0


cdef void load_tls_fini(LoadTls* s) noexcept nogil:
    BIO_free(s.bio)
    BIO_meth_free(s.method)
    free(s.out)
    if s.x != NULL:
        tls_context_release(&s.x.base)
    memset(s, 0, sizeof(LoadTls))


# ---------------------------------------------------------------- a connection

cdef SSL* load_tls_begin(LoadTls* s) noexcept nogil:
    cdef bint numeric = tls_numeric(s.host)
    cdef SSL* ssl
    ERR_clear_error()
    ssl = SSL_new(s.x.ctx)
    if ssl == NULL:
        return NULL
    BIO_up_ref(s.bio)
    SSL_set_bio(ssl, s.bio, s.bio)
    SSL_set_connect_state(ssl)
    if ((not numeric and SSL_set_tlsext_host_name(ssl, s.host) != 1)
            or (not s.x.any_name and tls_expect_name(ssl, s.host, numeric) != 1)):
        SSL_free(ssl)
        return NULL
    return ssl


cdef void load_tls_end(SSL* ssl) noexcept nogil:
    SSL_free(ssl)


cdef int load_tls_handshake(LoadTls* s, SSL* ssl) noexcept nogil:
    cdef int got
    ERR_clear_error()
    got = SSL_do_handshake(ssl)
    if got == 1:
        if not tls_peer_good(ssl, s.x):
            return LOAD_TLS_FAILED
        s.protocol = SSL_get_version(ssl)
        s.cipher = SSL_CIPHER_get_name(SSL_get_current_cipher(ssl))
        return LOAD_TLS_OK
    got = SSL_get_error(ssl, got)
    return LOAD_TLS_MORE if got == SSL_ERROR_WANT_READ else LOAD_TLS_CLOSED if got == SSL_ERROR_ZERO_RETURN else LOAD_TLS_FAILED


cdef int load_tls_read(LoadTls* s, SSL* ssl, uint8_t* p, size_t n, size_t* got) noexcept nogil:
    cdef int size
    got[0] = 0
    while (s.in_n or SSL_pending(ssl)) and got[0] < n:
        ERR_clear_error()
        size = SSL_read(ssl, p + got[0], <int>(n - got[0]))
        if size > 0:
            got[0] += <size_t>size
            continue
        size = SSL_get_error(ssl, size)
        if size == SSL_ERROR_WANT_READ:
            return LOAD_TLS_OK
        return LOAD_TLS_CLOSED if size == SSL_ERROR_ZERO_RETURN else LOAD_TLS_FAILED
    return LOAD_TLS_OK


cdef bint load_tls_write(LoadTls* s, SSL* ssl, const uint8_t* p, size_t n) noexcept nogil:
    ERR_clear_error()
    return SSL_write(ssl, p, <int>n) == <int>n


cdef void load_tls_close(LoadTls* s, SSL* ssl) noexcept nogil:
    ERR_clear_error()
    SSL_shutdown(ssl)


cdef LoadTlsError load_tls_error(const LoadTls* s, SSL* ssl) noexcept nogil:
    cdef LoadTlsError w
    cdef unsigned long e = ERR_get_error()
    w.certificate = SSL_get_verify_result(ssl)
    if w.certificate != X509_V_OK and not s.x.any_name:
        w.text = X509_verify_cert_error_string(w.certificate)
    else:
        w.certificate = 0
        w.text = ERR_reason_error_string(e) if e else NULL
    ERR_clear_error()
    return w
