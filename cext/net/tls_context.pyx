# distutils: libraries = ssl crypto
"""Manage the parts of a TLS context that OpenSSL does not hold: pre-shared keys, the key log, references. This module knows
OpenSSL's callbacks, but not sockets or records.

Invariant: a secret goes only to its own connection, and into a file only with --tls-keylog.
"""

from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy, strlen

from cext.net.conn_state cimport TransportContext
from cext.net.system cimport c_close, iovec, writev
from cext.net.tls_state cimport Psk, Tls, TlsContext, psk_ask_fn
from cext.net.openssl cimport (
    CRYPTO_memcmp, NID_kx_ecdhe, NID_kx_ecdhe_psk, NID_kx_psk, OPENSSL_cleanse, SSL, SSL3_MT_FINISHED, SSL3_MT_SERVER_DONE, SSL3_RT_HANDSHAKE,
    SSL_CIPHER_get_kx_nid, SSL_CTX_free, SSL_CTX_get_app_data, SSL_CTX_set_keylog_callback, SSL_CTX_set_msg_callback,
    SSL_CTX_set_psk_server_callback, SSL_CTX_set_verify, SSL_VERIFY_FAIL_IF_NO_PEER_CERT, SSL_VERIFY_NONE, SSL_VERIFY_PEER,
    SSL_get_SSL_CTX, SSL_get_app_data, SSL_get_pending_cipher, verify_fn,
)
from cext.net.records cimport records_learn
from cext.net.tls_outward cimport tls_outward_callbacks
from cext.net.tls_peer cimport peer_any_date, peer_verifies
from cext.net.tls_resumption cimport tickets_callbacks
from cext.net.tls_tickets cimport ticket_keys_unref

cdef extern from * nogil:
    long atomic_add "__sync_add_and_fetch"(long* p, long n)


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
    free(x.psk_hint)
    if x.keylog_fd >= 0:
        c_close(x.keylog_fd)
    ticket_keys_unref(x.tickets)
    SSL_CTX_free(x.ctx)
    free(x)


# ---------------------------------------------------------------- pre-shared keys

cdef const Psk* psk_of(const TlsContext* x, const char* identity) noexcept nogil:
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
    """Return the key of an identity. Whether the peer has the key shows later in the handshake; no code
    reads the identity before its end."""
    cdef Tls* t = <Tls*>SSL_get_app_data(ssl)
    cdef const Psk* k = NULL
    cdef int given = -1          # by a plugin, which is asked before the psk_file, as in Mosquitto
    cdef size_t identity_n = strlen(identity)
    if t.x.psk_ask != NULL:
        given = (<psk_ask_fn>t.x.psk_ask)(t.x.psk_realm, t.x.psk_hint, identity, key, n)
    if given < 0:
        k = psk_of(t.x, identity)
        if k == NULL or k.key_n > n:
            return 0
        memcpy(key, k.key, k.key_n)
        given = k.key_n
    if given == 0:
        return 0
    free(t.peer.identity)
    t.peer.identity = <char*>malloc(identity_n + 1)
    if t.peer.identity == NULL:
        return 0
    memcpy(t.peer.identity, identity, identity_n + 1)
    return <unsigned int>given


cdef bint context_accepts(const TlsContext* x, const Tls* t) noexcept nogil:
    """Check the certificate, or that the identity of a pre-shared key still has the same key. Cost: a verification of a certificate, or O(log keys)."""
    cdef const Psk* used
    cdef const Psk* k
    if t.peer.identity == NULL:
        return not x.wants_certificate or peer_verifies(&t.peer, x.ctx, x.any_date)
    if x.psk_ask != NULL:
        return 1                 # a reload does not ask plugins again
    used = psk_of(t.x, t.peer.identity)
    k = psk_of(x, t.peer.identity)
    return used != NULL and k != NULL and k.key_n == used.key_n and CRYPTO_memcmp(k.key, used.key, k.key_n) == 0


# ---------------------------------------------------------------- the key log

cdef void keylog(const SSL* ssl, const char* line) noexcept nogil:
    """Pass a secret to `records`, if it will take over. With --tls-keylog, for debugging only, also write it to a file:
    the loop's only write to a file."""
    cdef TlsContext* x = <TlsContext*>SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl))
    cdef Tls* t = <Tls*>SSL_get_app_data(ssl)
    cdef iovec iov[2]
    if x.compact:
        records_learn(&t.records, line)
    if x.keylog_fd < 0:
        return
    iov[0].iov_base = <void*>line
    iov[0].iov_len = strlen(line)
    iov[1].iov_base = <void*><const char*>b"\n"
    iov[1].iov_len = 1
    writev(x.keylog_fd, iov, 2)


# ---------------------------------------------------------------- messages of a handshake, and after it

cdef void see_message(int written, int version, int kind, const void* p, size_t n, SSL* ssl, void* _) noexcept nogil:
    """Note when our flight with its signature is written. Count the messages that a client sends after the end of its handshake: KeyUpdate, and
    attempts to renegotiate. OpenSSL has no limit of them, and each costs about as much as a record of 16 KiB. tls_bio_read stops at
    the limit."""
    cdef Tls* t = <Tls*>SSL_get_app_data(ssl)
    if kind != SSL3_RT_HANDSHAKE or t == NULL or n == 0:
        return
    if not written:
        t.late += 1 if t.done and t.late < 255 else 0
    elif t.handshake != NULL and no_private_key_after(ssl, (<const uint8_t*>p)[0]):
        t.handshake.light = 1


cdef bint no_private_key_after(SSL* ssl, uint8_t message) noexcept nogil:
    """Return whether our message of this type ends our part of the expensive work. Finished does: in TLS 1.3 it follows the signature, and in a
    resumption of TLS 1.2 there is none. ServerHelloDone does if the key exchange is signed and over an elliptic curve, or by a pre-shared
    key only. With RSA the private-key operation is still to come, and with a group of DHE an expensive power."""
    cdef int exchange
    if message == SSL3_MT_FINISHED:
        return 1
    if message != SSL3_MT_SERVER_DONE:
        return 0
    exchange = SSL_CIPHER_get_kx_nid(SSL_get_pending_cipher(ssl))
    return exchange == NID_kx_ecdhe or exchange == NID_kx_ecdhe_psk or exchange == NID_kx_psk


cdef void tls_context_callbacks(TlsContext* x) noexcept nogil:
    cdef verify_fn verify = NULL
    if x.outward:
        tls_outward_callbacks(x)
        return
    if x.any_date:
        verify = peer_any_date
    SSL_CTX_set_verify(x.ctx, (SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT) if x.wants_certificate else SSL_VERIFY_NONE, verify)
    if x.n_psks or x.psk_ask != NULL:
        SSL_CTX_set_psk_server_callback(x.ctx, psk_server)
    if x.tickets != NULL:
        tickets_callbacks(x.ctx)
    SSL_CTX_set_msg_callback(x.ctx, see_message)
    if x.compact or x.keylog_fd >= 0:
        SSL_CTX_set_keylog_callback(x.ctx, keylog)
