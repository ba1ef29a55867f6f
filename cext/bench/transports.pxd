# The layers between MQTT and the sockets of a load with TLS, WebSockets, or both.
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from cext.bench.load cimport Load, TransportLayer
from cext.bench.tls cimport LoadTls
from cext.bench.web cimport WEB_ACCEPT_SIZE
from cext.net.openssl cimport SSL
from cext.net.tls_state cimport TlsContext
from cext.net.websocket cimport WsDecoder

ctypedef struct TransportState:           # state of a client
    SSL* ssl                    # NULL = no TLS
    uint64_t begun_ns
    uint32_t answer_n
    uint8_t* answer             # incomplete answer to the HTTP request; WEB_ANSWER_MAX bytes
    WsDecoder ws

ctypedef struct Transports:          # state of a load
    TransportLayer ops          # first: Load.transport points to it
    LoadTls load_tls            # load_tls.x NULL = no TLS
    char* host
    uint8_t* request            # HTTP request; NULL = no WebSockets
    uint32_t request_n
    uint8_t accept[28]          # size = WEB_ACCEPT_SIZE: the required answer
    uint64_t dice               # random numbers for masks; never 0
    uint8_t* frame              # frame that is being made
    size_t frame_cap
    uint8_t* received           # RAW_BYTES, before they are decrypted

# Take over the reference of x; x NULL = no TLS. request NULL = no WebSockets. Return NULL without memory.
cdef Transports* transports_new(TlsContext* x, const char* host, const uint8_t* request, uint32_t request_n, const uint8_t* accept) noexcept nogil
cdef void transports_free(Transports* y) noexcept nogil
