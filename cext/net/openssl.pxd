# The parts of OpenSSL 3's libssl and libcrypto that mosq uses.
from libc.stdint cimport uint8_t, uint16_t, uint64_t

cdef extern from "<openssl/ssl.h>" nogil:
    ctypedef struct SSL:
        pass
    ctypedef struct SSL_CTX:
        pass
    ctypedef struct SSL_METHOD:
        pass
    ctypedef struct SSL_CIPHER:
        pass
    ctypedef struct SSL_SESSION:
        pass
    ctypedef struct X509:
        pass
    ctypedef struct X509_NAME:
        pass
    ctypedef struct X509_NAME_ENTRY:
        pass
    ctypedef struct X509_STORE:
        pass
    ctypedef struct X509_STORE_CTX:
        pass
    ctypedef struct X509_LOOKUP:
        pass
    ctypedef struct X509_LOOKUP_METHOD:
        pass
    ctypedef struct X509_VERIFY_PARAM:
        pass
    ctypedef struct OPENSSL_STACK "STACK_OF(X509)":
        pass
    ctypedef struct NAME_STACK "STACK_OF(X509_NAME)":
        pass
    ctypedef struct ASN1_STRING:
        pass
    ctypedef struct BIO:
        pass
    ctypedef struct BIO_METHOD:
        pass
    ctypedef struct EVP_CIPHER_CTX:
        pass
    ctypedef struct EVP_MAC_CTX:
        pass

    ctypedef int (*verify_fn "SSL_verify_cb")(int ok, X509_STORE_CTX* x) noexcept nogil
    ctypedef unsigned int (*psk_server_fn)(SSL* ssl, const char* identity, unsigned char* key, unsigned int n) noexcept nogil
    ctypedef void (*keylog_fn)(const SSL* ssl, const char* line) noexcept nogil
    ctypedef void (*message_fn)(int written, int version, int kind, const void* p, size_t n, SSL* ssl, void* ctx) noexcept nogil
    ctypedef int (*password_fn)(char* out, int n, int writing, void* ctx) noexcept nogil

    ctypedef unsigned int (*psk_client_fn)(SSL* ssl, const char* hint, char* identity, unsigned int identity_n, unsigned char* key, unsigned int n) noexcept nogil
    ctypedef int (*status_fn)(SSL* ssl, void* ctx) noexcept nogil

    const SSL_METHOD* TLS_server_method()
    const SSL_METHOD* TLS_client_method()
    SSL_CTX* SSL_CTX_new(const SSL_METHOD* m)
    void SSL_CTX_free(SSL_CTX* x)
    uint64_t SSL_CTX_set_options(SSL_CTX* x, uint64_t options)
    long SSL_CTX_set_mode(SSL_CTX* x, long mode)
    int SSL_CTX_set_min_proto_version(SSL_CTX* x, int version)
    long SSL_CTX_set_session_cache_mode(SSL_CTX* x, long mode)
    int SSL_CTX_set_session_id_context(SSL_CTX* x, const unsigned char* p, unsigned int n)
    long SSL_CTX_set_timeout(SSL_CTX* x, long seconds)
    int SSL_CTX_set_num_tickets(SSL_CTX* x, size_t n)
    long SSL_CTX_get_timeout(const SSL_CTX* x)
    ctypedef int (*ticket_key_fn)(SSL* ssl, unsigned char* name, unsigned char* iv, EVP_CIPHER_CTX* cipher, EVP_MAC_CTX* mac, int sealing) noexcept nogil
    int SSL_CTX_set_tlsext_ticket_key_evp_cb(SSL_CTX* x, ticket_key_fn f)
    ctypedef int (*ticket_made_fn)(SSL* ssl, void* ctx) noexcept nogil
    ctypedef int SSL_TICKET_STATUS
    ctypedef int SSL_TICKET_RETURN
    ctypedef SSL_TICKET_RETURN (*ticket_opened_fn)(SSL* ssl, SSL_SESSION* session, const unsigned char* name, size_t name_n, SSL_TICKET_STATUS status, void* ctx) noexcept nogil
    int SSL_CTX_set_session_ticket_cb(SSL_CTX* x, ticket_made_fn made, ticket_opened_fn opened, void* ctx)
    int SSL_TICKET_SUCCESS, SSL_TICKET_SUCCESS_RENEW, SSL_TICKET_RETURN_USE, SSL_TICKET_RETURN_USE_RENEW, SSL_TICKET_RETURN_IGNORE_RENEW
    X509* SSL_SESSION_get0_peer(SSL_SESSION* x)
    int SSL_SESSION_set1_ticket_appdata(SSL_SESSION* x, const void* p, size_t n)
    int SSL_SESSION_get0_ticket_appdata(SSL_SESSION* x, void** p, size_t* n)
    long SSL_SESSION_set_timeout(SSL_SESSION* x, long seconds)
    int SSL_CTX_set_cipher_list(SSL_CTX* x, const char* text)
    int SSL_CTX_set_ciphersuites(SSL_CTX* x, const char* text)
    long SSL_CTX_set_dh_auto(SSL_CTX* x, int on)
    int SSL_CTX_use_certificate_chain_file(SSL_CTX* x, const char* path)
    int SSL_CTX_use_PrivateKey_file(SSL_CTX* x, const char* path, int type)
    int SSL_CTX_check_private_key(SSL_CTX* x)
    X509* SSL_CTX_get0_certificate(SSL_CTX* x)
    long SSL_CTX_get0_chain_certs(SSL_CTX* x, OPENSSL_STACK** chain)
    long SSL_CTX_build_cert_chain(SSL_CTX* x, long flags)
    long SSL_BUILD_CHAIN_FLAG_IGNORE_ERROR
    int SSL_CTX_load_verify_locations(SSL_CTX* x, const char* cafile, const char* capath)
    NAME_STACK* SSL_load_client_CA_file(const char* path)
    void SSL_CTX_set_client_CA_list(SSL_CTX* x, NAME_STACK* names)
    X509_STORE* SSL_CTX_get_cert_store(SSL_CTX* x)
    void SSL_CTX_set_verify(SSL_CTX* x, int mode, verify_fn f)
    void SSL_CTX_set_default_passwd_cb(SSL_CTX* x, password_fn f)
    void SSL_CTX_set_psk_server_callback(SSL_CTX* x, psk_server_fn f)
    void SSL_CTX_set_psk_client_callback(SSL_CTX* x, psk_client_fn f)
    int SSL_CTX_set_max_proto_version(SSL_CTX* x, int version)
    int SSL_CTX_set_default_verify_paths(SSL_CTX* x)
    int SSL_CTX_set_alpn_protos(SSL_CTX* x, const unsigned char* p, unsigned int n)     # 0 = success
    long SSL_CTX_set_tlsext_status_cb(SSL_CTX* x, status_fn f)
    int SSL_CTX_use_psk_identity_hint(SSL_CTX* x, const char* hint)
    void SSL_CTX_set_keylog_callback(SSL_CTX* x, keylog_fn f)
    void SSL_CTX_set_msg_callback(SSL_CTX* x, message_fn f)
    void SSL_CTX_set_app_data(SSL_CTX* x, void* p)
    void* SSL_CTX_get_app_data(const SSL_CTX* x)

    SSL* SSL_new(SSL_CTX* x)
    void SSL_free(SSL* s)
    SSL_CTX* SSL_get_SSL_CTX(const SSL* s)
    void SSL_set_app_data(SSL* s, void* p)
    void* SSL_get_app_data(const SSL* s)
    void SSL_set_accept_state(SSL* s)
    void SSL_set_connect_state(SSL* s)
    long SSL_set_tlsext_host_name(SSL* s, const char* name)
    long SSL_set_tlsext_status_type(SSL* s, int type)
    long SSL_get_tlsext_status_ocsp_resp(SSL* s, unsigned char** p)
    int SSL_set1_host(SSL* s, const char* name)
    X509_VERIFY_PARAM* SSL_get0_param(SSL* s)
    long SSL_get_verify_result(const SSL* s)
    OPENSSL_STACK* SSL_get0_verified_chain(const SSL* s)
    int SSL_do_handshake(SSL* s)
    int SSL_has_pending(const SSL* s)
    void SSL_set_shutdown(SSL* s, int mode)
    SSL_SESSION* SSL_get_session(const SSL* s)
    uint8_t SSL_SESSION_get_max_fragment_length(const SSL_SESSION* x)
    int SSL_get_early_data_status(const SSL* s)
    int TLSEXT_STATUSTYPE_ocsp
    void SSL_set_bio(SSL* s, BIO* r, BIO* w)
    int SSL_read(SSL* s, void* p, int n)
    int SSL_write(SSL* s, const void* p, int n)
    int SSL_shutdown(SSL* s)
    int SSL_pending(const SSL* s)
    int SSL_get_error(const SSL* s, int result)
    int SSL_is_init_finished(const SSL* s)
    int SSL_session_reused(const SSL* s)
    int SSL_version(const SSL* s)
    const char* SSL_get_version(const SSL* s)
    const SSL_CIPHER* SSL_get_current_cipher(const SSL* s)
    const SSL_CIPHER* SSL_get_pending_cipher(const SSL* s)
    int SSL_CIPHER_get_kx_nid(const SSL_CIPHER* c)
    int NID_kx_ecdhe
    int NID_kx_ecdhe_psk
    int NID_kx_psk
    const char* SSL_CIPHER_get_name(const SSL_CIPHER* c)
    uint16_t SSL_CIPHER_get_protocol_id(const SSL_CIPHER* c)
    X509* SSL_get1_peer_certificate(const SSL* s)
    OPENSSL_STACK* SSL_get_peer_cert_chain(const SSL* s)

    int SSL_ERROR_WANT_READ, SSL_ERROR_ZERO_RETURN, SSL_ERROR_SSL
    uint64_t SSL_OP_NO_RENEGOTIATION, SSL_OP_NO_COMPRESSION, SSL_OP_CIPHER_SERVER_PREFERENCE, SSL_OP_NO_TICKET
    uint64_t SSL_OP_SINGLE_ECDH_USE, SSL_OP_SINGLE_DH_USE
    long SSL_MODE_RELEASE_BUFFERS, SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER
    long SSL_SESS_CACHE_OFF
    int SSL_VERIFY_NONE, SSL_VERIFY_PEER, SSL_VERIFY_FAIL_IF_NO_PEER_CERT
    int SSL3_RT_HANDSHAKE
    int SSL3_MT_SERVER_DONE
    int SSL3_MT_FINISHED
    int SSL_EARLY_DATA_ACCEPTED, SSL_SENT_SHUTDOWN, SSL_RECEIVED_SHUTDOWN
    int SSL_AD_REASON_OFFSET, SSL_R_UNEXPECTED_MESSAGE, SSL_R_DECRYPTION_FAILED_OR_BAD_RECORD_MAC, SSL_R_DATA_LENGTH_TOO_LONG
    int SSL_R_BAD_LENGTH, SSL_R_BAD_VALUE, SSL_R_TOO_MANY_KEY_UPDATES
    int SSL_FILETYPE_PEM, TLS1_1_VERSION, TLS1_2_VERSION, TLS1_3_VERSION

