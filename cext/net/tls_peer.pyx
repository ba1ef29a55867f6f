# distutils: libraries = ssl crypto
"""Store the identity of the other side of a TLS connection: its certificate, the identity of its key, the negotiated protocol and
cipher. The data is read once, when the handshake is done, because the SSL may be freed then. This module knows OpenSSL's
certificates, but not connections.

Cost: nothing without a certificate; with one, OpenSSL's form of it and of its chain, 4 KiB each, as much as the SSL would hold.
"""

from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport free
from libc.string cimport memchr, memcpy, strlen

from cext.net.openssl cimport (
    ASN1_STRING_to_UTF8, BIO, BIO_free, BIO_get_mem_data, BIO_new, BIO_s_mem, ERR_clear_error, NID_commonName, OPENSSL_STACK,
    OPENSSL_free, PEM_write_bio_X509, SSL, SSL_CIPHER_get_name, SSL_CTX, SSL_CTX_get_cert_store, SSL_SESSION, SSL_SESSION_get0_ticket_appdata, SSL_get1_peer_certificate,
    SSL_get_current_cipher, SSL_get_peer_cert_chain, SSL_get_session, SSL_get_version, SSL_session_reused, SSL_version, TLS1_3_VERSION, X509,
    X509_NAME_ENTRY_get_data, X509_NAME_get_entry, X509_NAME_get_index_by_NID, X509_NAME_print_ex, X509_STORE_CTX,
    X509_STORE_CTX_free, X509_STORE_CTX_get_error, X509_STORE_CTX_get_error_depth, X509_STORE_CTX_init, X509_STORE_CTX_new,
    X509_STORE_CTX_set_default, X509_STORE_CTX_set_error, X509_STORE_CTX_set_verify_cb, X509_V_ERR_CERT_HAS_EXPIRED,
    X509_V_ERR_CERT_NOT_YET_VALID, X509_V_OK, X509_chain_up_ref, X509_free, X509_get_subject_name, X509_verify_cert,
    XN_FLAG_RFC2253, chain_free, d2i_X509, sk_X509_new_null, sk_X509_push,
)
from cext.net.conn_state cimport PEER_CIPHER, PEER_COMMON_NAME, PEER_IDENTITY, PEER_PROTOCOL, PEER_SUBJECT


cdef void peer_read(Peer* p, SSL* ssl) noexcept nogil:
    """TLS 1.3 may ask for the key of an identity and then continue without it."""
    cdef OPENSSL_STACK* chain = SSL_get_peer_cert_chain(ssl)
    if SSL_version(ssl) == TLS1_3_VERSION and not SSL_session_reused(ssl):
        free(p.identity)
        p.identity = NULL
    p.protocol = SSL_get_version(ssl)
    p.cipher = SSL_CIPHER_get_name(SSL_get_current_cipher(ssl))
    p.leaf = SSL_get1_peer_certificate(ssl)
    # A resumed session has the chain in its ticket.
    p.chain = X509_chain_up_ref(chain) if chain != NULL else ticket_chain(SSL_get_session(ssl)) if p.leaf != NULL else NULL
    ERR_clear_error()


cdef OPENSSL_STACK* ticket_chain(SSL_SESSION* session) noexcept nogil:
    cdef void* stored = NULL
    cdef size_t n = 0
    cdef const unsigned char* p
    cdef const unsigned char* end
    cdef OPENSSL_STACK* chain
    cdef X509* one
    if SSL_SESSION_get0_ticket_appdata(session, &stored, &n) != 1 or n == 0:
        return NULL
    chain = sk_X509_new_null()
    p = <const unsigned char*>stored
    end = p + n
    while chain != NULL and p < end:
        one = d2i_X509(NULL, &p, end - p)
        if one == NULL or sk_X509_push(chain, one) <= 0:
            X509_free(one)
            break
    return chain


cdef void peer_clear(Peer* p) noexcept nogil:
    free(p.identity)
    X509_free(p.leaf)
    chain_free(p.chain)
    p.protocol = p.cipher = NULL
    p.identity = NULL
    p.leaf = NULL
    p.chain = NULL


# ---------------------------------------------------------------- texts about the peer

cdef int text_put(const void* p, size_t size, uint8_t* out, uint32_t n) noexcept nogil:
    if p == NULL or size == 0 or size > n or memchr(p, 0, size) != NULL:
        return -1
    memcpy(out, p, size)
    return <int>size


cdef int peer_write(const Peer* p, int what, uint8_t* out, uint32_t n) noexcept nogil:
    cdef const char* text
    cdef int size
    if what == PEER_PROTOCOL or what == PEER_CIPHER or what == PEER_IDENTITY:
        text = p.protocol if what == PEER_PROTOCOL else p.cipher if what == PEER_CIPHER else p.identity
        return text_put(text, strlen(text), out, n) if text != NULL else -1
    if p.leaf == NULL:
        return -1
    size = common_name(p.leaf, out, n) if what == PEER_COMMON_NAME else print_certificate(p.leaf, what == PEER_SUBJECT, out, n)
    ERR_clear_error()
    return size


cdef int common_name(X509* x, uint8_t* out, uint32_t n) noexcept nogil:
    """Return the first common name, as in Mosquitto. A name with a NUL is rejected."""
    cdef int at = X509_NAME_get_index_by_NID(X509_get_subject_name(x), NID_commonName, -1)
    cdef unsigned char* text = NULL
    cdef int size
    if at < 0:
        return -1
    size = ASN1_STRING_to_UTF8(&text, X509_NAME_ENTRY_get_data(X509_NAME_get_entry(X509_get_subject_name(x), at)))
    if size >= 0:
        size = text_put(text, <size_t>size, out, n)
        OPENSSL_free(text)
    return size


cdef int print_certificate(X509* x, bint subject, uint8_t* out, uint32_t n) noexcept nogil:
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
        size = text_put(text, <size_t>size, out, n)
    BIO_free(b)
    return size


# ---------------------------------------------------------------- verification

cdef int peer_any_date(int ok, X509_STORE_CTX* x) noexcept nogil:
    """Implement disable_client_cert_date_checks, for the client's own certificate only, not for its issuers."""
    cdef int error = X509_STORE_CTX_get_error(x)
    if ok or X509_STORE_CTX_get_error_depth(x) != 0:
        return ok
    if error == X509_V_ERR_CERT_NOT_YET_VALID or error == X509_V_ERR_CERT_HAS_EXPIRED:
        X509_STORE_CTX_set_error(x, X509_V_OK)
        return 1
    return 0


cdef bint peer_verifies(const Peer* p, SSL_CTX* x, bint any_date) noexcept nogil:
    return certificate_verifies(p.leaf, p.chain, x, any_date)


cdef bint certificate_verifies(X509* leaf, OPENSSL_STACK* chain, SSL_CTX* x, bint any_date) noexcept nogil:
    cdef X509_STORE_CTX* checking
    cdef bint good = 0
    if leaf == NULL:
        return 0
    checking = X509_STORE_CTX_new()
    if checking != NULL and X509_STORE_CTX_init(checking, SSL_CTX_get_cert_store(x), leaf, chain) == 1:
        X509_STORE_CTX_set_default(checking, "ssl_client")
        if any_date:
            X509_STORE_CTX_set_verify_cb(checking, peer_any_date)
        good = X509_verify_cert(checking) == 1
    X509_STORE_CTX_free(checking)
    ERR_clear_error()
    return good
