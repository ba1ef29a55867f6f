"""TLS 1.2 and 1.3 as a transport of the reactor: OpenSSL's handshake, then `records` where that may take over, OpenSSL otherwise. Knows when which
of them is asked; not MQTT, and not where certificates come from (cext/setup/tls.pyx). Loaded by the first listener that asks for it: a broker
without TLS does not load libssl.

    handshake: recv -> layer.in -> SSL_do_handshake -> layer.out; at its end the keys go to `records`, the facts to `peer`, and the SSL goes
    read:      recv -> layer.in -> records_open, or SSL_read until it is empty -> the arena. Less is received than the arena holds, so nothing
               decrypted is left behind, and no event is owed for it.
    flush:     what could not be sent last time, then all Segs, encrypted in records of up to 16 KiB -> layer.out -> one send

One BIO serves all connections of a loop: it only says where the bytes of the connection at hand are. What is to be sent because of what was
read (handshake, alerts) waits for the turn's flush, in front of the answer that may follow.

Invariants: a connection at rest holds no buffer, neither ours nor OpenSSL's (SSL_MODE_RELEASE_BUFFERS), but that of an unfinished record; until
the first byte it holds no SSL either; a turn does at most HANDSHAKES_PER_TURN steps of handshakes, so that a storm of them does not hold
others up; encrypted bytes that wait are at most OUT_BYTES, and those that a handshake may pile up without reading, UNREAD_MAX_BYTES. The error
queue is empty before each call. Renegotiation is off.
"""

from libc.errno cimport EAGAIN, EINTR, ENOBUFS, ENOMEM, EPROTO, errno
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from cext.base.buffer cimport buffer_give, buffer_take
from cext.net.openssl cimport (
    BIO, BIO_CTRL_FLUSH, BIO_METHOD, BIO_TYPE_SOURCE_SINK, BIO_clear_retry_flags, BIO_free, BIO_get_data, BIO_meth_free,
    BIO_meth_new, BIO_meth_set_ctrl, BIO_meth_set_read, BIO_meth_set_write, BIO_new, BIO_set_data, BIO_set_init,
    BIO_set_retry_read, BIO_up_ref, ERR_LIB_SSL, ERR_R_INTERNAL_ERROR, ERR_clear_error, ERR_error_string_n, ERR_get_error,
    ERR_raise, OPENSSL_cleanse, SSL, SSL_AD_REASON_OFFSET, SSL_CIPHER_get_protocol_id, SSL_CTX_new, SSL_CTX_set_app_data,
    SSL_EARLY_DATA_ACCEPTED, SSL_ERROR_WANT_READ, SSL_ERROR_ZERO_RETURN, SSL_RECEIVED_SHUTDOWN, SSL_R_BAD_LENGTH,
    SSL_R_BAD_VALUE, SSL_R_DATA_LENGTH_TOO_LONG, SSL_R_DECRYPTION_FAILED_OR_BAD_RECORD_MAC, SSL_R_UNEXPECTED_MESSAGE,
    SSL_SENT_SHUTDOWN, SSL_SESSION_get_max_fragment_length, SSL_do_handshake, SSL_free, SSL_get_current_cipher,
    SSL_get_early_data_status, SSL_get_error, SSL_get_session, SSL_get_verify_result, SSL_has_pending, SSL_new, SSL_pending,
    SSL_read, SSL_set_accept_state, SSL_set_app_data, SSL_set_bio, SSL_set_connect_state, SSL_set_shutdown,
    SSL_set_tlsext_host_name, SSL_set_tlsext_status_type, SSL_shutdown, SSL_version, SSL_write, TLS1_3_VERSION,
    TLSEXT_STATUSTYPE_ocsp, TLS_client_method, TLS_server_method, X509_V_OK, X509_verify_cert_error_string,
)
from cext.net.reactor cimport (
    ARENA_BYTES, CONN_CLOSING, CONN_DIRTY, Conn, NOTHING, Reactor, Seg, Transport, TransportContext, TransportOps,
    conn_mark_dirty,
)
from cext.net.records cimport (
    ALERT_BAD_RECORD_MAC, ALERT_CLOSE_NOTIFY, ALERT_DECODE_ERROR, ALERT_ILLEGAL_PARAMETER, ALERT_INTERNAL_ERROR,
    ALERT_RECORD_OVERFLOW, ALERT_UNEXPECTED_MESSAGE, ENDED_BY_CLOSE, ENDED_BY_PEER, ENDED_BY_US, ENDED_NOT, RECORD_BYTES,
    RECORD_EXTRA, RECORD_HEADER_BYTES, Records, Suite, TYPE_DATA, records_begin, records_end, records_open, records_related,
    records_renew, records_say, records_seal, suite_find, suites_fini, suites_init,
)
from cext.net.tls_context cimport keylog_begin, keylog_end, tls_context_release
from cext.net.tls_outward cimport tls_expect, tls_numeric, tls_peer_good
from cext.net.tls_peer cimport peer_clear, peer_read, peer_verifies, peer_write

