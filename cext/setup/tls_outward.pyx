# distutils: libraries = ssl crypto
"""Make a TlsContext from a bridge's TLS options. This module knows files and the error texts about them. It runs at the start and at each reload,
and reads everything again. No error contains a key. The first bridge with TLS loads this module."""

import os

from libc.stdint cimport uint8_t, uint16_t
from libc.stdlib cimport calloc, malloc
from libc.string cimport memcpy

from cext.net.openssl cimport (
    ERR_clear_error, SSL_CTX_check_private_key, SSL_CTX_load_verify_locations, SSL_CTX_set_alpn_protos, SSL_CTX_set_cipher_list,
    SSL_CTX_set_ciphersuites, SSL_CTX_set_default_passwd_cb, SSL_CTX_set_default_verify_paths, SSL_CTX_set_max_proto_version,
    SSL_CTX_set_min_proto_version, SSL_CTX_set_mode, SSL_CTX_set_options, SSL_CTX_use_PrivateKey_file,
    SSL_CTX_use_certificate_chain_file, SSL_FILETYPE_PEM, SSL_MODE_RELEASE_BUFFERS, SSL_OP_NO_COMPRESSION,
    SSL_OP_NO_RENEGOTIATION, TLS1_2_VERSION,
)
from cext.net.conn_state cimport TransportContext
from cext.net.tls cimport tls_context_new
from cext.net.tls_state cimport PSK_IDENTITY_BYTES_MAX, PSK_KEY_BYTES_MAX, Psk, TlsContext
from cext.net.tls_context cimport tls_context_callbacks, tls_context_release

from cext.setup.tls import TLS_VERSIONS, openssl_reason

ALPN_BYTES_MAX = 255


def outward_new(dict spec):
    """Return the address of a new TlsContext, with a reference that belongs to the caller. spec: cafile, capath, certfile, keyfile, tls_version,
    ciphers, ciphers_tls1.3, alpn, identity, psk (text or None); use_os_certs, insecure, require_ocsp (bool)."""
    cdef TlsContext* x = tls_context_new(1)
    if x == NULL:
        raise MemoryError("Unable to create TLS context." + openssl_reason())
    try:
        outward_context_fill(x, spec)
    except BaseException:
        tls_context_release(&x.base)
        raise
    finally:
        ERR_clear_error()
    return <size_t>x


cdef int outward_context_fill(TlsContext* x, dict spec) except -1:
    text = {name: str(spec.get(name) or "") for name in (
        "cafile", "capath", "certfile", "keyfile", "tls_version", "ciphers", "ciphers_tls1.3", "alpn", "identity", "psk")}
    x.any_name = bool(spec.get("insecure"))
    x.ocsp = bool(spec.get("require_ocsp"))
    SSL_CTX_set_options(x.ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION)
    SSL_CTX_set_mode(x.ctx, SSL_MODE_RELEASE_BUFFERS)
    SSL_CTX_set_default_passwd_cb(x.ctx, no_key_password)
    if text["tls_version"] not in TLS_VERSIONS:
        raise ValueError(f'Unsupported bridge_tls_version "{text["tls_version"]}". Expected tlsv1.2 or tlsv1.3.')
    SSL_CTX_set_min_proto_version(x.ctx, <int>TLS_VERSIONS[text["tls_version"]])
    if text["psk"] or text["identity"]:
        key_set(x, text["identity"], text["psk"], text["tls_version"])
    else:
        outward_authorities_load(x, text["cafile"], text["capath"], bool(spec.get("use_os_certs")))
    outward_ciphers_set(x, text["ciphers"], text["ciphers_tls1.3"])
    if text["certfile"] or text["keyfile"]:
        outward_certificate_load(x, text["certfile"], text["keyfile"])
    if text["alpn"]:
        alpn_set(x, text["alpn"])
    tls_context_callbacks(x)
    return 0


cdef int no_key_password(char* out, int n, int writing, void* ctx) noexcept nogil:
    """Return no passphrase, because there is no terminal for it."""
    return -1


def _why_not_outward(path):
    """Return the system's reason why a file cannot be read, or OpenSSL's."""
    reason = openssl_reason()
    try:
        with open(path, "rb") as file:
            file.read(1)
    except OSError as error:
        return f" ({error.strerror})"
    return reason


