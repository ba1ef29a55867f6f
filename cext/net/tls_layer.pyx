# distutils: libraries = ssl crypto
"""Manage the state that the TLS connections of one loop share: a BIO between OpenSSL and the layer's buffers, and the cipher suites.
Also end a connection after an error of OpenSSL. This module knows OpenSSL's BIO and its error queue, but no sockets.

Invariant: the BIO reads from layer.in and writes to layer.out, both of the present connection, and nothing else. During a handshake the SSL
has a BIO of its own, which reads and writes the buffers of the Handshake, because a thread may run it.
"""

from libc.errno cimport EPROTO
from libc.stdint cimport uint8_t, uint32_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, strchr

from cext.net.conn_state cimport Conn, Reactor
from cext.net.openssl cimport (
    BIO, BIO_CTRL_FLUSH, BIO_METHOD, BIO_TYPE_SOURCE_SINK, BIO_clear_retry_flags, BIO_free, BIO_get_data, BIO_meth_free, BIO_meth_new,
    BIO_meth_set_ctrl, BIO_meth_set_read, BIO_meth_set_write, BIO_new, BIO_set_data, BIO_set_init, BIO_set_retry_read,
    ERR_clear_error, ERR_error_string_n, ERR_get_error, SSL_ERROR_WANT_READ, SSL_ERROR_ZERO_RETURN, SSL_get_error,
    SSL_get_verify_result, X509_V_OK, X509_verify_cert_error_string,
)
from cext.net.records cimport KEY_UPDATES_MAX, suites_fini, suites_init
from cext.net.tls_pool cimport Handshake, pool_fini, pool_init, pool_stop, step_fn
from cext.net.tls_state cimport TLS_OUT_BYTES, Tls, TlsLayer, UNREAD_MAX_BYTES

cdef enum:
    TLS_BIO_INDEX = 127         # any value: no code reads its type
    ERRORS_MAX = 8              # limit of lines per connection


cdef int tls_bio_read(BIO* b, char* p, int n) noexcept nogil:
    cdef TlsLayer* y = <TlsLayer*>BIO_get_data(b)
    cdef size_t size = <size_t>n if <size_t>n < y.in_n else y.in_n
    BIO_clear_retry_flags(b)
    if size == 0:
        BIO_set_retry_read(b)
        return -1
    if y.out_n > UNREAD_MAX_BYTES:
        return -1               # the peer only causes output: each ClientHello after the handshake is answered with an alert
    if y.reader != NULL and y.reader.late > KEY_UPDATES_MAX:
        return -1
    memcpy(p, y.in_p, size)
    y.in_p += size
    y.in_n -= size
    return <int>size


cdef int tls_bio_write(BIO* b, const char* p, int n) noexcept nogil:
    cdef TlsLayer* y = <TlsLayer*>BIO_get_data(b)
    BIO_clear_retry_flags(b)
    if n < 0 or TLS_OUT_BYTES - y.out_n < <size_t>n:
        return -1
    memcpy(y.out + y.out_n, p, <size_t>n)
    y.out_n += <size_t>n
    return n


cdef int step_bio_read(BIO* b, char* p, int n) noexcept nogil:
    """Read whole records of a handshake; the rest of its input may be data, which is not for OpenSSL where `records` takes over."""
    cdef Handshake* h = <Handshake*>BIO_get_data(b)
    cdef uint32_t size = <uint32_t>n if <uint32_t>n < h.given else h.given
    BIO_clear_retry_flags(b)
    if size == 0:
        BIO_set_retry_read(b)
        return -1
    memcpy(p, h.received + h.received_off, size)
    h.received_off += size
    h.received_n -= size
    h.given -= size
    return <int>size


cdef int step_bio_write(BIO* b, const char* p, int n) noexcept nogil:
    cdef Handshake* h = <Handshake*>BIO_get_data(b)
    cdef uint8_t* bigger
    cdef uint32_t cap = h.out_cap
    BIO_clear_retry_flags(b)
    if n < 0 or TLS_OUT_BYTES - h.out_n < <uint32_t>n:
        return -1
    while cap < h.out_n + <uint32_t>n:
        cap = 2 * cap if cap else 2048
    if cap != h.out_cap:
        bigger = <uint8_t*>realloc(h.out, cap)
        if bigger == NULL:
            return -1
        h.out = bigger
        h.out_cap = cap
    memcpy(h.out + h.out_n, p, <size_t>n)
    h.out_n += <uint32_t>n
    return n


