"""TLS 1.2 and 1.3 with OpenSSL, as a transport of the reactor. Knows records, handshakes and peers' certificates; not MQTT, and not where
certificates come from (cext/setup/tls.pyx). Loaded by the first listener that asks for it: a broker without TLS does not load libssl.

    read:   recv -> layer.in -> SSL_read until it is empty -> the arena. Less is received than the arena holds, so nothing decrypted stays
            in OpenSSL, and no event is owed for it.
    flush:  what could not be sent last time, then all Segs, encrypted in records of up to 16 KiB -> layer.out -> one send

One BIO serves all connections of a loop: it only says where the bytes of the connection at hand are. What OpenSSL wants to send while it
reads (handshake, alerts, key updates) waits for the turn's flush, in front of the answer that may follow.

Invariants: a connection at rest holds no buffer, neither ours nor OpenSSL's (SSL_MODE_RELEASE_BUFFERS); until the first byte it holds
no SSL either; a turn does at most HANDSHAKES_PER_TURN steps of handshakes, so that a storm of them does not hold others up; encrypted bytes
that wait are at most OUT_BYTES, and those that a handshake may pile up without reading, UNREAD_MAX_BYTES. The error queue is empty before
each call. Renegotiation is off.
"""

from libc.errno cimport EAGAIN, EINTR, ENOBUFS, ENOMEM, EPROTO, errno
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memchr, memcmp, memcpy, strlen

from cext.base.buffer cimport buffer_give, buffer_take
from cext.net.openssl cimport (
    ASN1_STRING_to_UTF8, BIO, BIO_CTRL_FLUSH, BIO_METHOD, BIO_TYPE_SOURCE_SINK, BIO_clear_retry_flags, BIO_free,
    BIO_get_data, BIO_get_mem_data, BIO_meth_free, BIO_meth_new, BIO_meth_set_ctrl, BIO_meth_set_read, BIO_meth_set_write,
    BIO_new, BIO_s_mem, BIO_set_data, BIO_set_init, BIO_set_retry_read, BIO_up_ref, ERR_clear_error, ERR_error_string_n,
    ERR_get_error, NID_commonName, OPENSSL_cleanse, OPENSSL_free, PEM_write_bio_X509, SSL, SSL_CIPHER_get_name, SSL_CTX_free,
    SSL_CTX_get_app_data, SSL_CTX_get_cert_store, SSL_CTX_new, SSL_CTX_set_app_data, SSL_CTX_set_keylog_callback,
    SSL_CTX_set_psk_server_callback, SSL_CTX_set_verify, SSL_ERROR_WANT_READ, SSL_ERROR_ZERO_RETURN,
    SSL_VERIFY_FAIL_IF_NO_PEER_CERT, SSL_VERIFY_NONE, SSL_VERIFY_PEER, SSL_do_handshake, SSL_free, SSL_get1_peer_certificate,
    SSL_get_SSL_CTX, SSL_get_app_data, SSL_get_current_cipher, SSL_get_error, SSL_get_peer_cert_chain, SSL_get_verify_result,
    SSL_get_version, SSL_is_init_finished, SSL_new, SSL_pending, SSL_read, SSL_session_reused, SSL_set_accept_state,
    SSL_set_app_data, SSL_set_bio, SSL_set_connect_state, SSL_set_tlsext_host_name, SSL_set_tlsext_status_type, SSL_shutdown,
    SSL_version, SSL_write, TLS1_3_VERSION, TLSEXT_STATUSTYPE_ocsp, TLS_client_method, TLS_server_method, X509,
    X509_NAME_ENTRY_get_data, X509_NAME_get_entry, X509_NAME_get_index_by_NID, X509_NAME_print_ex, X509_STORE_CTX,
    X509_STORE_CTX_free, X509_STORE_CTX_get_error, X509_STORE_CTX_get_error_depth, X509_STORE_CTX_init, X509_STORE_CTX_new,
    X509_STORE_CTX_set_default, X509_STORE_CTX_set_error, X509_STORE_CTX_set_verify_cb, X509_V_ERR_CERT_HAS_EXPIRED,
    X509_V_ERR_CERT_NOT_YET_VALID, X509_V_OK, X509_free, X509_get_subject_name, X509_verify_cert,
    X509_verify_cert_error_string, XN_FLAG_RFC2253, verify_fn,
)
from cext.net.tls_outward cimport tls_expect, tls_numeric, tls_outward_callbacks, tls_peer_good
from cext.net.reactor cimport (
    ARENA_BYTES, CONN_CLOSING, CONN_DIRTY, Conn, NOTHING, Reactor, Seg, TELL_CIPHER, TELL_COMMON_NAME,
    TELL_IDENTITY, TELL_PROTOCOL, TELL_SUBJECT, Transport, TransportContext, TransportOps, conn_mark_dirty,
)

