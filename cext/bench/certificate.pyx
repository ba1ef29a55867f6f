# distutils: libraries = crypto
# A self-signed certificate with its key, for a broker that runs only during a load (`mosq bench --start --tls`), made without a
# program or library that may be missing.
from cext.net.openssl cimport (
    BIO, BIO_free, BIO_get_mem_data, BIO_new, BIO_s_mem, ERR_clear_error, EVP_MD, EVP_sha256, PEM_write_bio_X509, X509,
    X509_NAME, X509_free, X509_get_subject_name,
)

cdef extern from "<openssl/asn1.h>":
    ctypedef struct ASN1_INTEGER:
        pass
    ctypedef struct ASN1_TIME:
        pass
    int ASN1_INTEGER_set(ASN1_INTEGER* a, long v)
    int MBSTRING_ASC

cdef extern from "<openssl/evp.h>":
    ctypedef struct EVP_PKEY:
        pass
    EVP_PKEY* EVP_PKEY_Q_keygen(void* lib, const char* properties, const char* type, ...)
    void EVP_PKEY_free(EVP_PKEY* k)

cdef extern from "<openssl/pem.h>":
    int PEM_write_bio_PrivateKey(BIO* out, EVP_PKEY* k, void* cipher, void* password, int n, void* f, void* u)

cdef extern from "<openssl/x509v3.h>":
    ctypedef struct X509_EXTENSION:
        pass
    X509* X509_new()
    int X509_set_version(X509* x, long version)
    ASN1_INTEGER* X509_get_serialNumber(X509* x)
    ASN1_TIME* X509_getm_notBefore(X509* x)
    ASN1_TIME* X509_getm_notAfter(X509* x)
    ASN1_TIME* X509_gmtime_adj(ASN1_TIME* t, long s)
    int X509_NAME_add_entry_by_txt(X509_NAME* n, const char* field, int type, const unsigned char* p, int size, int at, int set)
    int X509_set_issuer_name(X509* x, X509_NAME* n)
    int X509_set_pubkey(X509* x, EVP_PKEY* k)
    int X509_sign(X509* x, EVP_PKEY* k, const EVP_MD* m)
    X509_EXTENSION* X509V3_EXT_conf_nid(void* conf, void* ctx, int nid, const char* value)
    void X509_EXTENSION_free(X509_EXTENSION* e)
    int X509_add_ext(X509* x, X509_EXTENSION* e, int at)
    int NID_subject_alt_name


cdef bytes bio_take(BIO* b):
    """Return the content of a memory BIO and free the BIO."""
    cdef char* p = NULL
    cdef long n = BIO_get_mem_data(b, &p) if b != NULL else 0
    try:
        return p[:n]
    finally:
        BIO_free(b)


cdef bint certificate_fill(X509* x, EVP_PKEY* key, bytes names, long days):
    cdef X509_EXTENSION* e
    cdef bint ok
    X509_set_version(x, 2)
    ASN1_INTEGER_set(X509_get_serialNumber(x), 1)
    X509_gmtime_adj(X509_getm_notBefore(x), -3600)
    X509_gmtime_adj(X509_getm_notAfter(x), days * 86400)
    X509_NAME_add_entry_by_txt(X509_get_subject_name(x), "CN", MBSTRING_ASC, <const unsigned char*>b"mosq bench", -1, -1, 0)
    X509_set_issuer_name(x, X509_get_subject_name(x))
    e = X509V3_EXT_conf_nid(NULL, NULL, NID_subject_alt_name, names)
    if e == NULL:
        return False
    ok = X509_add_ext(x, e, -1) == 1
    X509_EXTENSION_free(e)
    return ok and X509_set_pubkey(x, key) == 1 and X509_sign(x, key, EVP_sha256()) > 0


def self_signed(str names, int days=7):
    """Return (certificate, key), both PEM. names: "DNS:localhost,IP:127.0.0.1" """
    cdef EVP_PKEY* key = EVP_PKEY_Q_keygen(NULL, NULL, "EC", <const char*>b"P-256")
    cdef X509* x = X509_new()
    cdef BIO* certificate_bio = BIO_new(BIO_s_mem())
    cdef BIO* key_bio = BIO_new(BIO_s_mem())
    cdef bint ok = key != NULL and x != NULL and certificate_bio != NULL and key_bio != NULL and certificate_fill(x, key, names.encode(), days)
    if ok:
        ok = PEM_write_bio_X509(certificate_bio, x) == 1 and PEM_write_bio_PrivateKey(key_bio, key, NULL, NULL, 0, NULL, NULL) == 1
    X509_free(x)
    EVP_PKEY_free(key)
    ERR_clear_error()
    found = bio_take(certificate_bio), bio_take(key_bio)
    if not ok:
        raise ValueError(f"a certificate for {names} cannot be made")
    return found
