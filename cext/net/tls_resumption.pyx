# distutils: libraries = ssl crypto
"""Check a session before it is resumed, and limit the life of its ticket. This module knows OpenSSL's callbacks for tickets, but no sockets.

A ticket contains the client's certificate as it was in the full handshake. OpenSSL does not verify it again, so `ticket_opened` does:
dates, chain, and revocations by the context that is in force now. A session that fails the check is not resumed. The client then makes
a full handshake, which reports the reason if the certificate is refused there too.

Invariant: a ticket's lifetime ends with the client's certificate, or with a certificate of the chain that the client sent.
Cost of a resumed session with a certificate: one verification, 0.1 ms with one authority.
"""

from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from cext.net.openssl cimport (
    ASN1_TIME_diff, ERR_clear_error, EVP_CIPHER_CTX, EVP_CipherInit_ex2, EVP_MAC_CTX, EVP_MAC_CTX_set_params, EVP_aes_256_cbc,
    OPENSSL_STACK, OPENSSL_cleanse, OSSL_MAC_PARAM_DIGEST, OSSL_MAC_PARAM_KEY, OSSL_PARAM, OSSL_PARAM_construct_end,
    OSSL_PARAM_construct_octet_string, OSSL_PARAM_construct_utf8_string, RAND_bytes, SSL, SSL_CTX, SSL_CTX_get_app_data,
    SSL_CTX_get_timeout, SSL_CTX_set_session_ticket_cb, SSL_CTX_set_tlsext_ticket_key_evp_cb, SSL_SESSION, SSL_SESSION_get0_peer,
    SSL_SESSION_set1_ticket_appdata, SSL_SESSION_set_timeout, SSL_TICKET_RETURN, SSL_TICKET_RETURN_IGNORE_RENEW,
    SSL_TICKET_RETURN_USE, SSL_TICKET_RETURN_USE_RENEW, SSL_TICKET_STATUS, SSL_TICKET_SUCCESS, SSL_TICKET_SUCCESS_RENEW,
    SSL_get_SSL_CTX, SSL_get_peer_cert_chain, SSL_get_session, SSL_session_reused, SSL_version, TLS1_3_VERSION, X509, X509_get0_notAfter, chain_free, i2d_X509,
    sk_X509_num, sk_X509_value,
)
from cext.net.tls_peer cimport certificate_verifies, ticket_chain
from cext.net.tls_state cimport TlsContext
from cext.net.tls_tickets cimport (
    SESSION_LIFE_S, TICKET_KEY_CURRENT, TICKET_KEY_UNKNOWN, TICKET_NAME_BYTES, TicketKey, ticket_key_for_opening,
    ticket_key_for_sealing,
)

cdef extern from "<time.h>" nogil:
    ctypedef long time_t
    time_t c_time "time"(time_t* t)

cdef enum:
    DAY_S = 86400
    CHAIN_BYTES_MAX = 8192      # limit of a chain in a ticket; with a longer chain the client is not resumed
    CHAIN_MAX = 8


cdef int ticket_key(SSL* ssl, unsigned char* name, unsigned char* iv, EVP_CIPHER_CTX* cipher, EVP_MAC_CTX* mac, int sealing) noexcept nogil:
    """Implement OpenSSL's callback for ticket keys. Return 1: go on; 2: go on, with a new ticket; 0: an unknown ticket; -1: an error."""
    cdef TlsContext* x = <TlsContext*>SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl))
    cdef TicketKey key
    cdef OSSL_PARAM params[3]
    cdef int found = TICKET_KEY_CURRENT
    cdef bint ok
    if not sealing:
        found = ticket_key_for_opening(x.tickets, c_time(NULL), name, &key)
        if found == TICKET_KEY_UNKNOWN:
            return 0
        if SSL_version(ssl) == TLS1_3_VERSION:
            found = TICKET_KEY_OLD       # a client of TLS 1.3 uses a ticket once [RFC 8446 C.4]
    elif (ticket_key_for_sealing(x.tickets, c_time(NULL), &key) != 0
            or RAND_bytes(iv, 16) != 1):
        return -1
    else:
        memcpy(name, key.name, TICKET_NAME_BYTES)
    params[0] = OSSL_PARAM_construct_octet_string(OSSL_MAC_PARAM_KEY, key.mac, sizeof(key.mac))
    params[1] = OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, <char*>b"SHA256", 0)
    params[2] = OSSL_PARAM_construct_end()
    ok = EVP_CipherInit_ex2(cipher, EVP_aes_256_cbc(), key.cipher, iv, sealing, NULL) == 1 and EVP_MAC_CTX_set_params(mac, params) == 1
    OPENSSL_cleanse(&key, sizeof(key))
    return found if ok else -1


