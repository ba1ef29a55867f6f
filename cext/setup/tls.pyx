# distutils: libraries = ssl crypto
"""Make a TlsContext from a listener's TLS options. This module knows files and Mosquitto's error texts about them. It runs at the start and at each
reload, and reads everything again: certificates, trusted authorities, revocations and keys of identities.

Errors, ValueError for a psk_file, OSError for everything else. The text names the option, the file and the
expected content. No error contains a key or a passphrase. The first
listener with TLS loads this module.
"""

import os

from libc.stdint cimport uint8_t, uint16_t, uint32_t
from libc.stdlib cimport calloc, malloc
from libc.string cimport memcpy

from cext.net.openssl cimport (
    ERR_clear_error, ERR_get_error, EVP_default_properties_is_fips_enabled, OPENSSL_version_major, OPENSSL_version_minor, ERR_reason_error_string, NAME_STACK, OPENSSL_STACK, SSL_BUILD_CHAIN_FLAG_IGNORE_ERROR,
    SSL_CTX_build_cert_chain, SSL_CTX_check_private_key, SSL_CTX_get0_certificate, SSL_CTX_get0_chain_certs,
    SSL_CTX_get_cert_store, SSL_CTX_load_verify_locations, SSL_CTX_set_cipher_list,
    SSL_CTX_set_ciphersuites, SSL_CTX_set_client_CA_list, SSL_CTX_set_default_passwd_cb, SSL_CTX_set_dh_auto,
    SSL_CTX_set_min_proto_version, SSL_CTX_set_mode, SSL_CTX_set_num_tickets, SSL_CTX_set_options,
    SSL_CTX_set_session_cache_mode, SSL_CTX_set_session_id_context, SSL_CTX_set_timeout,
    SSL_CTX_use_PrivateKey_file, SSL_CTX_use_certificate_chain_file, SSL_CTX_use_psk_identity_hint, SSL_FILETYPE_PEM,
    SSL_MODE_RELEASE_BUFFERS, SSL_OP_CIPHER_SERVER_PREFERENCE, SSL_OP_NO_COMPRESSION, SSL_OP_NO_RENEGOTIATION, SSL_OP_NO_TICKET,
    SSL_SESS_CACHE_OFF, SSL_load_client_CA_file, TLS1_1_VERSION, TLS1_2_VERSION, TLS1_3_VERSION, X509_LOOKUP, X509_LOOKUP_file,
    X509_STORE_add_lookup, X509_STORE_set_flags, X509_V_FLAG_CRL_CHECK, X509_cmp, X509_load_crl_file, sk_X509_num,
)
from cext.net.tls cimport tls_context_new
from cext.net.tls_memory cimport tls_memory_begin
from cext.net.tls_state cimport PSK_IDENTITY_BYTES_MAX, PSK_KEY_BYTES_MAX, Psk, TlsContext
from cext.net.tls_context cimport tls_context_callbacks, tls_context_release
from cext.net.tls_tickets cimport SESSION_LIFE_S, ticket_keys_new, ticket_keys_ref, ticket_keys_unref

TLS_VERSIONS = {"": TLS1_2_VERSION, "tlsv1.1": TLS1_1_VERSION, "tlsv1.2": TLS1_2_VERSION, "tlsv1.3": TLS1_3_VERSION}
# AES-128 first: its digest makes a handshake cheaper by a tenth, its cipher everything after it by a fifth, and both are secure. The client's list
# decides which of them are possible.
TLS13_SUITES = "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256"
MEMORY_COUNTED = tls_memory_begin()      # False: OpenSSL was in use before, so sizes are estimated
PSKS_MAX = 1_000_000
# Versions of OpenSSL with which all tests of cext/net/records passed. The patch level does not matter: it brings fixes only.
COMPACT_TESTED = ((3, 0),)
PSK_FILE_BYTES_MAX = 256 << 20


def listener_tls_context(dict spec):
    """Return the address of a new TlsContext, with a reference that belongs to the caller."""
    cdef TlsContext* x = tls_context_new(0)
    if x == NULL:
        raise MemoryError("Unable to create TLS context." + openssl_reason())
    try:
        listener_context_fill(x, spec, str(spec.get("tls_keylog") or ""))
    except BaseException:
        tls_context_release(&x.base)
        raise
    finally:
        ERR_clear_error()
    return <size_t>x