cdef extern from "<openssl/x509_vfy.h>" nogil:
    X509_STORE_CTX* X509_STORE_CTX_new()
    void X509_STORE_CTX_free(X509_STORE_CTX* x)
    int X509_STORE_CTX_init(X509_STORE_CTX* x, X509_STORE* store, X509* leaf, OPENSSL_STACK* chain)
    int X509_STORE_CTX_set_default(X509_STORE_CTX* x, const char* name)
    void X509_STORE_CTX_set_verify_cb(X509_STORE_CTX* x, verify_fn f)
    int X509_STORE_CTX_get_error(const X509_STORE_CTX* x)
    void X509_STORE_CTX_set_error(X509_STORE_CTX* x, int error)
    int X509_STORE_CTX_get_error_depth(const X509_STORE_CTX* x)
    int X509_verify_cert(X509_STORE_CTX* x)
    int X509_STORE_set_flags(X509_STORE* s, unsigned long flags)
    X509_LOOKUP* X509_STORE_add_lookup(X509_STORE* s, X509_LOOKUP_METHOD* m)
    X509_LOOKUP_METHOD* X509_LOOKUP_file()
    int X509_load_crl_file(X509_LOOKUP* l, const char* path, int type)
    unsigned long X509_V_FLAG_CRL_CHECK
    int X509_VERIFY_PARAM_set1_ip(X509_VERIFY_PARAM* x, const unsigned char* ip, size_t n)
    const char* X509_verify_cert_error_string(long error)
    int X509_V_ERR_CERT_NOT_YET_VALID, X509_V_ERR_CERT_HAS_EXPIRED, X509_V_OK