# ---------------------------------------------------------------- sessions

cdef long seconds_left(const X509* certificate) noexcept nogil:
    """Return the seconds until the certificate expires, at most SESSION_LIFE_S; negative if it has expired."""
    cdef int days = 0, seconds = 0
    if ASN1_TIME_diff(&days, &seconds, NULL, X509_get0_notAfter(certificate)) != 1:
        return 0
    return SESSION_LIFE_S if days > 0 else <long>days * DAY_S + seconds if seconds < SESSION_LIFE_S else SESSION_LIFE_S


cdef void chain_store(SSL_SESSION* session, OPENSSL_STACK* chain) noexcept nogil:
    """Store the chain in the ticket, because OpenSSL stores only the client's own certificate there."""
    cdef unsigned char* bytes_ = NULL
    cdef unsigned char* p
    cdef int i, n = sk_X509_num(chain), size, total = 0
    for i in range(n):
        size = i2d_X509(sk_X509_value(chain, i), NULL)
        if size < 0 or i >= CHAIN_MAX or total + size > CHAIN_BYTES_MAX:
            return
        total += size
    bytes_ = <unsigned char*>malloc(total)
    if bytes_ == NULL:
        return
    p = bytes_
    for i in range(n):
        i2d_X509(sk_X509_value(chain, i), &p)
    SSL_SESSION_set1_ticket_appdata(session, bytes_, total)
    free(bytes_)


cdef int ticket_made(SSL* ssl, void* _) noexcept nogil:
    """End the ticket's life with the certificate. OpenSSL writes the session into the ticket after this call, and the lifetime beside it."""
    cdef TlsContext* x = <TlsContext*>SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl))
    cdef SSL_SESSION* session = SSL_get_session(ssl)
    cdef X509* leaf = SSL_SESSION_get0_peer(session)
    cdef OPENSSL_STACK* chain = SSL_get_peer_cert_chain(ssl)
    cdef long life = SSL_CTX_get_timeout(x.ctx), left
    cdef int i
    if leaf == NULL:
        return 1
    if chain != NULL and sk_X509_num(chain) > 0 and not SSL_session_reused(ssl):
        chain_store(session, chain)
    if not x.any_date:
        left = seconds_left(leaf)
        life = left if left < life else life
        for i in range(sk_X509_num(chain) if chain != NULL else 0):
            left = seconds_left(sk_X509_value(chain, i))
            life = left if left < life else life
    SSL_SESSION_set_timeout(session, life if life > 0 else 0)
    ERR_clear_error()
    return 1


cdef SSL_TICKET_RETURN ticket_opened(SSL* ssl, SSL_SESSION* session, const unsigned char* name, size_t name_n, SSL_TICKET_STATUS status, void* _) noexcept nogil:
    """Decide whether a session may be resumed by the trust settings that are in force now."""
    cdef TlsContext* x = <TlsContext*>SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl))
    cdef OPENSSL_STACK* chain
    cdef bint good
    if session == NULL or (status != SSL_TICKET_SUCCESS and status != SSL_TICKET_SUCCESS_RENEW):
        return SSL_TICKET_RETURN_IGNORE_RENEW
    if x.wants_certificate:
        chain = ticket_chain(session)
        good = certificate_verifies(SSL_SESSION_get0_peer(session), chain, x.ctx, x.any_date)
        chain_free(chain)
        if not good:
            return SSL_TICKET_RETURN_IGNORE_RENEW
    return SSL_TICKET_RETURN_USE if status == SSL_TICKET_SUCCESS else SSL_TICKET_RETURN_USE_RENEW


cdef void tickets_callbacks(SSL_CTX* x) noexcept nogil:
    SSL_CTX_set_tlsext_ticket_key_evp_cb(x, ticket_key)
    SSL_CTX_set_session_ticket_cb(x, ticket_made, ticket_opened, NULL)
