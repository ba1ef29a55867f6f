# distutils: libraries = ssl crypto
"""Run handshakes with OpenSSL, and hand a connection to `records` at the end of its handshake if its listener
has `tls_compact_records`. This module knows OpenSSL's SSL, but no sockets: the bytes are in the Handshake.

    loop:  input -> handshake_give -> (whole records) -> the pool, or handshake_step at once -> handshake_use -> layer.out

Invariants: an unfinished record of a handshake costs its bytes; OpenSSL's SSL begins with the first whole record. While `away` is 1, the loop touches
neither the SSL nor Peer, Records and buffers of the Handshake. A network has at most layer_per_network handshakes that began and did not end, those
that wait for a thread included. Beyond that the one that waits longest for its peer ends, if it has waited for IDLE_S; otherwise the new one
ends. So a burst of many clients behind one address does not end handshakes that are about to complete.
"""

from libc.errno cimport ENOMEM, EPROTO, ETIMEDOUT
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memmove

from cext.base.clock cimport clock_monotonic_us
from cext.net.conn cimport conn_gone
from cext.net.conn_state cimport CONN_SHAKING, Conn, Reactor, TransportContext
from cext.net.openssl cimport (
    BIO, BIO_METHOD, BIO_new, BIO_set_data, BIO_set_init, BIO_up_ref, ERR_clear_error, SSL_CIPHER_get_protocol_id,
    SSL_EARLY_DATA_ACCEPTED, SSL_ERROR_WANT_READ, SSL_ERROR_ZERO_RETURN, SSL_RECEIVED_SHUTDOWN, SSL_SENT_SHUTDOWN,
    SSL_SESSION_get_max_fragment_length, SSL_do_handshake, SSL_free, SSL_get_current_cipher, SSL_get_early_data_status,
    SSL_get_error, SSL_get_session, SSL_has_pending, SSL_new, SSL_set_accept_state, SSL_set_app_data, SSL_set_bio,
    SSL_set_connect_state, SSL_set_shutdown, SSL_set_tlsext_host_name, SSL_set_tlsext_status_type, SSL_version,
    TLS1_3_VERSION, TLSEXT_STATUSTYPE_ocsp,
)
from cext.net.records cimport (
    RECORD_HEADER_BYTES, Suite, TYPE_DATA, records_begin, records_end, suite_find,
)
from cext.net.tls_context cimport context_accepts
from cext.net.tls_layer cimport ERRORS_BYTES, tls_end, tls_errors
from cext.net.tls_memory cimport tls_memory_add, tls_memory_now
from cext.net.tls_output cimport tls_queue_output
from cext.net.tls_outward cimport tls_expect_name, tls_numeric, tls_peer_good
from cext.net.tls_peer cimport peer_read
from cext.net.tls_pool cimport (
    PLACE_LOOP, STEP_COMPLETE, STEP_ENDED, STEP_FAILED, STEP_MORE, Handshake, Lane, lane_busy, lane_enter, lane_idle, lane_leave, lane_of,
    pool_put,
)
from cext.net.tls_state cimport Tls, TlsContext, TlsLayer

cdef enum:
    TYPE_FIRST = 20             # content types of records are from this to TYPE_DATA
    PLAIN_RECORD_MAX = 16384 + 2048     # largest record of TLS 1.2
    IDLE_S = 2                  # of a whole clock: 1 to 2 seconds, more than the round trip of any usual client
    HANDSHAKE_ESTIMATE_BYTES = 48 * 1024        # OpenSSL's memory of a connection that waits for the client's Finished, measured


# ---------------------------------------------------------------- begin and end

cdef Handshake* handshake_new(Reactor* r, Conn* c) noexcept nogil:
    """Begin a handshake. Return NULL without memory."""
    cdef Tls* t = <Tls*>c.transport
    cdef TlsLayer* y = <TlsLayer*>r.layer
    cdef Handshake* h = <Handshake*>calloc(1, sizeof(Handshake))
    cdef Lane* lane
    if h == NULL:
        return NULL
    h.conn = c
    h.tls = t
    h.method = y.step_method
    h.place = PLACE_LOOP
    h.begun_us = r.now_us
    if not t.x.outward:
        lane = lane_of(&y.pool, c)
        if lane == NULL:
            free(h)
            return NULL
        lane_enter(lane, h)
        lane_idle(h, r.now_s)
    t.handshake = h
    return h