def tickets_copy(size_t old_address, size_t new_address):
    """Let sessions that began with the old context be resumed with the new one, if the broker's certificate is the same and clients have no keys
    of their own. Certificates of clients are verified again at each resumption, by the new authorities and revocations."""
    cdef TlsContext* old = <TlsContext*>old_address
    cdef TlsContext* new = <TlsContext*>new_address
    if old.tickets == NULL or new.tickets == NULL:
        return
    if SSL_CTX_get0_certificate(old.ctx) == NULL or SSL_CTX_get0_certificate(new.ctx) == NULL:
        return
    if X509_cmp(SSL_CTX_get0_certificate(old.ctx), SSL_CTX_get0_certificate(new.ctx)) != 0:
        return
    ticket_keys_unref(new.tickets)
    new.tickets = ticket_keys_ref(old.tickets)


def compact_refusal(fips=None, version=None):
    """Return why `tls_compact_records` cannot be in force with this OpenSSL; "" = it can. The arguments replace the facts for tests: whether only
    algorithms of the FIPS provider are allowed, and (major, minor)."""
    if fips is None:
        fips = EVP_default_properties_is_fips_enabled(NULL) == 1
    if version is None:
        version = (OPENSSL_version_major(), OPENSSL_version_minor())
    if fips:
        return "OpenSSL allows only FIPS algorithms, and the record layer of this broker is not validated"
    if version not in COMPACT_TESTED:
        known = ", ".join(".".join(map(str, one)) for one in COMPACT_TESTED)
        return f"it is tested with OpenSSL {known}, and this is {'.'.join(map(str, version))}"
    return ""


def openssl_reason():
    """Return OpenSSL's text for the last error."""
    cdef unsigned long e = ERR_get_error()
    cdef const char* text = ERR_reason_error_string(e) if e else NULL
    ERR_clear_error()
    return f" ({text.decode('utf-8', 'replace')})" if text != NULL else ""


