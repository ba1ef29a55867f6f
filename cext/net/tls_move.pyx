# distutils: libraries = ssl crypto
"""Write the state of a TLS connection for another process, and make the connection there again. This module knows `records`, the peer's identity and
the keys of tickets. It does not know how the bytes come to the other process: they contain keys, so they must not reach a disk.

A connection moves if `records` seals it, or if no whole record has arrived yet. OpenSSL has no function that writes the state of an SSL, so a
connection that is in its handshake, or that OpenSSL seals, stays. The sequence numbers go along, and the process before seals no more records with
these keys: no nonce is used twice. The reader checks each length and number; keys it must believe.
"""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport malloc
from libc.string cimport memcmp, memcpy, memset, strlen

from cext.base.buffer cimport buffer_take
from cext.net.conn cimport conn_mark_dirty
from cext.net.conn_state cimport CONN_DIRTY, Conn, Reactor, Transport, TransportContext
from cext.net.openssl cimport (
    ERR_clear_error, OPENSSL_cleanse, OPENSSL_free, SSL_CTX_get0_certificate, X509, X509_free, d2i_X509, i2d_X509,
    sk_X509_new_null, sk_X509_num, sk_X509_push, sk_X509_value,
)
from cext.net.records cimport ENDED_NOT, Half, Records, suite_find
from cext.net.tls_context cimport psk_of
from cext.net.tls_peer cimport Peer
from cext.net.tls_state cimport PSK_IDENTITY_BYTES_MAX, TLS_IN_BYTES, TLS_OUT_BYTES, Psk, Tls, TlsContext, TlsLayer
from cext.net.tls_tickets cimport TicketKey, pthread_mutex_lock, pthread_mutex_unlock

cdef enum:
    CERTIFICATES_MAX = 1 << 20  # bytes of a peer's certificate and chain that move

ctypedef struct MovedTls:
    Half peers
    Half ours
    uint64_t blocks
    uint64_t counted_s
    uint16_t suite              # 0: no record has arrived yet
    uint8_t renewals
    uint8_t empties
    uint8_t message[5]
    uint8_t message_n
    uint8_t update_due
    uint8_t has_leaf            # 1: the first certificate is the peer's own, the others are its chain
    uint16_t key_n              # size of the pre-shared key with which the peer has logged in
    uint32_t identity_n         # and of its identity
    uint32_t certificates_n
    uint32_t part_n
    uint32_t out_n


# ---------------------------------------------------------------- saving

cdef uint32_t certificates_size(const Peer* p) noexcept nogil:
    cdef int i, size = i2d_X509(p.leaf, NULL) if p.leaf != NULL else 0
    cdef uint32_t total = <uint32_t>(size if size > 0 else 0)
    for i in range(sk_X509_num(p.chain) if p.chain != NULL else 0):
        size = i2d_X509(sk_X509_value(p.chain, i), NULL)
        total += <uint32_t>(size if size > 0 else 0)
    return total


cdef uint8_t* certificates_put(const Peer* p, uint8_t* out) noexcept nogil:
    cdef int i
    if p.leaf != NULL:
        i2d_X509(p.leaf, &out)           # moves `out` behind the certificate
    for i in range(sk_X509_num(p.chain) if p.chain != NULL else 0):
        i2d_X509(sk_X509_value(p.chain, i), &out)
    return out


cdef uint8_t* moved_put(uint8_t* out, const void* p, uint32_t n) noexcept nogil:
    if n:
        memcpy(out, p, n)
    return out + n


cdef bint tls_moves(const Tls* t) noexcept nogil:
    if t.base.over or t.ssl != NULL or t.handshake != NULL or t.x.outward:
        return 0
    return not t.done or (t.records.suite != NULL and t.records.ended == ENDED_NOT)


cdef void moved_fill(const Tls* t, MovedTls* m) noexcept nogil:
    memset(m, 0, sizeof(MovedTls))
    if t.done:
        m.peers = t.records.peers
        m.ours = t.records.ours
        m.blocks = t.records.blocks
        m.counted_s = t.records.counted_s
        m.suite = t.records.suite.id
        m.renewals = t.records.renewals
        m.empties = t.records.empties
        memcpy(m.message, t.records.message, sizeof(m.message))
        m.message_n = t.records.message_n
        m.update_due = t.records.update_due
    m.has_leaf = t.peer.leaf != NULL
    m.part_n = t.part_n
    m.out_n = t.base.unsent


