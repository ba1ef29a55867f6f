# distutils: libraries = ssl crypto
"""Implement TLS 1.2 and 1.3 as a transport of the reactor: OpenSSL's handshake, then `records` if it can take over, otherwise
OpenSSL. These modules do not know MQTT, nor the source of certificates (cext/setup/tls.pyx). The first listener that uses TLS
loads them: a broker without TLS does not load libssl.

    handshake: recv -> Handshake -> SSL_do_handshake, in a thread of the pool -> layer.out; at its end the facts about the peer are in
               `peer`. With `tls_compact_records` the keys go to `records`, and the SSL is freed
    read:      recv -> layer.in -> records_open, or SSL_read until it is empty -> the arena. Less is received than the arena holds,
               so no decrypted byte is left behind, and no further event is needed for it.
    flush:     the unsent bytes of the last flush, then all Segs, encrypted in records of up to 16 KiB -> layer.out -> one send

All connections of a loop use one BIO, which points to the bytes of the present connection. Output that a read causes (handshake,
alerts) waits for the turn's flush, in front of the answer that may follow.

Invariants: a connection at rest holds no buffer, neither ours nor OpenSSL's (SSL_MODE_RELEASE_BUFFERS), except for an unfinished
record. Until its first whole record it holds no SSL either. Handshakes run in threads (tls_pool); without threads, a turn does at most
TLS_HANDSHAKES_PER_TURN steps of them. At most TLS_OUT_BYTES encrypted bytes wait, and at most UNREAD_MAX_BYTES of a handshake whose
peer does not read. The error queue is empty before each call. Renegotiation is off.
"""

from libc.stdint cimport uint32_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from cext.net.conn_state cimport Conn, Reactor, Transport, TransportContext
from cext.net.openssl cimport (
    ERR_clear_error, SSL_CTX_new, SSL_CTX_set_app_data, SSL_free, TLS_client_method, TLS_server_method,
)
from cext.net.records cimport ALERT_CLOSE_NOTIFY, records_end
from cext.net.system cimport EPOLLIN, EPOLL_CTL_ADD, MSG_MORE, MSG_NOSIGNAL, epoll_ctl, epoll_event, send
from cext.net.tls_context cimport context_accepts, tls_context_release
from cext.net.tls_handshake cimport handshake_free, handshake_step, tls_prepare, tls_start
from cext.net.tls_input cimport tls_part_drop, tls_receive
from cext.net.tls_layer cimport tls_layer_free, tls_layer_new
from cext.net.tls_move cimport ticket_keys_restore, ticket_keys_save, tls_restore, tls_save
from cext.net.tls_output cimport tls_out_drop, tls_put_alert, tls_send
from cext.net.tls_peer cimport peer_clear, peer_write
from cext.net.tls_pool cimport Handshake, lane_leave, pool_cancel, pool_rest, pool_stop, pool_take, pool_threads
from cext.net.tls_state cimport Tls, TlsContext, TlsLayer

cdef extern from * nogil:
    """
    static const unsigned int mosq_source_layer = 5;     /* SOURCE_LAYER, as epoll's pointer for the pool's descriptor */
    """
    const unsigned int mosq_source_layer
    long atomic_add "__sync_add_and_fetch"(long* p, long n)


# ---------------------------------------------------------------- connections

cdef TlsLayer* tls_layer_of(Reactor* r) noexcept nogil:
    """Return the loop's layer, which is created for its first connection. NULL: no memory."""
    cdef TlsLayer* y = <TlsLayer*>r.layer
    cdef epoll_event e
    if y != NULL:
        return y
    y = tls_layer_new(pool_threads(r.layer_threads), handshake_step)
    if y == NULL:
        return NULL
    e.events = EPOLLIN
    e.data.ptr = <void*>&mosq_source_layer
    if epoll_ctl(r.ep, EPOLL_CTL_ADD, y.pool.event_fd, &e) != 0:
        tls_layer_end(y)
        return NULL
    y.ops.receive = tls_receive
    y.ops.send = tls_send
    y.ops.close = tls_close
    y.ops.describe = tls_describe
    y.ops.prepare = tls_prepare
    y.ops.start = tls_start
    y.ops.save = tls_save
    r.layer = y
    r.layer_free = tls_layer_end
    r.layer_next = tls_layer_next
    return y