cdef extern from "<sys/socket.h>" nogil:
    ssize_t recv(int fd, void* p, size_t n, int flags)
    ssize_t send(int fd, const void* p, size_t n, int flags)
    int MSG_NOSIGNAL

cdef extern from "<sys/uio.h>" nogil:
    struct iovec:
        void* iov_base
        size_t iov_len
    ssize_t writev(int fd, const iovec* iov, int n)

cdef extern from "<unistd.h>" nogil:
    int c_close "close"(int fd)

cdef extern from * nogil:
    """
    #include <errno.h>
    static inline void errno_set(int e) { errno = e; }
    """
    void errno_set(int e)
    long atomic_add "__sync_add_and_fetch"(long* p, long n)

cdef enum:
    RECORD_BYTES = 16384         # of payload, at most
    RECORD_EXTRA = 256           # around it, at most
    IN_BYTES = ARENA_BYTES - 20 * 1024      # and an unfinished record that OpenSSL may hold: it all fits in the arena
    OUT_BYTES = 128 * 1024
    UNREAD_MAX_BYTES = 64 * 1024
    HANDSHAKES_PER_TURN = 8
    BIO_INDEX = 127              # any: nobody asks for its type
    ERRORS_MAX = 8               # lines per connection


ctypedef struct Layer:          # what the connections of one loop share
    TransportOps ops
    BIO_METHOD* method
    BIO* bio
    const uint8_t* in_p         # received, not decrypted yet: of the connection at hand
    size_t in_n
    size_t out_n
    uint64_t turn               # in which `steps` of handshakes were done
    uint32_t steps
    uint8_t received[108 * 1024]         # IN_BYTES
    uint8_t out[128 * 1024]     # OUT_BYTES
    uint8_t gathered[16384]     # RECORD_BYTES

ctypedef struct Tls:
    Transport base
    SSL* ssl                    # NULL until something has come
    TlsContext* x
    uint8_t* out                # base.unsent bytes at out + out_off
    uint32_t out_off
    uint32_t out_cap
    char* identity              # of the pre-shared key that the peer has
    uint8_t done                # the handshake


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
        BIO_free(y.bio)
        BIO_meth_free(y.method)
        free(y)


cdef Layer* layer_of(Reactor* r) noexcept nogil:
    """The loop's; made for its first connection. NULL: no memory."""
    cdef Layer* y = <Layer*>r.layer
    if y != NULL:
        return y
    y = <Layer*>malloc(sizeof(Layer))
    if y == NULL:
        return NULL
    y.ops.receive = tls_receive
    y.ops.send = tls_send
    y.ops.close = tls_close
    y.ops.tell = tls_tell
    y.ops.aim = tls_aim
    y.ops.greet = tls_greet
    y.in_n = y.out_n = 0
    y.turn = 0
    y.steps = 0
    y.bio = NULL
    y.method = BIO_meth_new(BIO_INDEX | BIO_TYPE_SOURCE_SINK, "mosq")
    if y.method != NULL:
        BIO_meth_set_read(y.method, bio_read)
        BIO_meth_set_write(y.method, bio_write)
        BIO_meth_set_ctrl(y.method, bio_ctrl)
        y.bio = BIO_new(y.method)
    if y.bio == NULL:
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
        fail(r, c)
        return EPROTO
    leave(r, c)
    return EPROTO if t.base.over else 0


cdef void tls_close(Reactor* r, Conn* c) noexcept nogil:
    cdef Tls* t = <Tls*>c.transport
    cdef Layer* y = <Layer*>r.layer
    y.out_n = 0
    if t.base.unsent:
        memcpy(y.out, t.out + t.out_off, t.base.unsent)      # an alert, as a rule
        y.out_n = t.base.unsent
        out_drop(r, t)
    if t.base.open and c.out_bytes == 0:
        ERR_clear_error()
        SSL_shutdown(t.ssl)
    if y.out_n:
        send(c.fd, y.out, y.out_n, MSG_NOSIGNAL)
    y.out_n = 0
    if t.ssl != NULL:
        SSL_free(t.ssl)
    free(t.identity)
    tls_context_release(&t.x.base)
    free(t)