cdef extern from "<openssl/x509.h>" nogil:
    void X509_free(X509* x)
    OPENSSL_STACK* X509_chain_up_ref(OPENSSL_STACK* chain)
    int X509_cmp(const X509* a, const X509* b)
    ctypedef struct ASN1_TIME:
        pass
    const ASN1_TIME* X509_get0_notAfter(const X509* x)
    int ASN1_TIME_diff(int* days, int* seconds, const ASN1_TIME* since, const ASN1_TIME* until)      # NULL = now
    int i2d_X509(X509* x, unsigned char** p)
    X509* d2i_X509(X509** a, const unsigned char** p, long n)
    X509_NAME* X509_get_subject_name(const X509* x)
    int X509_NAME_get_index_by_NID(const X509_NAME* name, int nid, int last)
    X509_NAME_ENTRY* X509_NAME_get_entry(const X509_NAME* name, int at)
    ASN1_STRING* X509_NAME_ENTRY_get_data(const X509_NAME_ENTRY* e)
    int X509_NAME_print_ex(BIO* out, const X509_NAME* name, int indent, unsigned long flags)
    int ASN1_STRING_to_UTF8(unsigned char** out, const ASN1_STRING* s)
    int NID_commonName
    unsigned long XN_FLAG_RFC2253

cdef extern from * nogil:
    """
    static inline void mosq_chain_free(STACK_OF(X509) *s) { sk_X509_pop_free(s, X509_free); }
    """
    void chain_free "mosq_chain_free"(OPENSSL_STACK* chain)

