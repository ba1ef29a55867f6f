# distutils: libraries = ssl crypto
"""Run handshakes with OpenSSL, and hand a connection to `records` at the end of its handshake if its listener
has `tls_compact_records`. This module knows OpenSSL's SSL, but no
sockets: the bytes are in layer.in and layer.out.

Invariant: a connection has an SSL from its first byte to its end, or until `records` takes over, where `tls_compact_records` is on.
"""

from libc.errno cimport ENOMEM, EPROTO
from libc.stdint cimport int64_t, uint64_t

from cext.net.conn_state cimport Conn, Reactor
from cext.net.openssl cimport (
    BIO_up_ref, ERR_clear_error, SSL_CIPHER_get_protocol_id, SSL_EARLY_DATA_ACCEPTED,
    SSL_ERROR_WANT_READ, SSL_RECEIVED_SHUTDOWN, SSL_SENT_SHUTDOWN, SSL_SESSION_get_max_fragment_length, SSL_do_handshake,
    SSL_free, SSL_get_current_cipher, SSL_get_early_data_status, SSL_get_error, SSL_get_session, SSL_has_pending, SSL_new,
    SSL_set_accept_state, SSL_set_app_data, SSL_set_bio, SSL_set_connect_state, SSL_set_shutdown, SSL_set_tlsext_host_name,
    SSL_set_tlsext_status_type, SSL_version, TLS1_3_VERSION, TLSEXT_STATUSTYPE_ocsp,
)
from cext.net.records cimport (
    RECORD_HEADER_BYTES, Suite, TYPE_DATA, records_begin, records_end, suite_find,
)
from cext.net.tls_layer cimport tls_fail, tls_stopped
from cext.net.tls_memory cimport tls_memory_add, tls_memory_now
from cext.net.tls_output cimport tls_queue_output
from cext.net.tls_outward cimport tls_expect_name, tls_numeric, tls_peer_good
from cext.net.tls_peer cimport peer_read
from cext.net.tls_state cimport Tls, TlsLayer

cdef enum:
    HANDSHAKE_ESTIMATE_BYTES = 48 * 1024        # OpenSSL's memory of a connection that waits for the client's Finished, measured


cdef int tls_ssl_new(TlsLayer* y, Tls* t) noexcept nogil:
    """Create the SSL at the first byte, so that a client that only connects costs nothing."""
    cdef int64_t before = tls_memory_now()
    ERR_clear_error()
    t.ssl = SSL_new(t.x.ctx)
    if t.ssl == NULL:
        return -1
    tls_memory_add(&t.base, before, HANDSHAKE_ESTIMATE_BYTES)
    SSL_set_app_data(t.ssl, t)
    BIO_up_ref(y.bio)
    SSL_set_bio(t.ssl, y.bio, y.bio)
    if t.x.outward:
        SSL_set_connect_state(t.ssl)
    else:
        SSL_set_accept_state(t.ssl)
    return 0


cdef int tls_prepare(Reactor* r, Conn* c, const char* host) noexcept nogil:
    """Prepare an outbound connection: we send first, and the peer must have the configured name. A name is sent in SNI, a
    numeric address is not [RFC 6066 3]."""
    cdef Tls* t = <Tls*>c.transport
    cdef bint numeric
    if not t.x.outward:
        return EPROTO
    if tls_ssl_new(<TlsLayer*>r.layer, t) != 0:
        return ENOMEM
    if host == NULL or host[0] == 0:
        return 0 if t.x.any_name else EPROTO
    numeric = tls_numeric(host)
    if not numeric and SSL_set_tlsext_host_name(t.ssl, host) != 1:
        return EPROTO
    if not t.x.any_name and tls_expect_name(t.ssl, host, numeric) != 1:
        return EPROTO
    if t.x.ocsp:
        SSL_set_tlsext_status_type(t.ssl, TLSEXT_STATUSTYPE_ocsp)
    return 0


cdef int tls_start(Reactor* r, Conn* c) noexcept nogil:
    cdef Tls* t = <Tls*>c.transport
    cdef TlsLayer* y = <TlsLayer*>r.layer
    cdef int got
    y.in_n = 0
    y.out_n = 0
    ERR_clear_error()
    got = SSL_do_handshake(t.ssl)
    if got <= 0 and SSL_get_error(t.ssl, got) != SSL_ERROR_WANT_READ:
        tls_fail(r, c)
        return EPROTO
    tls_queue_output(r, c, 1)
    return EPROTO if t.base.over else 0


cdef void tls_handshake(Reactor* r, Conn* c) noexcept nogil:
    """Continue the handshake as far as layer.in allows."""
    cdef Tls* t = <Tls*>c.transport
    cdef TlsLayer* y = <TlsLayer*>r.layer
    cdef int64_t before = tls_memory_now()
    cdef int got
    ERR_clear_error()
    got = SSL_do_handshake(t.ssl)
    tls_memory_add(&t.base, before, 0)
    if got == 1:
        t.done = t.base.open = 1
        peer_read(&t.peer, t.ssl)
        if t.x.outward and not tls_peer_good(t.ssl, t.x):
            tls_fail(r, c)
        elif t.x.compact and hand_to_records(y, t) != 0:
            records_end(&t.records)
        return
    tls_stopped(r, c, got)


# ---------------------------------------------------------------- from OpenSSL to records

cdef int hand_to_records(TlsLayer* y, Tls* t) noexcept nogil:
    """Move keys and counters into `records` and free the SSL, so that a connection needs 1 % of the memory. This is possible only
    while OpenSSL holds no data of the connection: its handshake is complete, the last flight is in layer.out, and the bytes after
    the client's Finished are in layer.in. Return -1 if another case applies; then OpenSSL continues."""
    cdef Suite* suite
    cdef int sent = ticket_records(y)
    if t.x.outward or sent < 0 or SSL_version(t.ssl) != TLS1_3_VERSION or SSL_has_pending(t.ssl):
        return -1
    if SSL_get_early_data_status(t.ssl) == SSL_EARLY_DATA_ACCEPTED:
        return -1
    if SSL_SESSION_get_max_fragment_length(SSL_get_session(t.ssl)) != 0:
        return -1               # smaller records were negotiated [RFC 6066 4]
    suite = suite_find(y.suites, SSL_CIPHER_get_protocol_id(SSL_get_current_cipher(t.ssl)))
    if suite == NULL or records_begin(&t.records, suite, <uint64_t>sent) != 0:
        return -1
    SSL_set_shutdown(t.ssl, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN)       # the session is valid: no side failed
    SSL_free(t.ssl)
    t.ssl = NULL
    t.base.memory = 0
    return 0


cdef int ticket_records(TlsLayer* y) noexcept nogil:
    """Return the number of records in layer.out that the handshake's last step wrote under the key of
    application data; -1 if there are others."""
    cdef size_t at = 0
    cdef int n = 0
    while y.out_n - at >= RECORD_HEADER_BYTES and y.out[at] == TYPE_DATA:
        at += RECORD_HEADER_BYTES + (<size_t>y.out[at + 3] << 8 | y.out[at + 4])
        if at > y.out_n:
            return -1
        n += 1
    return n if at == y.out_n else -1