cdef bint handshake_allowed(Reactor* r, Conn* c) noexcept nogil:
    """Apply the limit of the network to a connection whose handshake has just begun. Return 0 if the connection must end."""
    cdef TlsLayer* y = <TlsLayer*>r.layer
    cdef Handshake* h = (<Tls*>c.transport).handshake
    cdef Lane* lane = h.lane
    cdef Handshake* old
    cdef char text[160]
    if lane == NULL or r.layer_per_network == 0 or lane.n_begun <= r.layer_per_network:
        return 1
    old = lane.oldest           # exists, because h waits for its peer
    snprintf(text, sizeof(text), "More than %u TLS handshakes of one address have begun and not ended (tls_handshakes_per_address). %s",
             r.layer_per_network, <const char*>b"This one ends." if r.now_s - old.idle_s < IDLE_S else <const char*>b"The oldest of them ends.")
    if r.now_s - old.idle_s < IDLE_S:
        lane_leave(&y.pool, h)
        tls_end(r, c, text)
        return 0
    lane_leave(&y.pool, old)
    (<Tls*>old.tls).base.over = 1       # nothing more is read
    r.on_transport_error(r.ctx, old.conn, text)
    conn_gone(r, old.conn, ETIMEDOUT)
    return 1


cdef void handshake_free(TlsLayer* y, Tls* t) noexcept nogil:
    cdef Handshake* h = t.handshake
    t.handshake = NULL
    if h == NULL:
        return
    lane_leave(&y.pool, h)
    free(h.received)
    free(h.out)
    free(h.errors)
    free(h)


# ---------------------------------------------------------------- one step, in the loop or in a thread

cdef int ssl_new(Handshake* h) noexcept nogil:
    cdef Tls* t = <Tls*>h.tls
    cdef BIO* bio
    t.ssl = SSL_new(t.x.ctx)
    bio = BIO_new(<const BIO_METHOD*>h.method) if t.ssl != NULL else NULL
    if bio == NULL:
        return -1
    BIO_set_data(bio, h)
    BIO_set_init(bio, 1)
    SSL_set_app_data(t.ssl, t)
    SSL_set_bio(t.ssl, bio, bio)
    if t.x.outward:
        SSL_set_connect_state(t.ssl)
    else:
        SSL_set_accept_state(t.ssl)
    return 0


cdef void handshake_step(Handshake* h) noexcept nogil:
    """Continue the handshake as far as the given records allow."""
    cdef Tls* t = <Tls*>h.tls
    cdef int64_t before = tls_memory_now()
    cdef int got = -1, why
    h.n_steps += 1
    h.result = STEP_FAILED
    ERR_clear_error()
    if t.ssl != NULL or ssl_new(h) == 0:
        got = SSL_do_handshake(t.ssl)
        why = SSL_get_error(t.ssl, got)
        if got == 1:
            peer_read(&t.peer, t.ssl)
            if not t.x.outward or tls_peer_good(t.ssl, t.x):
                h.result = STEP_COMPLETE
        elif why == SSL_ERROR_WANT_READ:
            h.result = STEP_MORE
        elif why == SSL_ERROR_ZERO_RETURN:
            h.result = STEP_ENDED
    if h.result == STEP_FAILED:
        h.errors = <char*>malloc(ERRORS_BYTES)
        if h.errors != NULL:
            tls_errors(t, h.errors, ERRORS_BYTES)
    ERR_clear_error()
    tls_memory_add(&h.account, before, HANDSHAKE_ESTIMATE_BYTES if h.n_steps == 1 else 0)


# ---------------------------------------------------------------- the loop's side

cdef void give_records(Handshake* h) noexcept nogil:
    """Allow OpenSSL to read the whole records. Input that is no record is given at once: OpenSSL answers it with an alert."""
    cdef const uint8_t* p = h.received + h.received_off
    cdef uint32_t at = 0, size
    while at < h.received_n:
        if not TYPE_FIRST <= p[at] <= TYPE_DATA:
            at = h.received_n
            break
        if h.received_n - at < RECORD_HEADER_BYTES:
            break
        size = <uint32_t>p[at + 3] << 8 | p[at + 4]
        if size > PLAIN_RECORD_MAX:
            at = h.received_n
            break
        if h.received_n - at - RECORD_HEADER_BYTES < size:
            break
        at += RECORD_HEADER_BYTES + size
    h.given = at


