# distutils: libraries = ssl crypto
"""Check the peer when the broker is the TLS client, by its certificate (chain, name, OCSP) or by a key that both have. This
module knows OpenSSL, but not sockets.

Invariant: a successful handshake proves the identity of the peer. Without a certificate only the pre-shared key proves it, so a
context with such a key accepts nothing else.
"""

from libc.stdint cimport uint8_t
from libc.string cimport memcpy

from cext.net.openssl cimport (
    ASN1_GENERALIZEDTIME, ERR_clear_error, EVP_MD, EVP_sha1, EVP_sha256, OCSP_BASICRESP, OCSP_BASICRESP_free, OCSP_CERTID,
    OCSP_CERTID_free, OCSP_RESPONSE, OCSP_RESPONSE_STATUS_SUCCESSFUL, OCSP_RESPONSE_free, OCSP_basic_verify, OCSP_cert_to_id,
    OCSP_check_validity, OCSP_resp_find_status, OCSP_response_get1_basic, OCSP_response_status, OPENSSL_STACK, SSL,
    SSL_CTX_get_app_data, SSL_CTX_get_cert_store, SSL_CTX_set_psk_client_callback, SSL_CTX_set_tlsext_status_cb,
    SSL_CTX_set_verify, SSL_VERIFY_PEER, SSL_get0_param, SSL_get0_verified_chain, SSL_get_SSL_CTX, SSL_get_peer_cert_chain,
    SSL_get_tlsext_status_ocsp_resp, SSL_session_reused, SSL_set1_host, SSL_version, TLS1_3_VERSION, V_OCSP_CERTSTATUS_GOOD,
    X509, X509_VERIFY_PARAM_set1_ip, d2i_OCSP_RESPONSE, sk_X509_num, sk_X509_value,
)
from cext.net.tls_state cimport TlsContext

cdef extern from "<arpa/inet.h>" nogil:
    int inet_pton(int family, const char* text, void* out)
    int AF_INET, AF_INET6

cdef enum:
    OCSP_LEEWAY_S = 300         # tolerance between the two clocks


cdef bint tls_numeric(const char* host) noexcept nogil:
    cdef uint8_t ip[16]
    return inet_pton(AF_INET, host, ip) == 1 or inet_pton(AF_INET6, host, ip) == 1


cdef int tls_expect_name(SSL* ssl, const char* host, bint numeric) noexcept nogil:
    cdef uint8_t ip[16]
    if not numeric:
        return SSL_set1_host(ssl, host)
    if inet_pton(AF_INET, host, ip) == 1:
        return X509_VERIFY_PARAM_set1_ip(SSL_get0_param(ssl), ip, 4)
    inet_pton(AF_INET6, host, ip)
    return X509_VERIFY_PARAM_set1_ip(SSL_get0_param(ssl), ip, 16)


cdef bint tls_peer_good(SSL* ssl, const TlsContext* x) noexcept nogil:
    """Return whether the key was used: TLS 1.3 may offer a key and then continue without it."""
    return x.n_psks == 0 or SSL_version(ssl) != TLS1_3_VERSION or SSL_session_reused(ssl)


cdef unsigned int psk_client(SSL* ssl, const char* hint, char* identity, unsigned int identity_n, unsigned char* key, unsigned int n) noexcept nogil:
    cdef TlsContext* x = <TlsContext*>SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl))
    if x.n_psks != 1 or x.psks[0].key_n > n or x.psks[0].identity_n >= identity_n:
        return 0
    memcpy(identity, x.psks[0].identity, <size_t>x.psks[0].identity_n + 1)
    memcpy(key, x.psks[0].key, x.psks[0].key_n)
    return x.psks[0].key_n


# ---------------------------------------------------------------- OCSP

cdef bint status_is_good(OCSP_BASICRESP* basic, X509* leaf, X509* issuer, const EVP_MD* digest) noexcept nogil:
    cdef OCSP_CERTID* id = OCSP_cert_to_id(digest, leaf, issuer)
    cdef ASN1_GENERALIZEDTIME* revoked = NULL
    cdef ASN1_GENERALIZEDTIME* since = NULL
    cdef ASN1_GENERALIZEDTIME* until = NULL
    cdef int status = -1, reason = 0
    cdef bint good
    if id == NULL:
        return 0
    good = (OCSP_resp_find_status(basic, id, &status, &reason, &revoked, &since, &until) == 1 and status == V_OCSP_CERTSTATUS_GOOD
            and OCSP_check_validity(since, until, OCSP_LEEWAY_S, -1) == 1)
    OCSP_CERTID_free(id)
    return good


cdef int ocsp_verify(SSL* ssl, void* _) noexcept nogil:
    """Return 1 if the peer ocsp_verify a valid response, signed by an authorised signer, with the status "good" for its
    certificate. 0 ends the handshake."""
    cdef OPENSSL_STACK* chain = SSL_get0_verified_chain(ssl)
    cdef unsigned char* given = NULL
    cdef const unsigned char* p
    cdef long n = SSL_get_tlsext_status_ocsp_resp(ssl, &given)
    cdef OCSP_RESPONSE* response
    cdef OCSP_BASICRESP* basic = NULL
    cdef X509* leaf
    cdef X509* issuer
    cdef bint good = 0
    if chain == NULL:
        chain = SSL_get_peer_cert_chain(ssl)
    if given == NULL or n <= 0 or chain == NULL or sk_X509_num(chain) < 1:
        return 0
    p = given
    response = d2i_OCSP_RESPONSE(NULL, &p, n)
    if response != NULL and OCSP_response_status(response) == OCSP_RESPONSE_STATUS_SUCCESSFUL:
        basic = OCSP_response_get1_basic(response)
    if basic != NULL and OCSP_basic_verify(basic, chain, SSL_CTX_get_cert_store(SSL_get_SSL_CTX(ssl)), 0) == 1:
        leaf = sk_X509_value(chain, 0)
        issuer = sk_X509_value(chain, 1) if sk_X509_num(chain) > 1 else leaf
        good = status_is_good(basic, leaf, issuer, EVP_sha1()) or status_is_good(basic, leaf, issuer, EVP_sha256())
    OCSP_BASICRESP_free(basic)
    OCSP_RESPONSE_free(response)
    ERR_clear_error()
    return 1 if good else 0


cdef void tls_outward_callbacks(TlsContext* x) noexcept nogil:
    # With a key of ours no authority is trusted, so a certificate cannot replace the key.
    SSL_CTX_set_verify(x.ctx, SSL_VERIFY_PEER, NULL)
    if x.n_psks:
        SSL_CTX_set_psk_client_callback(x.ctx, psk_client)
    if x.ocsp:
        SSL_CTX_set_tlsext_status_cb(x.ctx, ocsp_verify)