cdef extern from "<sys/socket.h>" nogil:
    ssize_t recv(int fd, void* p, size_t n, int flags)
    ssize_t send(int fd, const void* p, size_t n, int flags)
    int MSG_NOSIGNAL, MSG_MORE

cdef extern from "<malloc.h>" nogil:
    size_t malloc_usable_size(void* p)

cdef extern from * nogil:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <string.h>
    extern void *memmem(const void *, size_t, const void *, size_t);
    """
    void* memmem(const void* p, size_t n, const void* what, size_t size)

cdef extern from * nogil:
    """
    #include <errno.h>
    static inline void errno_set(int e) { errno = e; }
    """
    void errno_set(int e)
    long atomic_add "__sync_add_and_fetch"(long* p, long n)

cdef enum:
    IN_BYTES = ARENA_BYTES - 20 * 1024      # and an unfinished record that OpenSSL may hold: it all fits in the arena
    OUT_BYTES = 128 * 1024
    UNREAD_MAX_BYTES = 64 * 1024
    HANDSHAKES_PER_TURN = 8
    BIO_INDEX = 127              # any: nobody asks for its type
    ERRORS_MAX = 8               # lines per connection

cdef enum:
    # OpenSSL's SSL has the secrets of TLS 1.3 in a row, each in 64 bytes: how far these begin before ours of application data, or behind it
    HANDSHAKE_BEFORE = 512
    MASTER_BEFORE = 448
    LOGGED_BEFORE = 192
    EXPORTER_BEHIND = 64
    END_BEHIND = 128


ctypedef struct Layer:          # what the connections of one loop share
    TransportOps ops
    BIO_METHOD* method
    BIO* bio
    const uint8_t* in_p         # received, not decrypted yet: of the connection at hand
    size_t in_n
    size_t out_n
    uint64_t turn               # in which `steps` of handshakes were done
    uint32_t steps
    Suite suites[3]             # SUITES
    uint8_t received[108 * 1024]         # IN_BYTES
    uint8_t out[128 * 1024]     # OUT_BYTES
    uint8_t gathered[16384]     # RECORD_BYTES


# ---------------------------------------------------------------- the layer

cdef int bio_read(BIO* b, char* p, int n) noexcept nogil:
    cdef Layer* y = <Layer*>BIO_get_data(b)
    cdef size_t size = <size_t>n if <size_t>n < y.in_n else y.in_n
    BIO_clear_retry_flags(b)
    if size == 0:
        BIO_set_retry_read(b)
        return -1
    if y.out_n > UNREAD_MAX_BYTES:
        return -1                # it only makes us talk: each ClientHello after the handshake is answered with an alert
    memcpy(p, y.in_p, size)
    y.in_p += size
    y.in_n -= size
    return <int>size


cdef int bio_write(BIO* b, const char* p, int n) noexcept nogil:
    cdef Layer* y = <Layer*>BIO_get_data(b)
    BIO_clear_retry_flags(b)
    if n < 0 or OUT_BYTES - y.out_n < <size_t>n:
        return -1
    memcpy(y.out + y.out_n, p, <size_t>n)
    y.out_n += <size_t>n
    return n


cdef long bio_ctrl(BIO* b, int command, long number, void* p) noexcept nogil:
    return 1 if command == BIO_CTRL_FLUSH else 0


cdef void layer_free(void* layer) noexcept nogil:
    cdef Layer* y = <Layer*>layer
    if y != NULL:
        suites_fini(y.suites)
        BIO_free(y.bio)
        BIO_meth_free(y.method)
        free(y)


cdef Layer* layer_of(Reactor* r) noexcept nogil:
    """The loop's; made for its first connection. NULL: no memory."""
    cdef Layer* y = <Layer*>r.layer
    cdef int suited
    if y != NULL:
        return y
    y = <Layer*>malloc(sizeof(Layer))
    if y == NULL:
        return NULL
    y.ops.receive = tls_receive
    y.ops.send = tls_send
    y.ops.close = tls_close
    y.ops.tell = tls_log
    y.ops.aim = tls_aim
    y.ops.greet = tls_greet
    y.in_n = y.out_n = 0
    y.turn = 0
    y.steps = 0
    y.bio = NULL
    suited = suites_init(y.suites)
    y.method = BIO_meth_new(BIO_INDEX | BIO_TYPE_SOURCE_SINK, "mosq")
    if y.method != NULL:
        BIO_meth_set_read(y.method, bio_read)
        BIO_meth_set_write(y.method, bio_write)
        BIO_meth_set_ctrl(y.method, bio_ctrl)
        y.bio = BIO_new(y.method)
    if y.bio == NULL or suited != 0:
        layer_free(y)
        return NULL
    BIO_set_data(y.bio, y)
    BIO_set_init(y.bio, 1)
    r.layer = y
    r.layer_free = layer_free
    return y