cdef extern from "<openssl/pem.h>" nogil:
    int PEM_write_bio_X509(BIO* out, X509* x)

cdef extern from "<openssl/bio.h>" nogil:
    ctypedef int (*bio_write_fn)(BIO* b, const char* p, int n) noexcept nogil
    ctypedef int (*bio_read_fn)(BIO* b, char* p, int n) noexcept nogil
    ctypedef long (*bio_ctrl_fn)(BIO* b, int command, long number, void* p) noexcept nogil
    BIO_METHOD* BIO_meth_new(int type, const char* name)
    void BIO_meth_free(BIO_METHOD* m)
    int BIO_meth_set_write(BIO_METHOD* m, bio_write_fn f)
    int BIO_meth_set_read(BIO_METHOD* m, bio_read_fn f)
    int BIO_meth_set_ctrl(BIO_METHOD* m, bio_ctrl_fn f)
    BIO* BIO_new(const BIO_METHOD* m)
    const BIO_METHOD* BIO_s_mem()
    int BIO_free(BIO* b)
    int BIO_up_ref(BIO* b)
    void BIO_set_data(BIO* b, void* p)
    void* BIO_get_data(BIO* b)
    void BIO_set_init(BIO* b, int on)
    void BIO_set_retry_read(BIO* b)
    void BIO_clear_retry_flags(BIO* b)
    long BIO_get_mem_data(BIO* b, char** p)
    int BIO_TYPE_SOURCE_SINK, BIO_CTRL_FLUSH

cdef extern from "<openssl/evp.h>" nogil:
    ctypedef struct EVP_MD:
        pass
    ctypedef struct EVP_CIPHER:
        pass
    EVP_CIPHER* EVP_CIPHER_fetch(void* lib, const char* name, const char* properties)
    void EVP_CIPHER_free(EVP_CIPHER* c)
    EVP_MD* EVP_MD_fetch(void* lib, const char* name, const char* properties)
    void EVP_MD_free(EVP_MD* m)
    int EVP_Digest(const void* p, size_t n, unsigned char* out, unsigned int* size, const EVP_MD* m, void* engine)
    EVP_CIPHER_CTX* EVP_CIPHER_CTX_new()
    int EVP_CIPHER_CTX_reset(EVP_CIPHER_CTX* x)
    void EVP_CIPHER_CTX_free(EVP_CIPHER_CTX* x)
    int EVP_CIPHER_CTX_ctrl(EVP_CIPHER_CTX* x, int command, int n, void* p)
    int EVP_CipherInit_ex2(EVP_CIPHER_CTX* x, const EVP_CIPHER* c, const unsigned char* key, const unsigned char* iv, int sealing,
                           const void* params)
    int EVP_CipherUpdate(EVP_CIPHER_CTX* x, unsigned char* out, int* size, const unsigned char* p, int n)
    int EVP_CipherFinal_ex(EVP_CIPHER_CTX* x, unsigned char* out, int* size)
    int EVP_CTRL_AEAD_SET_TAG, EVP_CTRL_AEAD_GET_TAG