# ---------------------------------------------------------------- input

cdef ssize_t tls_receive(Reactor* r, Conn* c, uint8_t* p, size_t n) noexcept nogil:
    cdef Tls* t = <Tls*>c.transport
    cdef Layer* y = <Layer*>r.layer
    cdef ssize_t got
    cdef size_t total
    if t.base.over:
        return NOTHING
    if not t.done and not step_allowed(r, y):
        return NOTHING           # it is still readable, and comes up again next turn
    got = recv(c.fd, y.received, IN_BYTES, 0)
    if got <= 0:
        if got == 0 or (errno != EAGAIN and errno != EINTR):
            t.base.open = 0
        return got
    if t.ssl == NULL and ssl_make(y, t) != 0:
        fail(r, c)
        return NOTHING
    y.in_p = y.received
    y.in_n = <size_t>got
    y.out_n = 0
    total = decrypt(r, c, p, n)
    y.in_n = 0
    if y.out_n:
        leave(r, c)
    return <ssize_t>total if total else NOTHING


cdef bint step_allowed(Reactor* r, Layer* y) noexcept nogil:
    if y.turn != r.turns:
        y.turn = r.turns
        y.steps = 0
    y.steps += 1
    return y.steps <= HANDSHAKES_PER_TURN


cdef size_t decrypt(Reactor* r, Conn* c, uint8_t* p, size_t n) noexcept nogil:
    """All of layer.in."""
    cdef Tls* t = <Tls*>c.transport
    cdef Layer* y = <Layer*>r.layer
    cdef size_t total = 0
    cdef int got, why
    while True:
        ERR_clear_error()
        got = SSL_read(t.ssl, p + total, <int>(n - total))
        if not t.done and SSL_is_init_finished(t.ssl):
            t.done = t.base.open = 1
            if t.x.outward and not tls_peer_good(t.ssl, t.x):
                fail(r, c)
                return total
        if got > 0:
            total += <size_t>got
            if y.in_n == 0 and SSL_pending(t.ssl) == 0:
                return total     # to ask again would only make OpenSSL take a buffer
            continue
        why = SSL_get_error(t.ssl, got)
        if why == SSL_ERROR_ZERO_RETURN:
            t.base.over = 1      # close_notify
        elif why != SSL_ERROR_WANT_READ:
            fail(r, c)
        return total


cdef void fail(Reactor* r, Conn* c) noexcept nogil:
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


cdef void leave(Reactor* r, Conn* c) noexcept nogil:
    """What OpenSSL wrote while it read goes out with the flush, behind what waits already."""
    cdef Tls* t = <Tls*>c.transport
    cdef Layer* y = <Layer*>r.layer
    cdef uint8_t* old = t.out
    cdef uint32_t cap = t.out_cap, n = t.base.unsent
    if n + y.out_n > <size_t>(OUT_BYTES if t.done else UNREAD_MAX_BYTES):     # never more than layer.out holds
        fail(r, c)               # it makes us talk and does not listen
        y.out_n = 0
        return
    if n:
        t.out = buffer_take(&r.buffers, n + y.out_n, &t.out_cap)
        if t.out == NULL:
            t.out = old
            t.out_cap = cap
            fail(r, c)
            return
        memcpy(t.out, old + t.out_off, n)
        memcpy(t.out + n, y.out, y.out_n)
        t.out_off = 0
        t.base.unsent = n + <uint32_t>y.out_n
        buffer_give(&r.buffers, old, cap)
    elif out_keep(r, t, y.out, y.out_n) != 0:
        fail(r, c)
        return
    y.out_n = 0
    if not c.flags & CONN_DIRTY:
        conn_mark_dirty(r, c)