# ---------------------------------------------------------------- a connection's life

cdef Transport* tls_begin(TransportContext* context, Reactor* r, Conn* c) noexcept nogil:
    cdef Layer* y = layer_of(r)
    cdef Tls* t = <Tls*>calloc(1, sizeof(Tls)) if y != NULL else NULL
    if t == NULL:
        return NULL
    t.base.ops = &y.ops
    t.x = <TlsContext*>context
    atomic_add(&t.x.refs, 1)
    return &t.base


cdef int ssl_make(Layer* y, Tls* t) noexcept nogil:
    """At the first byte: who only connects costs nothing."""
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


cdef int tls_aim(Reactor* r, Conn* c, const char* host) noexcept nogil:
    """Outwards we speak first, and the peer must be whom we called. A name goes into SNI, a numeric address does not [RFC 6066 3]."""
    cdef Tls* t = <Tls*>c.transport
    cdef bint numeric
    if not t.x.outward:
        return EPROTO
    if ssl_make(<Layer*>r.layer, t) != 0:
        return ENOMEM
    if host == NULL or host[0] == 0:
        return 0 if t.x.any_name else EPROTO
    numeric = tls_numeric(host)
    if not numeric and SSL_set_tlsext_host_name(t.ssl, host) != 1:
        return EPROTO
    if not t.x.any_name and tls_expect(t.ssl, host, numeric) != 1:
        return EPROTO
    if t.x.ocsp:
        SSL_set_tlsext_status_type(t.ssl, TLSEXT_STATUSTYPE_ocsp)
    return 0


cdef int tls_greet(Reactor* r, Conn* c) noexcept nogil:
    cdef Tls* t = <Tls*>c.transport
    cdef Layer* y = <Layer*>r.layer
    cdef int got
    y.in_n = 0
    y.out_n = 0
    ERR_clear_error()
    got = SSL_do_handshake(t.ssl)
    if got <= 0 and SSL_get_error(t.ssl, got) != SSL_ERROR_WANT_READ:
        tls_fail(r, c)
        return EPROTO
    write_with_flush(r, c, 1)
    return EPROTO if t.base.over else 0


