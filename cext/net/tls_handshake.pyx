# distutils: libraries = ssl crypto
"""Run handshakes with OpenSSL, and hand a connection to `records` at the end of its handshake. This module knows OpenSSL's SSL, but no
sockets: the bytes are in layer.in and layer.out.

Invariant: a connection has an SSL from its first byte until `records` takes over, so an idle TLS 1.3 connection has none.
"""

from libc.errno cimport ENOMEM, EPROTO
from libc.stdint cimport uint64_t, uint8_t

from cext.net.conn_state cimport Conn, Reactor
from cext.net.openssl cimport (
    BIO_up_ref, ERR_clear_error, OPENSSL_cleanse, SSL, SSL_CIPHER_get_protocol_id, SSL_EARLY_DATA_ACCEPTED,
    SSL_ERROR_WANT_READ, SSL_RECEIVED_SHUTDOWN, SSL_SENT_SHUTDOWN, SSL_SESSION_get_max_fragment_length, SSL_do_handshake,
    SSL_free, SSL_get_current_cipher, SSL_get_early_data_status, SSL_get_error, SSL_get_session, SSL_has_pending, SSL_new,
    SSL_set_accept_state, SSL_set_app_data, SSL_set_bio, SSL_set_connect_state, SSL_set_shutdown, SSL_set_tlsext_host_name,
    SSL_set_tlsext_status_type, SSL_version, TLS1_3_VERSION, TLSEXT_STATUSTYPE_ocsp,
)
from cext.net.records cimport (
    RECORD_HEADER_BYTES, Suite, TYPE_DATA, records_begin, records_end, records_related, suite_find,
)
from cext.net.tls_context cimport keylog_begin, keylog_end
from cext.net.tls_layer cimport tls_fail, tls_stopped
from cext.net.tls_output cimport tls_queue_output
from cext.net.tls_outward cimport tls_expect_name, tls_numeric, tls_peer_good
from cext.net.tls_peer cimport peer_read
from cext.net.tls_state cimport Tls, TlsLayer

cdef extern from * nogil:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <string.h>
    extern void *memmem(const void *, size_t, const void *, size_t);
    """
    void* memmem(const void* p, size_t n, const void* what, size_t size)

cdef extern from "<malloc.h>" nogil:
    size_t malloc_usable_size(void* p)

cdef enum:
    # OpenSSL's SSL contains the secrets of TLS 1.3 in a row, each in 64 bytes. These are the distances of the others from
    # our secret of application data.
    HANDSHAKE_BEFORE = 512
    MASTER_BEFORE = 448
    LOGGED_BEFORE = 192
    EXPORTER_BEHIND = 64
    END_BEHIND = 128


cdef int tls_ssl_new(TlsLayer* y, Tls* t) noexcept nogil:
    """Create the SSL at the first byte, so that a client that only connects costs nothing."""
    ERR_clear_error()
    t.ssl = SSL_new(t.x.ctx)
    if t.ssl == NULL:
        return -1
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
    cdef bint has_our_secret = t.records.ours_n != 0
    cdef int got
    ERR_clear_error()
    if not t.x.outward:
        keylog_begin(t.x, has_our_secret)
    got = SSL_do_handshake(t.ssl)
    if not t.x.outward:
        keylog_end(t.x)
    if got == 1:
        t.done = t.base.open = 1
        peer_read(&t.peer, t.ssl)
        if t.x.outward and not tls_peer_good(t.ssl, t.x):
            tls_fail(r, c)
        elif not has_our_secret or hand_to_records(y, t) != 0:
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
    wipe_root_secrets(t.ssl, suite, t.records.ours.secret)
    wipe_secret(t.ssl, t.records.peers.secret, suite.secret_n)
    wipe_secret(t.ssl, t.records.ours.secret, suite.secret_n)
    SSL_set_shutdown(t.ssl, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN)       # the session is valid: no side failed
    SSL_free(t.ssl)
    t.ssl = NULL
    return 0


cdef void wipe_root_secrets(SSL* ssl, const Suite* s, const uint8_t* ours) noexcept nogil:
    """Wipe the secrets from which those of application data can be derived, and the exporter's. They are next to ours in the SSL.
    If the layout differs, nothing is touched."""
    cdef size_t size = malloc_usable_size(ssl)
    cdef uint8_t* at = <uint8_t*>memmem(ssl, size, ours, s.secret_n)
    cdef size_t before = <size_t>(at - <uint8_t*>ssl)
    if at == NULL or before < HANDSHAKE_BEFORE or size - before < END_BEHIND:
        return
    if records_related(s, at - HANDSHAKE_BEFORE, at - MASTER_BEFORE, at - LOGGED_BEFORE, at, at + EXPORTER_BEHIND):
        OPENSSL_cleanse(at - HANDSHAKE_BEFORE, HANDSHAKE_BEFORE + END_BEHIND)


cdef void wipe_secret(SSL* ssl, const uint8_t* secret, size_t n) noexcept nogil:
    """Wipe all copies of a secret, because OpenSSL frees an SSL with its secrets in it. The SSL does not read them
    again; no other bytes are touched."""
    cdef size_t left = malloc_usable_size(ssl)
    cdef uint8_t* at = <uint8_t*>ssl
    cdef uint8_t* found = <uint8_t*>memmem(at, left, secret, n)
    while found != NULL:
        OPENSSL_cleanse(found, n)
        left -= <size_t>(found + n - at)
        at = found + n
        found = <uint8_t*>memmem(at, left, secret, n)


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