cdef long tls_bio_ctrl(BIO* b, int command, long number, void* p) noexcept nogil:
    return 1 if command == BIO_CTRL_FLUSH else 0


cdef BIO_METHOD* bio_method(int (*read)(BIO* b, char* p, int n) noexcept nogil, int (*write)(BIO* b, const char* p, int n) noexcept nogil) noexcept nogil:
    cdef BIO_METHOD* m = BIO_meth_new(TLS_BIO_INDEX | BIO_TYPE_SOURCE_SINK, "mosq")
    if m != NULL:
        BIO_meth_set_read(m, read)
        BIO_meth_set_write(m, write)
        BIO_meth_set_ctrl(m, tls_bio_ctrl)
    return m


cdef TlsLayer* tls_layer_new(uint32_t n_threads, step_fn step) noexcept nogil:
    cdef TlsLayer* y = <TlsLayer*>malloc(sizeof(TlsLayer))
    cdef int suited
    if y == NULL:
        return NULL
    if pool_init(&y.pool, n_threads, step) != 0:
        free(y)
        return NULL
    y.in_n = y.out_n = 0
    y.turn = 0
    y.steps = 0
    y.bio = NULL
    y.reader = NULL
    suited = suites_init(y.suites)
    y.method = bio_method(tls_bio_read, tls_bio_write)
    y.step_method = bio_method(step_bio_read, step_bio_write)
    if y.method != NULL:
        y.bio = BIO_new(y.method)
    if y.bio == NULL or y.step_method == NULL or suited != 0:
        pool_stop(&y.pool)
        tls_layer_free(y)
        return NULL
    BIO_set_data(y.bio, y)
    BIO_set_init(y.bio, 1)
    return y


cdef void tls_layer_free(void* layer) noexcept nogil:
    cdef TlsLayer* y = <TlsLayer*>layer
    if y != NULL:
        pool_fini(&y.pool)
        suites_fini(y.suites)
        BIO_free(y.bio)
        BIO_meth_free(y.method)
        BIO_meth_free(y.step_method)
        free(y)


# ---------------------------------------------------------------- errors

cdef void tls_stopped(Reactor* r, Conn* c, int got) noexcept nogil:
    """Handle a call in which OpenSSL stopped, usually because it needs more input."""
    cdef Tls* t = <Tls*>c.transport
    cdef int why = SSL_get_error(t.ssl, got)
    if why == SSL_ERROR_ZERO_RETURN:
        t.base.over = 1         # close_notify
    elif why != SSL_ERROR_WANT_READ:
        tls_fail(r, c)


cdef void tls_errors(const Tls* t, char* out, size_t n) noexcept nogil:
    """Write this thread's errors of OpenSSL to out, one in each line, and forget them."""
    cdef char text[200]
    cdef size_t at = 0
    cdef unsigned long e
    cdef int i
    out[0] = 0
    if t.x.outward and t.ssl != NULL and SSL_get_verify_result(t.ssl) != X509_V_OK:
        at += <size_t>snprintf(out, n, "The certificate of the other side was not accepted: %s.\n",
                               X509_verify_cert_error_string(SSL_get_verify_result(t.ssl)))
    for i in range(ERRORS_MAX):
        e = ERR_get_error()
        if e == 0 or at >= n:
            break
        ERR_error_string_n(e, text, sizeof(text))
        at += <size_t>snprintf(out + at, n - at, "OpenSSL Error[%d]: %s\n", i, text)
    ERR_clear_error()


cdef void tls_end(Reactor* r, Conn* c, char* lines) noexcept nogil:
    """End an unusable connection, and log these lines."""
    cdef Tls* t = <Tls*>c.transport
    cdef char* end
    t.base.over = 1
    t.base.open = 0
    t.base.error = EPROTO
    while lines[0]:
        end = strchr(lines, c'\n')
        if end != NULL:
            end[0] = 0
        r.on_transport_error(r.ctx, c, lines)
        if end == NULL:
            return
        lines = end + 1


cdef void tls_fail(Reactor* r, Conn* c) noexcept nogil:
    """End an unusable connection and log why. OpenSSL has written an alert into layer.out."""
    cdef char lines[2048]       # size is ERRORS_BYTES
    tls_errors(<Tls*>c.transport, lines, sizeof(lines))
    tls_end(r, c, lines)