cdef ssize_t encrypt(Layer* y, Tls* t, Seg* s) noexcept nogil:
    """As much of the Segs as there is room for. How many bytes; -1: OpenSSL cannot."""
    cdef ssize_t taken = 0
    cdef uint32_t at = s.off, n, more
    cdef const uint8_t* p
    while s != NULL and OUT_BYTES - y.out_n >= RECORD_BYTES + RECORD_EXTRA:
        n = s.len - at
        p = s.p + at
        if n >= RECORD_BYTES or s.next == NULL:
            n = n if n < RECORD_BYTES else RECORD_BYTES
            at += n
        else:
            p = y.gathered
            n = 0
            while s != NULL and n < RECORD_BYTES:
                more = s.len - at if s.len - at < RECORD_BYTES - n else RECORD_BYTES - n
                memcpy(y.gathered + n, s.p + at, more)
                n += more
                at += more
                if at == s.len and n < RECORD_BYTES:
                    s = s.next
                    at = s.off if s != NULL else 0
        if n:
            ERR_clear_error()
            if SSL_write(t.ssl, p, <int>n) != <int>n:
                return -1
            taken += n
        while s != NULL and at == s.len:
            s = s.next
            at = s.off if s != NULL else 0
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
        ERR_clear_error()
        SSL_shutdown(t.ssl)
        t.base.open = 0
    if y.out_n == 0:
        return taken
    sent = send(c.fd, y.out, y.out_n, MSG_NOSIGNAL)
    if sent < 0:
        if errno != EAGAIN and errno != EINTR and errno != ENOBUFS:
            t.base.open = 0
            return -1
        sent = 0
    if <size_t>sent < y.out_n and out_keep(r, t, y.out + sent, y.out_n - <size_t>sent) != 0:
        errno_set(EPROTO)
        return -1
    if t.base.unsent and taken == 0 and sent == 0:
        errno_set(EAGAIN)
        return -1
    return taken


# ---------------------------------------------------------------- who the peer is

cdef int put(const void* p, size_t size, uint8_t* out, uint32_t n) noexcept nogil:
    if p == NULL or size == 0 or size > n or memchr(p, 0, size) != NULL:
        return -1
    memcpy(out, p, size)
    return <int>size


cdef int tls_tell(const Conn* c, int what, uint8_t* out, uint32_t n) noexcept nogil:
    cdef const Tls* t = <const Tls*>c.transport
    cdef const char* text = NULL
    cdef X509* x
    cdef int size = -1
    if t.ssl == NULL or not t.done:
        return -1
    if what == TELL_PROTOCOL:
        text = SSL_get_version(t.ssl)
    elif what == TELL_CIPHER:
        text = SSL_CIPHER_get_name(SSL_get_current_cipher(t.ssl))
    elif what == TELL_IDENTITY:
        text = proven_identity(t)
    else:
        x = SSL_get1_peer_certificate(t.ssl)
        if x != NULL:
            size = common_name(x, out, n) if what == TELL_COMMON_NAME else printed(x, what == TELL_SUBJECT, out, n)
            X509_free(x)
        ERR_clear_error()
        return size
    return put(text, strlen(text), out, n) if text != NULL else -1


cdef const char* proven_identity(const Tls* t) noexcept nogil:
    """TLS 1.3 may ask for the key of an identity and then go on without it."""
    if t.identity == NULL or (SSL_version(t.ssl) == TLS1_3_VERSION and not SSL_session_reused(t.ssl)):
        return NULL
    return t.identity


cdef int common_name(X509* x, uint8_t* out, uint32_t n) noexcept nogil:
    """The first, as in Mosquitto. None with a NUL in it."""
    cdef int at = X509_NAME_get_index_by_NID(X509_get_subject_name(x), NID_commonName, -1)
    cdef unsigned char* text = NULL
    cdef int size
    if at < 0:
        return -1
    size = ASN1_STRING_to_UTF8(&text, X509_NAME_ENTRY_get_data(X509_NAME_get_entry(X509_get_subject_name(x), at)))
    if size >= 0:
        size = put(text, <size_t>size, out, n)
        OPENSSL_free(text)
    return size


cdef int printed(X509* x, bint subject, uint8_t* out, uint32_t n) noexcept nogil:
    cdef BIO* b = BIO_new(BIO_s_mem())
    cdef char* text = NULL
    cdef int size = -1
    cdef bint ok
    if b == NULL:
        return -1
    if subject:
        ok = X509_NAME_print_ex(b, X509_get_subject_name(x), 0, XN_FLAG_RFC2253) >= 0
    else:
        ok = PEM_write_bio_X509(b, x) == 1
    if ok:
        size = <int>BIO_get_mem_data(b, &text)
        size = put(text, <size_t>size, out, n)
    BIO_free(b)
    return size


cdef int any_date(int ok, X509_STORE_CTX* x) noexcept nogil:
    """disable_client_cert_date_checks: of the client's own certificate, not of who signed it."""
    cdef int error = X509_STORE_CTX_get_error(x)
    if ok or X509_STORE_CTX_get_error_depth(x) != 0:
        return ok
    if error == X509_V_ERR_CERT_NOT_YET_VALID or error == X509_V_ERR_CERT_HAS_EXPIRED:
        X509_STORE_CTX_set_error(x, X509_V_OK)
        return 1
    return 0