cdef void tls_close(Reactor* r, Conn* c) noexcept nogil:
    cdef Tls* t = <Tls*>c.transport
    cdef Layer* y = <Layer*>r.layer
    cdef int flags = MSG_NOSIGNAL
    y.out_n = 0
    if t.base.unsent:
        memcpy(y.out, t.out + t.out_off, t.base.unsent)      # an alert, as a rule
        y.out_n = t.base.unsent
        out_drop(r, t)
    if t.base.open and c.out_bytes == 0:
        flags |= 0 if y.out_n else MSG_MORE      # in one segment with our end, which is next
        alert_put(y, t, ALERT_CLOSE_NOTIFY)
    if y.out_n:
        send(c.fd, y.out, y.out_n, flags)
    y.out_n = 0
    if t.ssl != NULL:
        SSL_free(t.ssl)
    peer_clear(&t.peer)
    part_drop(r, t)
    records_end(&t.records)
    tls_context_release(&t.x.base)
    free(t)


# ---------------------------------------------------------------- the handshake

cdef void handshake(Reactor* r, Conn* c) noexcept nogil:
    """As far as it goes with layer.in."""
    cdef Tls* t = <Tls*>c.transport
    cdef Layer* y = <Layer*>r.layer
    cdef bint ours_known = t.records.ours_n != 0
    cdef int got
    ERR_clear_error()
    if not t.x.outward:
        keylog_begin(t.x, ours_known)
    got = SSL_do_handshake(t.ssl)
    if not t.x.outward:
        keylog_end(t.x)
    if got == 1:
        t.done = t.base.open = 1
        peer_read(&t.peer, t.ssl)
        if t.x.outward and not tls_peer_good(t.ssl, t.x):
            tls_fail(r, c)
        elif not ours_known or take_over(y, t) != 0:
            records_end(&t.records)
        return
    stopped(r, c, got)


cdef int take_over(Layer* y, Tls* t) noexcept nogil:
    """Keys and counters go into `records`, and the SSL goes: 1 % of the memory. Only at the moment at which OpenSSL holds nothing of the
    connection: its handshake is over, the last flight lies in layer.out, and what the client sent behind its Finished in layer.in. -1: it is
    not as simple as that, and OpenSSL goes on."""
    cdef Suite* suite
    cdef int sent = tickets_sent(y)
    if t.x.outward or sent < 0 or SSL_version(t.ssl) != TLS1_3_VERSION or SSL_has_pending(t.ssl):
        return -1
    if SSL_get_early_data_status(t.ssl) == SSL_EARLY_DATA_ACCEPTED:
        return -1
    if SSL_SESSION_get_max_fragment_length(SSL_get_session(t.ssl)) != 0:
        return -1                # smaller records are agreed on [RFC 6066 4]
    suite = suite_find(y.suites, SSL_CIPHER_get_protocol_id(SSL_get_current_cipher(t.ssl)))
    if suite == NULL or records_begin(&t.records, suite, <uint64_t>sent) != 0:
        return -1
    wipe_roots(t.ssl, suite, t.records.ours.secret)
    wipe(t.ssl, t.records.peers.secret, suite.secret_n)
    wipe(t.ssl, t.records.ours.secret, suite.secret_n)
    SSL_set_shutdown(t.ssl, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN)       # nobody failed: its session is good
    SSL_free(t.ssl)
    t.ssl = NULL
    return 0