cdef int handshake_give(Reactor* r, Conn* c, const uint8_t* p, uint32_t n) noexcept nogil:
    """Add input. Return 1 if handshake_use must follow, 0 if more input or a thread must come first, -1 without memory."""
    cdef Tls* t = <Tls*>c.transport
    cdef TlsLayer* y = <TlsLayer*>r.layer
    cdef Handshake* h = t.handshake
    cdef uint8_t* bigger
    if h == NULL:
        h = handshake_new(r, c)
        if h == NULL:
            return -1
        if not handshake_allowed(r, c):
            return 0
    if h.received_off:
        memmove(h.received, h.received + h.received_off, h.received_n)
        h.received_off = 0
    if h.received_cap < h.received_n + n:
        bigger = <uint8_t*>realloc(h.received, h.received_n + n)
        if bigger == NULL:
            return -1
        h.received = bigger
        h.received_cap = h.received_n + n
    memcpy(h.received + h.received_n, p, n)
    h.received_n += n
    t.base.memory = h.account.memory + h.received_cap
    give_records(h)
    if h.given == 0:
        return 0
    lane_busy(h)
    if y.pool.n_threads == 0 or t.x.outward:
        handshake_step(h)
        return 1
    h.away = 1
    c.flags |= CONN_SHAKING
    pool_put(&y.pool, h)
    return 0


cdef size_t handshake_use(Reactor* r, Conn* c) noexcept nogil:
    """Use the result of a step: its output is in layer.out then, and after the end of the handshake the rest of its input is in layer.in.
    Return the size of output that no peer waits for, the tickets of TLS 1.3."""
    cdef Tls* t = <Tls*>c.transport
    cdef TlsLayer* y = <TlsLayer*>r.layer
    cdef Handshake* h = t.handshake
    cdef size_t tickets = 0
    cdef TransportContext* now = NULL
    cdef char outdated[200]
    h.ready = 0
    if h.result == STEP_COMPLETE and not t.x.outward and r.context_of != NULL:
        now = r.context_of(r.ctx, c)         # a reload may have exchanged it since the handshake began
    t.base.memory = h.account.memory + h.received_cap
    if h.out_n:                          # without bytes there may be no buffer
        memcpy(y.out, h.out, h.out_n)
    y.out_n = h.out_n
    free(h.out)
    h.out = NULL
    h.out_n = h.out_cap = 0
    y.in_n = 0
    if h.result == STEP_FAILED:
        r.handshakes_failed += not t.x.outward
        tls_end(r, c, h.errors if h.errors != NULL else <char*>b"")
    elif h.result == STEP_ENDED:
        t.base.over = 1
    elif h.result == STEP_MORE:
        lane_idle(h, r.now_s)
        if h.received_n == 0:
            free(h.received)         # a handshake that waits for its peer holds no buffer
            h.received = NULL
            h.received_off = h.received_cap = 0
    elif now != NULL and now != &t.x.base and not context_accepts(<TlsContext*>now, t):
        y.out_n = 0
        snprintf(outdated, sizeof(outdated), "The certificate or pre-shared key of a client is no longer valid since a reload "
                 "that came during its TLS handshake.")
        tls_end(r, c, outdated)
    elif h.result == STEP_COMPLETE:
        if h.received_n:
            memcpy(y.received, h.received + h.received_off, h.received_n)
        y.in_p = y.received
        y.in_n = h.received_n
        t.done = t.base.open = 1
        if not t.x.outward:
            r.handshakes += 1
            if r.on_shaken != NULL:
                r.on_shaken(r.ctx, clock_monotonic_us() - h.begun_us)
        if not t.x.outward and SSL_version(t.ssl) == TLS1_3_VERSION:
            tickets = y.out_n
        handshake_free(y, t)
        BIO_up_ref(y.bio)
        SSL_set_bio(t.ssl, y.bio, y.bio)         # frees the BIO of the handshake
        if t.x.compact and hand_to_records(y, t) != 0:
            records_end(&t.records)
    return tickets


# ---------------------------------------------------------------- outbound connections

cdef int tls_prepare(Reactor* r, Conn* c, const char* host) noexcept nogil:
    """Prepare an outbound connection: we send first, and the peer must have the configured name. A name is sent in SNI, a
    numeric address is not [RFC 6066 3]."""
    cdef Tls* t = <Tls*>c.transport
    cdef bint numeric
    if not t.x.outward:
        return EPROTO
    if handshake_new(r, c) == NULL or ssl_new(t.handshake) != 0:
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
    handshake_step(t.handshake)
    handshake_use(r, c)
    if t.base.over:
        return EPROTO
    tls_queue_output(r, c, 1)
    return EPROTO if t.base.over else 0


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