cdef int listener_context_fill(TlsContext* x, dict spec, str keylog_path) except -1:
    text = {name: str(spec.get(name) or "") for name in (
        "cafile", "capath", "certfile", "keyfile", "crlfile", "ciphers", "ciphers_tls1.3", "tls_version", "psk_hint", "psk_file")}
    x.wants_certificate = bool(spec.get("require_certificate"))
    x.any_date = bool(spec.get("disable_client_cert_date_checks"))
    x.compact = bool(spec.get("tls_compact_records")) and not compact_refusal()
    SSL_CTX_set_options(x.ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_CIPHER_SERVER_PREFERENCE)
    SSL_CTX_set_mode(x.ctx, SSL_MODE_RELEASE_BUFFERS)
    SSL_CTX_set_dh_auto(x.ctx, 1)
    SSL_CTX_set_default_passwd_cb(x.ctx, no_password)
    version_set(x, text["tls_version"])
    ciphers_set(x, text["ciphers"], text["ciphers_tls1.3"] or TLS13_SUITES)
    if text["certfile"] or text["keyfile"]:
        certificate_load(x, text["certfile"], text["keyfile"])
    if text["cafile"] or text["capath"]:
        authorities_load(x, text["cafile"], text["capath"])
    if text["crlfile"]:
        revocations_load(x, text["crlfile"])
    chain_find(x)
    if text["psk_hint"]:
        native = spec.get("psk_native")
        if native is not None:
            x.psk_realm = <void*><size_t>native[0]
            x.psk_ask = <void*><size_t>native[1]
            x.psk_hint = <char*>bytes_copied(text["psk_hint"].encode() + b"\0")
        identities_load(x, text["psk_file"], text["psk_hint"], native is not None)
    tickets_set(x)
    if keylog_path:
        x.keylog_fd = os.open(keylog_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    tls_context_callbacks(x)
    return 0


cdef int version_set(TlsContext* x, str version) except -1:
    if version not in TLS_VERSIONS:
        raise OSError(f'Unsupported tls_version "{version}". Expected tlsv1.2 or tlsv1.3.')
    SSL_CTX_set_min_proto_version(x.ctx, <int>TLS_VERSIONS[version])
    return 0


cdef int ciphers_set(TlsContext* x, str ciphers, str suites) except -1:
    if ciphers and SSL_CTX_set_cipher_list(x.ctx, ciphers.encode()) != 1:
        raise OSError(f'Unable to set TLS ciphers. Check cipher list "{ciphers}".{openssl_reason()}')
    if suites and SSL_CTX_set_ciphersuites(x.ctx, suites.encode()) != 1:
        raise OSError(f'Unable to set TLS 1.3 ciphersuites. Check cipher_tls13 list "{suites}".{openssl_reason()}')
    return 0


cdef int tickets_set(TlsContext* x) except -1:
    """Set up session tickets. Clients hold their sessions in tickets, so the broker stores none. One ticket per connection is enough. There are
    none if keys prove identities, because a resumed session would not contain the identity."""
    SSL_CTX_set_session_cache_mode(x.ctx, SSL_SESS_CACHE_OFF)
    SSL_CTX_set_session_id_context(x.ctx, <const unsigned char*>b"mosq", 4)
    SSL_CTX_set_timeout(x.ctx, SESSION_LIFE_S)
    SSL_CTX_set_num_tickets(x.ctx, 0 if x.n_psks or x.psk_ask != NULL else 1)
    if x.n_psks or x.psk_ask != NULL:
        SSL_CTX_set_options(x.ctx, SSL_OP_NO_TICKET)
        return 0
    x.tickets = ticket_keys_new()
    if x.tickets == NULL:
        raise MemoryError
    return 0


# ---------------------------------------------------------------- certificates

cdef int no_password(char* out, int n, int writing, void* ctx) noexcept nogil:
    """Return no passphrase, because there is no terminal for it."""
    return -1


def _readable(path):
    """Raise OSError with the system's text if the file cannot be read."""
    with open(path, "rb") as file:
        return file.read(1 << 20)


def _why_not(path):
    """Return why a file could not be loaded: the system's reason, or OpenSSL's."""
    reason = openssl_reason()
    try:
        _readable(path)
    except OSError as error:
        return f" ({error.strerror})"
    return reason


cdef int certificate_load(TlsContext* x, str certfile, str keyfile) except -1:
    if not certfile or not keyfile:
        raise ValueError("Both certfile and keyfile must be provided to enable a TLS listener.")
    if SSL_CTX_use_certificate_chain_file(x.ctx, os.fsencode(certfile)) != 1:
        raise OSError(f'Unable to load server certificate "{certfile}". Check certfile.'
                      f' Expected certificates in PEM form, the broker\'s own first.{_why_not(certfile)}')
    if SSL_CTX_use_PrivateKey_file(x.ctx, os.fsencode(keyfile), SSL_FILETYPE_PEM) != 1:
        reason = openssl_reason()
        if "mismatch" not in reason:
            raise OSError(key_error(keyfile, reason))
    if SSL_CTX_check_private_key(x.ctx) != 1:
        raise OSError(f'Server certificate/key are inconsistent. Expected keyfile "{keyfile}" to hold the key of'
                      f' certfile "{certfile}".')
    return 0


def key_error(keyfile, reason):
    try:
        content = _readable(keyfile)
    except OSError as error:
        content, reason = b"", f" ({error.strerror})"
    if b"ENCRYPTED" in content:
        return (f'Unable to load server key file "{keyfile}". Check keyfile. The key is encrypted, and the broker cannot ask for'
                f' its passphrase: expected a key without one (openssl pkey -in "{keyfile}" -out NEW).')
    return f'Unable to load server key file "{keyfile}". Check keyfile. Expected a private key in PEM form.{reason}'


cdef int authorities_load(TlsContext* x, str cafile, str capath) except -1:
    cdef bytes file = os.fsencode(cafile)
    cdef bytes folder = os.fsencode(capath)
    cdef NAME_STACK* names
    if cafile:
        if SSL_CTX_load_verify_locations(x.ctx, <const char*>file, NULL) != 1:
            raise OSError(f'Unable to load CA certificates. Check cafile "{cafile}". Expected certificates in PEM form.'
                          f'{_why_not(cafile)}')
        if x.wants_certificate:
            names = SSL_load_client_CA_file(file)
            if names != NULL:
                SSL_CTX_set_client_CA_list(x.ctx, names)
    if capath:
        if not os.path.isdir(capath):
            raise OSError(f'Unable to load CA certificates. Check capath "{capath}". Expected a folder prepared by'
                          f' "openssl rehash".')
        if SSL_CTX_load_verify_locations(x.ctx, NULL, <const char*>folder) != 1:
            raise OSError(f'Unable to load CA certificates. Check capath "{capath}".{openssl_reason()}')
    return 0


cdef void chain_find(TlsContext* x) noexcept nogil:
    """Find the chain of a certificate that has none in its file. Otherwise OpenSSL would search it among the authorities in every handshake, and
    check signatures."""
    cdef OPENSSL_STACK* chain = NULL
    SSL_CTX_get0_chain_certs(x.ctx, &chain)
    if SSL_CTX_get0_certificate(x.ctx) != NULL and (chain == NULL or sk_X509_num(chain) == 0):
        SSL_CTX_build_cert_chain(x.ctx, SSL_BUILD_CHAIN_FLAG_IGNORE_ERROR)
    ERR_clear_error()


cdef int revocations_load(TlsContext* x, str path) except -1:
    cdef X509_LOOKUP* lookup = X509_STORE_add_lookup(SSL_CTX_get_cert_store(x.ctx), X509_LOOKUP_file())
    if lookup == NULL or X509_load_crl_file(lookup, os.fsencode(path), SSL_FILETYPE_PEM) < 1:
        raise OSError(f'Unable to load certificate revocation file "{path}". Check crlfile. Expected revocation lists in PEM form.'
                      f'{_why_not(path)}')
    X509_STORE_set_flags(SSL_CTX_get_cert_store(x.ctx), X509_V_FLAG_CRL_CHECK)
    return 0


# ---------------------------------------------------------------- pre-shared keys

cdef int identities_load(TlsContext* x, str path, str hint, bint optional) except -1:
    """Load the keys of a psk_file. `optional`: a plugin knows keys."""
    cdef uint32_t i
    if not path and not optional:
        raise ValueError("psk_hint needs a psk_file, or a plugin that knows keys: identities and their keys.")
    found = identities_read(path) if path else {}
    x.psks = <Psk*>calloc(len(found) + 1, sizeof(Psk))
    if x.psks == NULL:
        raise MemoryError
    for i, identity in enumerate(sorted(found, key=lambda name: (len(name), name))):     # sorted for a binary search
        x.n_psks = i + 1
        x.psks[i].identity = bytes_copied(identity + b"\0")
        x.psks[i].identity_n = <uint16_t>len(identity)
        x.psks[i].key = bytes_copied(found[identity])
        x.psks[i].key_n = <uint16_t>len(found[identity])
    if SSL_CTX_use_psk_identity_hint(x.ctx, hint.encode()) != 1:
        raise ValueError(f"Unable to set TLS PSK hint. Expected at most 256 bytes of text.{openssl_reason()}")
    return 0


cdef uint8_t* bytes_copied(bytes value) except NULL:
    cdef uint8_t* p = <uint8_t*>malloc(len(value) + 1)
    if p == NULL:
        raise MemoryError
    memcpy(p, <const char*>value, len(value))
    return p


def identities_read(path):
    """Return identity -> key from lines `identity:key in hexadecimal`. `#` begins a comment, and the first line of an identity counts."""
    try:
        with open(path, "rb") as file:
            content = file.read(PSK_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ValueError(f'Unable to open pwfile "{path}": {error.strerror}. Expected a psk_file that can be read.') from None
    if len(content) > PSK_FILE_BYTES_MAX:
        raise ValueError(f'psk file "{path}" is larger than {PSK_FILE_BYTES_MAX} bytes.')
    found = {}
    for number, line in enumerate(content.splitlines(), 1):
        line = line.strip()
        if not line or line.startswith(b"#"):
            continue
        identity, colon, digits = line.partition(b":")
        where = f'psk file "{path}", line {number}'
        name = identity.decode("utf-8", "replace")
        if not colon or not identity:
            raise ValueError(f"{where}: expected IDENTITY:KEY, the key in hexadecimal.")
        if not digits:
            raise ValueError(f'Empty psk for identity "{name}": {where}.')
        try:
            key = bytes.fromhex(digits.decode("ascii"))
        except ValueError:
            raise ValueError(f'psk for identity "{name}" contains non-hexadecimal characters, or an odd number of them:'
                             f' {where}.') from None
        if b"\0" in identity or len(identity) > PSK_IDENTITY_BYTES_MAX or len(key) > PSK_KEY_BYTES_MAX:
            raise ValueError(f"{where}: an identity may have {PSK_IDENTITY_BYTES_MAX} bytes, and its key {PSK_KEY_BYTES_MAX}.")
        found.setdefault(identity, key)
        if len(found) > PSKS_MAX:
            raise ValueError(f'psk file "{path}" has more than {PSKS_MAX} identities.')
    return found