cdef int outward_authorities_load(TlsContext* x, str cafile, str capath, bint of_the_system) except -1:
    cdef bytes file = os.fsencode(cafile)
    cdef bytes folder = os.fsencode(capath)
    if not cafile and not capath and not of_the_system:
        raise ValueError("A bridge with TLS needs bridge_cafile, bridge_capath or bridge_tls_use_os_certs: the authorities that it trusts.")
    if of_the_system and SSL_CTX_set_default_verify_paths(x.ctx) != 1:
        raise OSError(f"Unable to load the CA certificates of the system (bridge_tls_use_os_certs).{openssl_reason()}")
    if cafile and SSL_CTX_load_verify_locations(x.ctx, <const char*>file, NULL) != 1:
        raise OSError(f'Unable to load CA certificates, check bridge_cafile "{cafile}". Expected certificates in PEM form.'
                      f'{_why_not_outward(cafile)}')
    # OpenSSL looks into the folder at each handshake: as with Mosquitto, it may come later, and nothing is trusted until then
    if capath and SSL_CTX_load_verify_locations(x.ctx, NULL, <const char*>folder) != 1:
        raise OSError(f'Unable to load CA certificates, check bridge_capath "{capath}".{openssl_reason()}')
    return 0


cdef int outward_certificate_load(TlsContext* x, str certfile, str keyfile) except -1:
    if not certfile or not keyfile:
        raise ValueError("bridge_certfile and bridge_keyfile go together: expected both, or none.")
    if SSL_CTX_use_certificate_chain_file(x.ctx, os.fsencode(certfile)) != 1:
        raise OSError(f'Unable to load client certificate, check bridge_certfile "{certfile}". Expected certificates in PEM form, the'
                      f" bridge's own first.{_why_not_outward(certfile)}")
    if SSL_CTX_use_PrivateKey_file(x.ctx, os.fsencode(keyfile), SSL_FILETYPE_PEM) != 1:
        reason = openssl_reason()
        if "mismatch" not in reason:
            raise OSError(f'Unable to load client key file, check bridge_keyfile "{keyfile}". Expected a private key in PEM form, without a'
                          f' passphrase.{_why_not_outward(keyfile) or reason}')
    if SSL_CTX_check_private_key(x.ctx) != 1:
        raise OSError(f'Client certificate/key are inconsistent. Expected bridge_keyfile "{keyfile}" to hold the key of'
                      f' bridge_certfile "{certfile}".')
    return 0


cdef int outward_ciphers_set(TlsContext* x, str ciphers, str suites) except -1:
    if not ciphers and x.n_psks:
        ciphers = "PSK:!kRSAPSK"         # RSA suites require a certificate beside the key
    if ciphers and SSL_CTX_set_cipher_list(x.ctx, ciphers.encode()) != 1:
        raise ValueError(f'Unable to set TLS ciphers. Check cipher list "{ciphers}" (bridge_ciphers).{openssl_reason()}')
    if suites and SSL_CTX_set_ciphersuites(x.ctx, suites.encode()) != 1:
        raise ValueError(f'Unable to set TLS 1.3 ciphersuites. Check list "{suites}" (bridge_ciphers_tls1.3).{openssl_reason()}')
    return 0


cdef int alpn_set(TlsContext* x, str alpn) except -1:
    cdef bytes name = alpn.encode()
    cdef bytes wire
    if len(name) > ALPN_BYTES_MAX:
        raise ValueError(f"bridge_alpn is longer than {ALPN_BYTES_MAX} bytes.")
    wire = bytes([len(name)]) + name
    if SSL_CTX_set_alpn_protos(x.ctx, <const unsigned char*>wire, <unsigned int>len(wire)) != 0:
        raise ValueError(f"Unable to set bridge_alpn.{openssl_reason()}")
    return 0


cdef int key_set(TlsContext* x, str identity, str digits, str version) except -1:
    """Set a pre-shared key. As in Mosquitto, a bridge with a key uses TLS 1.2, because servers with TLS 1.3 may not support external keys there."""
    cdef bytes name = identity.encode()
    cdef bytes key
    try:
        key = bytes.fromhex(digits)
    except ValueError:
        raise ValueError("bridge_psk is not a key in hexadecimal.") from None
    if not name or not key or b"\0" in name or len(name) >= PSK_IDENTITY_BYTES_MAX or len(key) > PSK_KEY_BYTES_MAX:
        raise ValueError(f"bridge_identity may have {PSK_IDENTITY_BYTES_MAX - 1} bytes, and bridge_psk {PSK_KEY_BYTES_MAX}; none is empty.")
    x.psks = <Psk*>calloc(1, sizeof(Psk))
    if x.psks == NULL:
        raise MemoryError
    x.n_psks = 1
    x.psks[0].identity = outward_copied(name + b"\0")
    x.psks[0].identity_n = <uint16_t>len(name)
    x.psks[0].key = outward_copied(key)
    x.psks[0].key_n = <uint16_t>len(key)
    if version != "tlsv1.3":
        SSL_CTX_set_max_proto_version(x.ctx, TLS1_2_VERSION)
    return 0


cdef uint8_t* outward_copied(bytes value) except NULL:
    cdef uint8_t* p = <uint8_t*>malloc(len(value) + 1)
    if p == NULL:
        raise MemoryError
    memcpy(p, <const char*>value, len(value))
    return p


def outward_release(size_t address):
    """Release a context that no connection uses."""
    tls_context_release(<TransportContext*>address)