cdef extern from "<openssl/evp.h>" nogil:
    ctypedef struct OSSL_PARAM:
        pass
    const EVP_CIPHER* EVP_aes_256_cbc()
    int EVP_default_properties_is_fips_enabled(void* lib)
    int EVP_MAC_CTX_set_params(EVP_MAC_CTX* x, const OSSL_PARAM* params)

cdef extern from "<openssl/core_names.h>" nogil:
    const char* OSSL_MAC_PARAM_KEY
    const char* OSSL_MAC_PARAM_DIGEST

cdef extern from "<openssl/params.h>" nogil:
    OSSL_PARAM OSSL_PARAM_construct_octet_string(const char* key, void* p, size_t n)
    OSSL_PARAM OSSL_PARAM_construct_utf8_string(const char* key, char* p, size_t n)
    OSSL_PARAM OSSL_PARAM_construct_end()

cdef extern from "<openssl/rand.h>" nogil:
    int RAND_bytes(unsigned char* p, int n)

cdef extern from "<openssl/ocsp.h>" nogil:
    ctypedef struct OCSP_RESPONSE:
        pass
    ctypedef struct OCSP_BASICRESP:
        pass
    ctypedef struct OCSP_CERTID:
        pass
    ctypedef struct ASN1_GENERALIZEDTIME:
        pass
    const EVP_MD* EVP_sha1()
    const EVP_MD* EVP_sha256()
    OCSP_RESPONSE* d2i_OCSP_RESPONSE(OCSP_RESPONSE** a, const unsigned char** p, long n)
    int OCSP_response_status(OCSP_RESPONSE* r)
    OCSP_BASICRESP* OCSP_response_get1_basic(OCSP_RESPONSE* r)
    int OCSP_basic_verify(OCSP_BASICRESP* b, OPENSSL_STACK* certificates, X509_STORE* store, unsigned long flags)
    OCSP_CERTID* OCSP_cert_to_id(const EVP_MD* digest, const X509* subject, const X509* issuer)
    int OCSP_resp_find_status(OCSP_BASICRESP* b, OCSP_CERTID* id, int* status, int* reason, ASN1_GENERALIZEDTIME** revoked,
                              ASN1_GENERALIZEDTIME** this, ASN1_GENERALIZEDTIME** next)
    int OCSP_check_validity(ASN1_GENERALIZEDTIME* this, ASN1_GENERALIZEDTIME* next, long leeway_s, long age_max_s)
    void OCSP_RESPONSE_free(OCSP_RESPONSE* r)
    void OCSP_BASICRESP_free(OCSP_BASICRESP* b)
    void OCSP_CERTID_free(OCSP_CERTID* id)
    int OCSP_RESPONSE_STATUS_SUCCESSFUL, V_OCSP_CERTSTATUS_GOOD
    int sk_X509_num(const OPENSSL_STACK* s)
    X509* sk_X509_value(const OPENSSL_STACK* s, int at)
    OPENSSL_STACK* sk_X509_new_null()
    int sk_X509_push(OPENSSL_STACK* s, X509* x)

cdef extern from "<openssl/err.h>" nogil:
    unsigned long ERR_get_error()
    void ERR_clear_error()
    void ERR_raise(int lib, int reason)
    int ERR_LIB_SSL, ERR_R_INTERNAL_ERROR
    void ERR_error_string_n(unsigned long e, char* out, size_t n)
    const char* ERR_reason_error_string(unsigned long e)

cdef extern from "<openssl/crypto.h>" nogil:
    unsigned int OPENSSL_version_major()
    unsigned int OPENSSL_version_minor()
    void OPENSSL_free(void* p)
    void OPENSSL_cleanse(void* p, size_t n)
    int CRYPTO_memcmp(const void* a, const void* b, size_t n)