cdef uint32_t tls_save(const Conn* c, bint seals, uint8_t* out, uint32_t n) noexcept nogil:
    cdef const Tls* t = <const Tls*>c.transport
    cdef const Psk* k = psk_of(t.x, t.peer.identity) if t.peer.identity != NULL else NULL
    cdef MovedTls m
    cdef uint32_t size
    if not tls_moves(t) or t.done and not seals:
        return 0
    moved_fill(t, &m)
    m.identity_n = <uint32_t>strlen(t.peer.identity) if t.peer.identity != NULL else 0
    m.key_n = k.key_n if k != NULL else 0
    m.certificates_n = certificates_size(&t.peer)
    size = <uint32_t>sizeof(m) + m.identity_n + m.key_n + m.certificates_n + m.part_n + m.out_n
    if size <= n and m.certificates_n <= CERTIFICATES_MAX:
        out = moved_put(out, &m, <uint32_t>sizeof(m))
        out = moved_put(out, t.peer.identity, m.identity_n)
        out = moved_put(out, k.key if k != NULL else NULL, m.key_n)
        out = certificates_put(&t.peer, out)
        out = moved_put(out, t.part, m.part_n)
        moved_put(out, t.out + t.out_off, m.out_n)
    OPENSSL_cleanse(&m, sizeof(m))
    ERR_clear_error()
    return size if m.certificates_n <= CERTIFICATES_MAX else 0


# ---------------------------------------------------------------- restoring

cdef const char* suite_name(uint16_t id) noexcept nogil:
    """Return OpenSSL's name of a suite that `records` knows."""
    if id == 0x1301:
        return b"TLS_AES_128_GCM_SHA256"
    if id == 0x1302:
        return b"TLS_AES_256_GCM_SHA384"
    return b"TLS_CHACHA20_POLY1305_SHA256"


cdef int certificates_restore(Peer* peer, const uint8_t* p, uint32_t n, bint has_leaf) noexcept nogil:
    cdef const unsigned char* at = p
    cdef const unsigned char* end = p + n
    cdef X509* one
    while at < end:
        one = d2i_X509(NULL, &at, end - at)
        if one == NULL:
            return -1
        if has_leaf and peer.leaf == NULL:
            peer.leaf = one
            continue
        if peer.chain == NULL:
            peer.chain = sk_X509_new_null()
        if peer.chain == NULL or sk_X509_push(peer.chain, one) <= 0:
            X509_free(one)
            return -1
    return -1 if has_leaf and peer.leaf == NULL else 0


cdef int identity_restore(Tls* t, const uint8_t* identity, uint32_t identity_n, const uint8_t* key, uint32_t key_n) noexcept nogil:
    """Keep the identity, unless its key is another one now: then it has none that is valid."""
    cdef const Psk* k
    t.peer.identity = <char*>malloc(identity_n + 1)
    if t.peer.identity == NULL:
        return -1
    memcpy(t.peer.identity, identity, identity_n)
    t.peer.identity[identity_n] = 0
    k = psk_of(t.x, t.peer.identity)
    if key_n and (k == NULL or k.key_n != key_n or memcmp(k.key, key, key_n) != 0):
        t.outdated = 1
    return 0


cdef int records_restore(TlsLayer* y, Tls* t, const MovedTls* m) noexcept nogil:
    cdef Records* x = &t.records
    x.suite = suite_find(y.suites, m.suite)
    if x.suite == NULL or m.message_n > sizeof(m.message):
        return -1
    x.peers = m.peers
    x.ours = m.ours
    x.peers_n = x.ours_n = x.suite.secret_n
    x.blocks = m.blocks
    x.counted_s = m.counted_s
    x.renewals = m.renewals
    x.empties = m.empties
    memcpy(x.message, m.message, sizeof(x.message))
    x.message_n = m.message_n
    x.update_due = m.update_due
    t.peer.protocol = b"TLSv1.3"
    t.peer.cipher = suite_name(m.suite)
    t.done = t.base.open = 1
    return 0


cdef uint8_t* moved_bytes(Reactor* r, const uint8_t* p, uint32_t n, uint32_t* cap) noexcept nogil:
    cdef uint8_t* out = buffer_take(&r.buffers, n, cap)
    if out != NULL:
        memcpy(out, p, n)
    return out