cdef void wipe_roots(SSL* ssl, const Suite* s, const uint8_t* ours) noexcept nogil:
    """What the secrets of application data can be derived from again, and the exporter's, lie beside ours. Only if they do: in an SSL of another
    order nothing is touched."""
    cdef size_t size = malloc_usable_size(ssl)
    cdef uint8_t* at = <uint8_t*>memmem(ssl, size, ours, s.secret_n)
    cdef size_t before = <size_t>(at - <uint8_t*>ssl)
    if at == NULL or before < HANDSHAKE_BEFORE or size - before < END_BEHIND:
        return
    if records_related(s, at - HANDSHAKE_BEFORE, at - MASTER_BEFORE, at - LOGGED_BEFORE, at, at + EXPORTER_BEHIND):
        OPENSSL_cleanse(at - HANDSHAKE_BEFORE, HANDSHAKE_BEFORE + END_BEHIND)


cdef void wipe(SSL* ssl, const uint8_t* secret, size_t n) noexcept nogil:
    """OpenSSL frees an SSL with its secrets in it. They are never looked at again; nothing else in it is touched."""
    cdef size_t left = malloc_usable_size(ssl)
    cdef uint8_t* at = <uint8_t*>ssl
    cdef uint8_t* found = <uint8_t*>memmem(at, left, secret, n)
    while found != NULL:
        OPENSSL_cleanse(found, n)
        left -= <size_t>(found + n - at)
        at = found + n
        found = <uint8_t*>memmem(at, left, secret, n)


cdef int tickets_sent(Layer* y) noexcept nogil:
    """How many records are in layer.out: what the handshake's last step wrote, under the key of application data. -1: something else."""
    cdef size_t at = 0
    cdef int n = 0
    while y.out_n - at >= RECORD_HEADER_BYTES and y.out[at] == TYPE_DATA:
        at += RECORD_HEADER_BYTES + (<size_t>y.out[at + 3] << 8 | y.out[at + 4])
        if at > y.out_n:
            return -1
        n += 1
    return n if at == y.out_n else -1


# ---------------------------------------------------------------- input

cdef ssize_t tls_receive(Reactor* r, Conn* c, uint8_t* p, size_t n) noexcept nogil:
    cdef Tls* t = <Tls*>c.transport
    cdef Layer* y = <Layer*>r.layer
    cdef ssize_t got
    cdef size_t total = 0, tickets = 0
    if t.base.over:
        return NOTHING
    if not t.done and not step_allowed(r, y):
        return NOTHING           # it is still readable, and comes up again next turn
    got = recv(c.fd, y.received + t.part_n, IN_BYTES - t.part_n, 0)
    if got <= 0:
        if got == 0 or (errno != EAGAIN and errno != EINTR):
            t.base.open = 0
        return got
    if not t.done and t.ssl == NULL and ssl_make(y, t) != 0:
        tls_fail(r, c)
        return NOTHING
    if t.part_n:
        memcpy(y.received, t.part, t.part_n)
    y.in_p = y.received
    y.in_n = t.part_n + <size_t>got
    y.out_n = 0
    if not t.done:
        handshake(r, c)
        tickets = y.out_n if t.ssl == NULL else 0
    if t.done and not t.base.over:
        total = take_records(r, c, p) if t.ssl == NULL else decrypt(r, c, p, n)
    y.in_n = 0
    if y.out_n:
        write_with_flush(r, c, y.out_n > tickets or t.base.over)
    return <ssize_t>total if total else NOTHING


cdef bint step_allowed(Reactor* r, Layer* y) noexcept nogil:
    if y.turn != r.turns:
        y.turn = r.turns
        y.steps = 0
    y.steps += 1
    return y.steps <= HANDSHAKES_PER_TURN


