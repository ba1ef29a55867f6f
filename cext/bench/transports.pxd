# What lies between MQTT and the sockets of a load that has TLS, WebSockets, or both.
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from cext.bench.load cimport Load, TransportLayer
from cext.bench.tls cimport LoadTls
from cext.bench.web cimport WEB_ACCEPT_SIZE
from cext.net.openssl cimport SSL
from cext.net.tls cimport TlsContext
from cext.net.websocket cimport WsDecoder

ctypedef struct TransportState:           # of a client
    SSL* ssl                    # NULL: no TLS
    uint64_t begun_ns
    uint32_t answer_n
    uint8_t* answer             # to the HTTP request, until it is whole; WEB_ANSWER_MAX bytes
    WsDecoder ws

ctypedef struct Transports:          # of a load
    TransportLayer ops                 # first: Load.door points to it
    LoadTls load_tls               # secure.x NULL: no TLS
    char* host
    uint8_t* request            # the HTTP request; NULL: no WebSockets
    uint32_t request_n
    uint8_t accept[28]          # WEB_ACCEPT_SIZE: what answers it
    uint64_t dice               # for masks; never 0
    uint8_t* frame              # one that is being made
    size_t frame_cap
    uint8_t* came               # RAW_BYTES, before they are decrypted

# x NULL: no TLS, otherwise its reference is taken over; request NULL: no WebSockets. NULL: no memory
cdef Transports* transports_new(TlsContext* x, const char* host, const uint8_t* request, uint32_t request_n, const uint8_t* accept) noexcept nogil
cdef void transports_free(Transports* y) noexcept nogil