cdef int tls_fill(Reactor* r, Conn* c, const MovedTls* m, const uint8_t* p) noexcept nogil:
    cdef Tls* t = <Tls*>c.transport
    if m.suite and records_restore(<TlsLayer*>r.layer, t, m) != 0:
        return -1
    if m.identity_n and identity_restore(t, p, m.identity_n, p + m.identity_n, m.key_n) != 0:
        return -1
    p += m.identity_n + m.key_n
    if certificates_restore(&t.peer, p, m.certificates_n, m.has_leaf) != 0:
        return -1
    p += m.certificates_n
    if m.part_n:
        t.part = moved_bytes(r, p, m.part_n, &t.part_cap)
        t.part_n = m.part_n if t.part != NULL else 0
    p += m.part_n
    if m.out_n:
        t.out = moved_bytes(r, p, m.out_n, &t.out_cap)
        t.base.unsent = m.out_n if t.out != NULL else 0
        if not c.flags & CONN_DIRTY:
            conn_mark_dirty(r, c)
    return -1 if (m.part_n and t.part == NULL) or (m.out_n and t.out == NULL) else 0


cdef Transport* tls_restore(TransportContext* x, Reactor* r, Conn* c, const uint8_t* p, uint32_t n) noexcept nogil:
    cdef MovedTls m
    cdef uint64_t size
    cdef int wrong
    if n < sizeof(m):
        return NULL
    memcpy(&m, p, sizeof(m))
    size = <uint64_t>sizeof(m) + m.identity_n + m.key_n + m.certificates_n + m.part_n + m.out_n
    if size != n or m.identity_n > PSK_IDENTITY_BYTES_MAX or m.certificates_n > CERTIFICATES_MAX or m.part_n > TLS_IN_BYTES or m.out_n > TLS_OUT_BYTES:
        return NULL
    if m.identity_n == 0 and m.key_n or m.suite == 0 and m.certificates_n + m.out_n:
        return NULL
    c.transport = x.begin(x, r, c)
    if c.transport == NULL:
        return NULL
    wrong = tls_fill(r, c, &m, p + sizeof(m))
    OPENSSL_cleanse(&m, sizeof(m))
    ERR_clear_error()
    return NULL if wrong else c.transport


# ---------------------------------------------------------------- keys of tickets

cdef uint32_t ticket_keys_save(TransportContext* context, uint8_t* out, uint32_t n) noexcept nogil:
    """Write the keys and the broker's certificate: a session continues only under the same certificate, as over a reload."""
    cdef TlsContext* x = <TlsContext*>context
    cdef X509* own = SSL_CTX_get0_certificate(x.ctx)
    cdef int size = i2d_X509(own, NULL) if own != NULL and x.tickets != NULL else 0
    cdef uint32_t keys_n = 2 * sizeof(TicketKey)         # the present key and the one before
    cdef uint32_t need = keys_n + <uint32_t>size
    if size <= 0:
        return 0
    if need <= n:
        pthread_mutex_lock(&x.tickets.lock)
        out = moved_put(out, &x.tickets.current, sizeof(TicketKey))
        out = moved_put(out, &x.tickets.old, sizeof(TicketKey))
        pthread_mutex_unlock(&x.tickets.lock)
        i2d_X509(own, &out)
    return need


cdef void ticket_keys_restore(TransportContext* context, const uint8_t* p, uint32_t n) noexcept nogil:
    cdef TlsContext* x = <TlsContext*>context
    cdef X509* own = SSL_CTX_get0_certificate(x.ctx)
    cdef unsigned char* bytes_ = NULL
    cdef uint32_t keys_n = 2 * sizeof(TicketKey)
    cdef int size
    if own == NULL or x.tickets == NULL or n < keys_n:
        return
    size = i2d_X509(own, &bytes_)        # allocates
    if size > 0 and <uint32_t>size == n - keys_n and memcmp(bytes_, p + keys_n, <size_t>size) == 0:
        pthread_mutex_lock(&x.tickets.lock)
        memcpy(&x.tickets.current, p, sizeof(TicketKey))
        memcpy(&x.tickets.old, p + sizeof(TicketKey), sizeof(TicketKey))
        pthread_mutex_unlock(&x.tickets.lock)
    OPENSSL_free(bytes_)
    ERR_clear_error()