cdef bint tls_verifies(TransportContext* context, const Conn* c) noexcept nogil:
    """By what the context trusts, which need not be the one that the connection began with: chain, dates and revocation."""
    cdef TlsContext* x = <TlsContext*>context
    cdef const Tls* t = <const Tls*>c.transport
    cdef X509_STORE_CTX* checking
    cdef X509* leaf
    cdef bint good = 0
    if not x.asks or t == NULL or t.ssl == NULL or not t.done:
        return 1                 # nobody asks, or it is asked in the handshake
    if proven_identity(t) != NULL:
        return 1
    leaf = SSL_get1_peer_certificate(t.ssl)
    if leaf == NULL:
        return 0
    checking = X509_STORE_CTX_new()
    if checking != NULL and X509_STORE_CTX_init(checking, SSL_CTX_get_cert_store(x.ctx), leaf, SSL_get_peer_cert_chain(t.ssl)) == 1:
        X509_STORE_CTX_set_default(checking, "ssl_client")
        if x.any_date:
            X509_STORE_CTX_set_verify_cb(checking, any_date)
        good = X509_verify_cert(checking) == 1
    X509_STORE_CTX_free(checking)
    X509_free(leaf)
    ERR_clear_error()
    return good


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


cdef void tls_context_release(TransportContext* context) noexcept nogil:
    cdef TlsContext* x = <TlsContext*>context
    cdef uint32_t i
    if x == NULL or atomic_add(&x.refs, -1) != 0:
        return
    for i in range(x.n_psks):
        if x.psks[i].key != NULL:
            OPENSSL_cleanse(x.psks[i].key, x.psks[i].key_n)
        free(x.psks[i].key)
        free(x.psks[i].identity)
    free(x.psks)
    if x.keylog_fd >= 0:
        c_close(x.keylog_fd)
    SSL_CTX_free(x.ctx)
    free(x)


cdef const Psk* psk_find(const TlsContext* x, const char* identity) noexcept nogil:
    cdef size_t n = strlen(identity)
    cdef uint32_t low = 0, high = x.n_psks, mid
    cdef const Psk* k
    cdef int order
    while low < high:
        mid = (low + high) // 2
        k = &x.psks[mid]
        order = 0 if k.identity_n == n else -1 if k.identity_n < n else 1
        if order == 0:
            order = memcmp(k.identity, identity, n)
        if order == 0:
            return k
        if order < 0:
            low = mid + 1
        else:
            high = mid
    return NULL


cdef unsigned int psk_server(SSL* ssl, const char* identity, unsigned char* key, unsigned int n) noexcept nogil:
    """The key of an identity. Whether the peer has it shows later in the handshake: nobody asks for the identity before that is done."""
    cdef Tls* t = <Tls*>SSL_get_app_data(ssl)
    cdef const Psk* k = psk_find(t.x, identity)
    if k == NULL or k.key_n > n:
        return 0
    free(t.identity)
    t.identity = <char*>malloc(<size_t>k.identity_n + 1)
    if t.identity == NULL:
        return 0
    memcpy(t.identity, k.identity, <size_t>k.identity_n + 1)
    memcpy(key, k.key, k.key_n)
    return k.key_n


cdef void keylog(const SSL* ssl, const char* line) noexcept nogil:
    """For debugging alone: the only write to a file on the loop."""
    cdef TlsContext* x = <TlsContext*>SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl))
    cdef iovec iov[2]
    iov[0].iov_base = <void*>line
    iov[0].iov_len = strlen(line)
    iov[1].iov_base = <void*><const char*>b"\n"
    iov[1].iov_len = 1
    writev(x.keylog_fd, iov, 2)


cdef void tls_context_callbacks(TlsContext* x) noexcept nogil:
    cdef verify_fn judge = NULL
    if x.outward:
        tls_outward_callbacks(x)
        return
    if x.any_date:
        judge = any_date
    SSL_CTX_set_verify(x.ctx, (SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT) if x.asks else SSL_VERIFY_NONE, judge)
    if x.n_psks:
        SSL_CTX_set_psk_server_callback(x.ctx, psk_server)
    if x.keylog_fd >= 0:
        SSL_CTX_set_keylog_callback(x.ctx, keylog)
