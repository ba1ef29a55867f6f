# The structs of TLS: a listener's context, a connection, the layer that the connections of a loop share.
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from cext.net.conn_state cimport ARENA_BYTES, Transport, TransportContext, TransportOps
from cext.net.openssl cimport BIO, BIO_METHOD, SSL, SSL_CTX
from cext.net.records cimport Records, Suite
from cext.net.tls_peer cimport Peer
from cext.net.tls_pool cimport Handshake, Pool
from cext.net.tls_tickets cimport TicketKeys

cdef enum:
    PSK_KEY_BYTES_MAX = 256
    PSK_IDENTITY_BYTES_MAX = 256

ctypedef struct Psk:
    uint8_t* identity           # identity without NUL bytes, followed by one
    uint8_t* key
    uint16_t identity_n
    uint16_t key_n

# Write the key of an identity and return its bytes; 0 = the identity is unknown, -1 = no plugin has an opinion.
ctypedef int (*psk_ask_fn)(void* realm, const char* hint, const char* identity, unsigned char* key, unsigned int n) noexcept nogil

ctypedef struct TlsContext:
    TransportContext base
    SSL_CTX* ctx
    long refs                   # atomic: one for the listener, and one for each connection
    Psk* psks                   # sorted by length of the identity, then by its bytes
    uint32_t n_psks
    void* psk_realm             # native plugins that know keys; NULL = none
    void* psk_ask               # how they are asked: psk_ask_fn
    char* psk_hint
    TicketKeys* tickets         # a reference; NULL = no tickets
    uint8_t compact             # 1 = `records` takes over after the handshake; 0 = OpenSSL processes the records
    uint8_t wants_certificate   # 1 = requests client certificates
    uint8_t any_date            # 1 = client certificates may be expired or not valid yet
    int keylog_fd               # -1 = none
    uint8_t outward             # 1 = for outbound connections; then psks[0] is our key
    uint8_t any_name            # 1 = the peer's certificate may have another name than the configured host
    uint8_t ocsp                # 1 = the peer must staple a signed OCSP response that its certificate is not revoked

ctypedef struct Tls:            # TLS state of a connection
    Transport base
    SSL* ssl                    # NULL = no bytes received yet, or `records` has taken over (TlsContext.compact)
    TlsContext* x
    Handshake* handshake        # NULL = no bytes received yet, or the handshake is complete
    uint8_t* out                # unsent output: base.unsent bytes at out + out_off; NULL = none
    uint32_t out_off
    uint32_t out_cap
    uint8_t* part               # `records` only: received part of an unfinished record; NULL = none
    uint32_t part_n
    uint32_t part_cap
    Peer peer
    Records records
    uint8_t done                # 1 = the handshake is complete
    uint8_t outdated            # 1 = came from another process with a pre-shared key that is not valid here
    uint8_t late                # OpenSSL only: messages of handshakes after the end of the first one, in second `late_s`
    uint64_t late_s

cdef enum:
    TLS_IN_BYTES = ARENA_BYTES - 20 * 1024      # leaves room in the arena for an unfinished record that OpenSSL may hold
    TLS_OUT_BYTES = 128 * 1024
    UNREAD_MAX_BYTES = 64 * 1024
    TLS_HANDSHAKES_PER_TURN = 8         # without threads

ctypedef struct TlsLayer:       # state shared by the connections of one loop
    TransportOps ops
    BIO_METHOD* method
    BIO_METHOD* step_method     # for the SSL of a handshake: its bytes are in its Handshake
    BIO* bio
    Pool pool
    const Tls* reader           # connection whose records OpenSSL reads now, after its handshake; NULL = none
    const uint8_t* in_p         # received bytes of the present connection that are not decrypted yet
    size_t in_n
    size_t out_n
    uint64_t turn               # turn in which `steps` of handshakes were done
    uint32_t steps
    Suite suites[3]             # size is SUITES
    uint8_t received[108 * 1024]         # size is TLS_IN_BYTES
    uint8_t out[128 * 1024]     # size is TLS_OUT_BYTES
    uint8_t gathered[16384]     # size is RECORD_BYTES