cdef Conn* tls_layer_next(void* layer) noexcept nogil:
    """Return the next connection for which a thread has completed a step. Free those that were closed before."""
    cdef TlsLayer* y = <TlsLayer*>layer
    cdef Handshake* h = pool_take(&y.pool)
    while h != NULL and h.conn == NULL:
        tls_free(y, <Tls*>h.tls)
        h = pool_take(&y.pool)
    if h == NULL:
        return NULL
    h.away = 0
    h.ready = 1
    return h.conn


cdef void tls_layer_end(void* layer) noexcept nogil:
    """Stop the threads, and free the connections that were closed while a thread had their handshake."""
    cdef TlsLayer* y = <TlsLayer*>layer
    cdef Handshake* h
    pool_stop(&y.pool)
    h = pool_rest(&y.pool)
    while h != NULL:
        if h.conn == NULL:
            tls_free(y, <Tls*>h.tls)
        h = pool_rest(&y.pool)
    tls_layer_free(y)


cdef Transport* tls_begin(TransportContext* context, Reactor* r, Conn* c) noexcept nogil:
    cdef TlsLayer* y = tls_layer_of(r)
    cdef Tls* t = <Tls*>calloc(1, sizeof(Tls)) if y != NULL else NULL
    if t == NULL:
        return NULL
    t.base.ops = &y.ops
    t.x = <TlsContext*>context
    atomic_add(&t.x.refs, 1)
    return &t.base


cdef void tls_close(Reactor* r, Conn* c) noexcept nogil:
    cdef Tls* t = <Tls*>c.transport
    cdef TlsLayer* y = <TlsLayer*>r.layer
    cdef int flags = MSG_NOSIGNAL
    y.out_n = 0
    if t.base.unsent:
        memcpy(y.out, t.out + t.out_off, t.base.unsent)      # usually an alert
        y.out_n = t.base.unsent
        tls_out_drop(r, t)
    if t.base.open and c.out_bytes == 0:
        flags |= 0 if y.out_n else MSG_MORE      # one TCP segment with the FIN that follows
        tls_put_alert(y, t, ALERT_CLOSE_NOTIFY)
    if y.out_n:
        send(c.fd, y.out, y.out_n, flags)
    y.out_n = 0
    tls_part_drop(r, t)
    if t.handshake != NULL and t.handshake.away and not pool_cancel(&y.pool, t.handshake):
        lane_leave(&y.pool, t.handshake)
        t.handshake.conn = NULL      # tls_layer_next frees the rest when the thread has done its step
        return
    tls_free(y, t)


cdef void tls_free(TlsLayer* y, Tls* t) noexcept nogil:
    handshake_free(y, t)
    if t.ssl != NULL:
        SSL_free(t.ssl)
    peer_clear(&t.peer)
    records_end(&t.records)
    tls_context_release(&t.x.base)
    free(t)


# ---------------------------------------------------------------- identity of the peer

cdef int tls_describe(const Conn* c, int what, uint8_t* out, uint32_t n) noexcept nogil:
    cdef const Tls* t = <const Tls*>c.transport
    return peer_write(&t.peer, what, out, n) if t.done else -1


cdef bint tls_verifies(TransportContext* context, const Conn* c) noexcept nogil:
    """Check the certificate or key by the settings of `context`, which may be newer than the connection's own."""
    cdef TlsContext* x = <TlsContext*>context
    cdef const Tls* t = <const Tls*>c.transport
    return t == NULL or not t.done or not t.outdated and context_accepts(x, t)      # the end of a handshake checks it too


# ---------------------------------------------------------------- contexts

cdef TlsContext* tls_context_new(bint outward) noexcept nogil:
    cdef TlsContext* x = <TlsContext*>calloc(1, sizeof(TlsContext))
    if x == NULL:
        return NULL
    x.base.begin = tls_begin
    x.base.verifies = tls_verifies
    x.base.release = tls_context_release
    x.base.restore = tls_restore
    x.base.secrets_save = ticket_keys_save
    x.base.secrets_restore = ticket_keys_restore
    x.refs = 1
    x.keylog_fd = -1
    ERR_clear_error()
    x.outward = outward
    x.ctx = SSL_CTX_new(TLS_client_method() if outward else TLS_server_method())
    if x.ctx == NULL:
        free(x)
        return NULL
    SSL_CTX_set_app_data(x.ctx, x)
    return x