cdef size_t take_records(Reactor* r, Conn* c, uint8_t* p) noexcept nogil:
    """All whole records of layer.in; what has come of another waits in `part`."""
    cdef Tls* t = <Tls*>c.transport
    cdef Layer* y = <Layer*>r.layer
    cdef Records* x = &t.records
    cdef size_t total
    cdef size_t used = records_open(x, y.in_p, y.in_n, p, &total, <uint64_t>r.now_s)
    if x.ended == ENDED_NOT and part_keep(r, t, y.in_p + used, y.in_n - used) != 0:
        x.ended = ENDED_BY_US
        x.alert = ALERT_INTERNAL_ERROR
    if x.ended == ENDED_NOT:
        return total
    if x.ended == ENDED_BY_CLOSE:
        t.base.over = 1
        return total
    if x.ended == ENDED_BY_US:
        alert_put(y, t, x.alert)
    ERR_clear_error()
    ERR_raise(ERR_LIB_SSL, SSL_AD_REASON_OFFSET + x.alert if x.ended == ENDED_BY_PEER else alert_reason(x.alert))
    tls_fail(r, c)
    return total


cdef int alert_reason(int alert) noexcept nogil:
    """OpenSSL's words for what made us say it."""
    return (SSL_R_UNEXPECTED_MESSAGE if alert == ALERT_UNEXPECTED_MESSAGE
            else SSL_R_DECRYPTION_FAILED_OR_BAD_RECORD_MAC if alert == ALERT_BAD_RECORD_MAC
            else SSL_R_DATA_LENGTH_TOO_LONG if alert == ALERT_RECORD_OVERFLOW
            else SSL_R_BAD_LENGTH if alert == ALERT_DECODE_ERROR
            else SSL_R_BAD_VALUE if alert == ALERT_ILLEGAL_PARAMETER else ERR_R_INTERNAL_ERROR)


cdef void part_drop(Reactor* r, Tls* t) noexcept nogil:
    if t.part != NULL:
        buffer_give(&r.buffers, t.part, t.part_cap)
    t.part = NULL
    t.part_n = t.part_cap = 0


cdef int part_keep(Reactor* r, Tls* t, const uint8_t* p, size_t n) noexcept nogil:
    """What came before is in layer.in, too."""
    if n == 0 or n > t.part_cap:
        part_drop(r, t)
    if n and t.part == NULL:
        t.part = buffer_take(&r.buffers, n, &t.part_cap)
        if t.part == NULL:
            return -1
    if n:
        memcpy(t.part, p, n)
    t.part_n = <uint32_t>n
    return 0


cdef size_t decrypt(Reactor* r, Conn* c, uint8_t* p, size_t n) noexcept nogil:
    """All of layer.in, by OpenSSL."""
    cdef Tls* t = <Tls*>c.transport
    cdef Layer* y = <Layer*>r.layer
    cdef size_t total = 0
    cdef int got
    while True:
        ERR_clear_error()
        got = SSL_read(t.ssl, p + total, <int>(n - total))
        if got > 0:
            total += <size_t>got
            if y.in_n == 0 and SSL_pending(t.ssl) == 0:
                return total     # to ask again would only make OpenSSL take a buffer
            continue
        stopped(r, c, got)
        return total


cdef void stopped(Reactor* r, Conn* c, int got) noexcept nogil:
    """Why OpenSSL does not go on: for want of input, as a rule."""
    cdef Tls* t = <Tls*>c.transport
    cdef int why = SSL_get_error(t.ssl, got)
    if why == SSL_ERROR_ZERO_RETURN:
        t.base.over = 1          # close_notify
    elif why != SSL_ERROR_WANT_READ:
        tls_fail(r, c)


cdef void tls_fail(Reactor* r, Conn* c) noexcept nogil:
    """The connection is of no use any more; OpenSSL has put an alert into layer.out."""
    cdef Tls* t = <Tls*>c.transport
    cdef char line[256]
    cdef char text[200]
    cdef unsigned long e
    cdef int i
    t.base.over = 1
    t.base.open = 0
    t.base.error = EPROTO
    if t.x.outward and t.ssl != NULL and SSL_get_verify_result(t.ssl) != X509_V_OK:
        snprintf(line, sizeof(line), "The certificate of the other side was not accepted: %s.",
                 X509_verify_cert_error_string(SSL_get_verify_result(t.ssl)))
        r.on_wrong(r.ctx, c, line)
    for i in range(ERRORS_MAX):
        e = ERR_get_error()
        if e == 0:
            break
        ERR_error_string_n(e, text, sizeof(text))
        snprintf(line, sizeof(line), "OpenSSL Error[%d]: %s", i, text)
        r.on_wrong(r.ctx, c, line)
    ERR_clear_error()


