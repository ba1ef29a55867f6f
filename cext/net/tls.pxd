# TLS between the socket and what is above it: a transport of the reactor, and what the connections of a listener are made with.
from libc.stdint cimport uint8_t, uint16_t, uint32_t
from cext.net.openssl cimport SSL, SSL_CTX
from cext.net.reactor cimport Transport, TransportContext
from cext.net.records cimport Records
from cext.net.tls_peer cimport Peer

cdef enum:
    PSK_KEY_BYTES_MAX = 256
    PSK_IDENTITY_BYTES_MAX = 256

ctypedef struct Psk:
    uint8_t* identity           # no NUL in it, one behind it
    uint8_t* key
    uint16_t identity_n
    uint16_t key_n

ctypedef struct TlsContext:
    TransportContext base
    SSL_CTX* ctx
    long refs                   # atomic: the listener's, and one of each connection
    Psk* psks                   # by length of the identity, then its bytes
    uint32_t n_psks
    uint8_t asks                # for client certificates
    uint8_t any_date            # those may be expired, or not valid yet
    int keylog_fd               # -1: none
    uint8_t outward             # for connections that we open; psks[0] is ours then
    uint8_t any_name            # the peer's certificate may have another name than we called it by
    uint8_t ocsp                # the peer must show, signed, that its certificate is not revoked

ctypedef struct Tls:            # a connection
    Transport base
    SSL* ssl                    # NULL until something has come, and when `records` has taken over
    TlsContext* x
    uint8_t* out                # base.unsent bytes at out + out_off
    uint32_t out_off
    uint32_t out_cap
    uint8_t* part               # of a record that has not come whole, once `records` has taken over
    uint32_t part_n
    uint32_t part_cap
    Peer peer
    Records records
    uint8_t done                # the handshake

# A context around an empty SSL_CTX, with one reference. NULL: no memory. cext/setup/tls.pyx fills it.
cdef TlsContext* tls_context_new(bint outward) noexcept nogil