# ---------------------------------------------------------------- output

cdef void out_drop(Reactor* r, Tls* t) noexcept nogil:
    if t.out != NULL:
        buffer_give(&r.buffers, t.out, t.out_cap)
    t.out = NULL
    t.out_off = t.out_cap = 0
    t.base.unsent = 0


cdef int out_keep(Reactor* r, Tls* t, const uint8_t* p, size_t n) noexcept nogil:
    """For later; nothing else waits."""
    t.out = buffer_take(&r.buffers, n, &t.out_cap)
    if t.out == NULL:
        return -1
    memcpy(t.out, p, n)
    t.out_off = 0
    t.base.unsent = <uint32_t>n
    return 0


cdef void write_with_flush(Reactor* r, Conn* c, bint now) noexcept nogil:
    """What was written while we read goes out with the flush, behind what waits already; not `now`: with the answer to the first packet, as
    nobody waits for a ticket [RFC 8446 4.6.1]."""
    cdef Tls* t = <Tls*>c.transport
    cdef Layer* y = <Layer*>r.layer
    cdef uint8_t* old = t.out
    cdef uint32_t cap = t.out_cap, n = t.base.unsent
    if n + y.out_n > <size_t>(OUT_BYTES if t.done else UNREAD_MAX_BYTES):     # never more than layer.out holds
        tls_fail(r, c)               # it makes us talk and does not listen
        y.out_n = 0
        return
    if n:
        t.out = buffer_take(&r.buffers, n + y.out_n, &t.out_cap)
        if t.out == NULL:
            t.out = old
            t.out_cap = cap
            tls_fail(r, c)
            return
        memcpy(t.out, old + t.out_off, n)
        memcpy(t.out + n, y.out, y.out_n)
        t.out_off = 0
        t.base.unsent = n + <uint32_t>y.out_n
        buffer_give(&r.buffers, old, cap)
    elif out_keep(r, t, y.out, y.out_n) != 0:
        tls_fail(r, c)
        return
    y.out_n = 0
    if now and not c.flags & CONN_DIRTY:
        conn_mark_dirty(r, c)


cdef bint alert_put(Layer* y, Tls* t, uint8_t alert) noexcept nogil:
    """Into layer.out, if it can still be said. 0: there is no room now."""
    cdef int n
    if OUT_BYTES - y.out_n < RECORD_EXTRA:
        return 0
    if t.ssl != NULL:
        ERR_clear_error()
        SSL_shutdown(t.ssl)
    else:
        n = records_say(&t.records, alert, y.out + y.out_n)
        y.out_n += <size_t>n if n > 0 else 0
    return 1


cdef uint32_t gather(Seg** at, uint32_t* off, uint8_t* out) noexcept nogil:
    """Copies what goes into one record."""
    cdef Seg* s = at[0]
    cdef uint32_t n = 0, more
    while s != NULL and n < RECORD_BYTES:
        more = s.len - off[0] if s.len - off[0] < RECORD_BYTES - n else RECORD_BYTES - n
        memcpy(out + n, s.p + off[0], more)
        n += more
        off[0] += more
        if off[0] == s.len:
            s = s.next
            off[0] = s.off if s != NULL else 0
    at[0] = s
    return n


cdef int encrypt_one(Layer* y, Tls* t, const uint8_t* p, uint32_t n) noexcept nogil:
    """The n bytes at p, in one record, into layer.out. -1: it cannot be done."""
    cdef int size
    if t.ssl != NULL:
        ERR_clear_error()
        return 0 if SSL_write(t.ssl, p, <int>n) == <int>n else -1
    size = records_seal(&t.records, TYPE_DATA, p, n, y.out + y.out_n)
    y.out_n += <size_t>size if size > 0 else 0
    return 0 if size > 0 else -1


cdef ssize_t encrypt(Layer* y, Tls* t, Seg* s) noexcept nogil:
    """As much of the Segs as there is room for. How many bytes; -1: it cannot be done."""
    cdef ssize_t taken = 0
    cdef uint32_t at = s.off, n
    cdef const uint8_t* p
    cdef int renewed
    while s != NULL and OUT_BYTES - y.out_n >= RECORD_BYTES + RECORD_EXTRA:
        if t.ssl == NULL:
            renewed = records_renew(&t.records, y.out + y.out_n)
            if renewed < 0:
                return -1
            y.out_n += <size_t>renewed
        n = s.len - at
        p = s.p + at
        if n >= RECORD_BYTES or (s.next == NULL and t.ssl != NULL):
            n = n if n < RECORD_BYTES else RECORD_BYTES
            at += n
            if at == s.len:
                s = s.next
                at = s.off if s != NULL else 0
        else:                    # ours is encrypted where it lies
            p = &y.gathered[0] if t.ssl != NULL else &y.out[y.out_n + RECORD_HEADER_BYTES]
            n = gather(&s, &at, <uint8_t*>p)
        if n:
            if encrypt_one(y, t, p, n) != 0:
                return -1
            taken += n
    return taken


cdef ssize_t tls_send(Reactor* r, Conn* c) noexcept nogil:
    cdef Tls* t = <Tls*>c.transport
    cdef Layer* y = <Layer*>r.layer
    cdef ssize_t taken = 0, sent
    y.out_n = t.base.unsent
    if y.out_n:
        memcpy(y.out, t.out + t.out_off, y.out_n)
        out_drop(r, t)
    if c.out_head != NULL:
        taken = encrypt(y, t, c.out_head) if t.done and t.base.open else -1
        if taken < 0:
            errno_set(EPROTO)
            t.base.open = 0
            return -1
    if c.flags & CONN_CLOSING and t.base.open and <size_t>taken == c.out_bytes:
        t.base.open = not alert_put(y, t, ALERT_CLOSE_NOTIFY)      # without room it is asked for again, when some of this has gone
    if y.out_n == 0:
        return taken
    sent = send(c.fd, y.out, y.out_n, MSG_NOSIGNAL)
    if sent < 0:
        if errno != EAGAIN and errno != EINTR and errno != ENOBUFS:
            t.base.open = 0
            return -1
        sent = 0
    if <size_t>sent < y.out_n and out_keep(r, t, y.out + sent, y.out_n - <size_t>sent) != 0:
        t.base.open = 0          # a record is lost
        errno_set(EPROTO)
        return -1
    if t.base.unsent and taken == 0 and sent == 0:
        errno_set(EAGAIN)
        return -1
    return taken


# ---------------------------------------------------------------- who the peer is

cdef int tls_log(const Conn* c, int what, uint8_t* out, uint32_t n) noexcept nogil:
    cdef const Tls* t = <const Tls*>c.transport
    return peer_write(&t.peer, what, out, n) if t.done else -1


cdef bint tls_verifies(TransportContext* context, const Conn* c) noexcept nogil:
    """By what the context trusts, which need not be the one that the connection began with."""
    cdef TlsContext* x = <TlsContext*>context
    cdef const Tls* t = <const Tls*>c.transport
    if not x.asks or t == NULL or not t.done:
        return 1                 # nobody asks, or it is asked in the handshake
    return t.peer.identity != NULL or peer_verifies(&t.peer, x.ctx, x.any_date)


# ---------------------------------------------------------------- contexts

cdef TlsContext* tls_context_new(bint outward) noexcept nogil:
    cdef TlsContext* x = <TlsContext*>calloc(1, sizeof(TlsContext))
    if x == NULL:
        return NULL
    x.base.begin = tls_begin
    x.base.verifies = tls_verifies
    x.base.release = tls_context_release
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
