# The structs of the loop: connections, listeners, layers between socket and owner, the reactor.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from cext.base.buffer cimport Buffers
from cext.net.proxy cimport Proxied
from cext.net.upgrade cimport Upgrade, UpgradeRules
from cext.net.websocket cimport WsDecoder

cdef enum:
    ARENA_BYTES = 128 * 1024    # limit of one read from one connection
    ARENA_MARGIN = 2048         # room in front of the arena, into which an unfinished small frame is copied before the next read
    TURN_EVENTS_MAX = 512       # limit of events per turn
    ACCEPTS_MAX = 64            # limit per listener and turn
    IOV_MAX_USED = 64           # limit of segments per writev
    FLUSH_EARLY_BYTES = 256 * 1024      # limit of output in one turn; a connection with more is flushed at once
    # First buffer of a large frame; a larger one is allocated once this many bytes have arrived.
    INPUT_FIRST_BYTES = 64 * 1024
    SMALL_READ_BYTES = 4096     # limit of one read from a CONN_SMALL connection; the rest stays in the socket
    SMALL_FIRST_BYTES = 1024    # first buffer of a large frame of such a connection

cdef enum:
    SOURCE_LISTENER = 1
    SOURCE_CONN = 2
    SOURCE_WAKE = 3
    SOURCE_WATCHED = 4
    SOURCE_LAYER = 5
    SOURCE_PASSAGE = 6
    SOURCE_NOTICE = 7

cdef enum:
    PROXY_ITSELF = 3            # of Address.by_proxy: the proxy itself is the client; bit 0 is set as in 1

ctypedef struct Address:
    uint8_t family              # AF_INET, AF_INET6, AF_UNIX; 0 = none
    uint8_t by_proxy            # 1 = reported by a proxy or by the client, not by the system; PROXY_ITSELF = of a proxy that is the client
    uint16_t port
    uint8_t ip[16]

ctypedef struct ListenSocket

ctypedef struct ListenSocket:
    uint32_t source             # SOURCE_LISTENER; the first field, as in every source
    int32_t fd
    uint16_t port
    uint8_t family
    uint8_t paused              # 1 = no descriptors left, not even the spare one: not watched for LISTENER_PAUSE_MS
    uint8_t due                 # 1 = in Reactor.due
    uint8_t shared              # 1 = other processes accept from this socket too
    uint8_t full                # 1 = no more connections are allowed: those that wait are accepted in the next turn
    ListenSocket* paused_next
    ListenSocket* due_next
    void* owner                 # the broker's settings for this listener

ctypedef struct Seg:
    # A piece of output: own bytes (ref NULL), or a loan (ref: the object to release after sending).
    Seg* next
    const uint8_t* p
    uint32_t len                # bytes to send, including `off`
    uint32_t off                # bytes already sent
    uint32_t cap                # own bytes: capacity from p
    uint32_t buffer_cap         # size of the buffer that contains this Seg and its bytes
    void* ref

ctypedef union WebParser:
    Upgrade upgrade
    WsDecoder ws

ctypedef struct Web:            # state of a connection with a PROXY header or WebSocket (web.pyx)
    uint8_t stage
    uint8_t proxy_version
    uint8_t over                # 1 = the peer's Close or an error: no more input is read
    uint8_t close_sent
    uint16_t close_status       # status of our Close, unless it answers a Close
    const UpgradeRules* rules   # NULL = no WebSocket
    uint8_t* request            # received part of an unfinished PROXY header or HTTP request; NULL = none
    uint32_t request_n
    uint32_t request_cap
    uint32_t proxy_need         # size of the PROXY header; 0 = not known yet
    uint32_t framed             # unsent bytes at the front that already have a frame header
    Seg* framed_tail            # last Seg of these bytes; valid while framed > 0
    WebParser parser            # state of the parser of the present stage

ctypedef struct Conn            # defined below
ctypedef struct Reactor

# Layers between a connection's socket and its owner, from the outside in. Each is optional; a plain connection has none and pays
# for one check of two pointers per read and per flush.
#
#     socket -> PROXY header (Web) -> TLS (Transport) -> HTTP upgrade, WebSocket frames (Web) -> on_input
#     socket <-                    <- TLS (Transport) <- WebSocket frames (Web)               <- Segs
#
# The layers work in the read and in the flush of the connection's turn, with one recv and one send. Decrypted bytes that the
# owner does not take are in in_buf, like any input, and never within the layer, so CONN_PAUSED, CONN_READY and CONN_DEAF have the
# same meaning for all connections. Encrypted bytes that could not be sent are `unsent`. The owner sets one deadline for all
# layers, from accept to the first packet.
cdef enum:
    NOTHING = -2                # result of TransportOps.receive: no bytes for the owner

cdef enum:
    # facts that TransportOps.describe returns
    PEER_PROTOCOL = 0           # "TLSv1.3"
    PEER_CIPHER = 1
    PEER_COMMON_NAME = 2        # common name of the peer's certificate, UTF-8
    PEER_SUBJECT = 3            # subject of the peer's certificate, RFC 2253
    PEER_CERTIFICATE = 4        # the peer's certificate as PEM
    PEER_IDENTITY = 5           # identity of the pre-shared key

ctypedef struct TransportOps:
    # Read at most n bytes for the owner. Return their number, 0 if the peer closed, -1 with errno, or NOTHING. n is ARENA_BYTES,
    # so nothing stays within the layer.
    ssize_t (*receive)(Reactor* r, Conn* c, uint8_t* p, size_t n) noexcept nogil
    # Encrypt as much of the Segs as possible without changing them, and send. Return the number of their bytes, or -1
    # with errno; then none were taken.
    ssize_t (*send)(Reactor* r, Conn* c) noexcept nogil
    # Send the last bytes (close_notify) as far as the socket takes them now, and free the layer. The socket is still open.
    void (*close)(Reactor* r, Conn* c) noexcept nogil
    # Write a fact about the peer to out. Return its size, or -1 if it does not exist, does not fit or is not text.
    int (*describe)(const Conn* c, int what, uint8_t* out, uint32_t n) noexcept nogil
    # Prepare an outbound connection, which sends first. Call it before the connect. host: the expected peer's name in the
    # configuration. Return 0 or errno.
    int (*prepare)(Reactor* r, Conn* c, const char* host) noexcept nogil
    # Start the handshake once the socket is connected: the first bytes are `unsent`. Return 0 or errno.
    int (*start)(Reactor* r, Conn* c) noexcept nogil
    # Write the state of the layer for another process to out, if it fits. Return its size; 0 = the connection cannot move. seals: whether the
    # other process continues with connections whose handshake is complete.
    uint32_t (*save)(const Conn* c, bint seals, uint8_t* out, uint32_t n) noexcept nogil

ctypedef struct Transport:      # head of each layer's struct
    const TransportOps* ops
    uint32_t unsent             # encrypted bytes that the socket did not accept
    uint32_t memory             # bytes that the layer holds beside `unsent`, until the first packet of the owner's protocol
    int32_t error               # valid if `over`: errno, or 0 after an orderly end
    uint8_t open                # 1 = the closing bytes (close_notify) are still to be sent
    uint8_t over                # 1 = no more input comes

# Reference-counted settings for the connections of a listener; head of each layer's struct.
ctypedef struct TransportContext:
    Transport* (*begin)(TransportContext* x, Reactor* r, Conn* c) noexcept nogil     # NULL = no memory
    bint (*verifies)(TransportContext* x, const Conn* c) noexcept nogil  # whether c's certificate or key would still be accepted
    void (*release)(TransportContext* x) noexcept nogil     # may run in any thread
    # Begin with the n bytes at p, which `save` of another process wrote. NULL: they are wrong, or there is no memory.
    Transport* (*restore)(TransportContext* x, Reactor* r, Conn* c, const uint8_t* p, uint32_t n) noexcept nogil
    # Write the secrets that all connections share for another process to out, if they fit, and return their size; 0: there are none; and use those of another process.
    uint32_t (*secrets_save)(TransportContext* x, uint8_t* out, uint32_t n) noexcept nogil
    void (*secrets_restore)(TransportContext* x, const uint8_t* p, uint32_t n) noexcept nogil

cdef enum:
    CONN_DIRTY = 1              # in the flush list
    CONN_BLOCKED = 2            # EPOLLOUT is armed
    CONN_READY = 4              # input in in_buf waits for a later turn
    CONN_CLOSED = 8             # closed; on_free is called at the end of the turn
    CONN_CLOSING = 16           # flush the present output, then close; input is ignored
    CONN_PAUSED = 32            # the owner takes no input now
    CONN_SHUT = 64              # our side is shut; waits for the peer to close, until a deadline
    CONN_HUNGRY = 128           # the owner has more to send: on_drained is called when all output is sent
    CONN_DEAF = 256             # EPOLLIN is disarmed, because input came while paused
    CONN_CONNECTING = 512       # outbound, not connected yet: EPOLLOUT is armed, EPOLLIN is not
    CONN_OPENING = 1024         # outbound, on_opened not called yet: the owner must not write
    CONN_HELD = 2048            # the owner allows no output yet
    CONN_SMALL = 4096           # not trusted yet: reads little at a time, its buffer grows with what arrived, and on_small follows each read
    CONN_PEER = 65536           # to another broker process: the owner has another struct around it than for its clients
    CONN_SHAKING = 8192         # a thread of the layer works on its input: nothing is read
    CONN_MOVED = 16384          # another process has accepted it
    CONN_RELAY = 32768          # its bytes go to another connection of this process, and back
    CONN_INNER = 131072         # to another worker of this broker: its bytes are not traffic of clients

ctypedef struct Conn:
    uint32_t source             # SOURCE_CONN
    int32_t fd
    uint32_t flags
    uint32_t out_bytes          # unsent bytes of all Segs
    Conn* dirty_next            # next in the dirty list, or in the list of closed connections
    Conn* ready_next
    Seg* out_head
    Seg* out_tail
    uint8_t* in_buf             # NULL = no unfinished frame, and no input that waits for its turn
    uint32_t in_off
    uint32_t in_len
    uint32_t in_cap
    uint32_t in_need            # total bytes of the unfinished frame; 0 = not known
    uint64_t rx_ms              # time of the last read; of a client that has just been accepted, 0
    Web* web                    # NULL = the owner gets the bytes unchanged
    Transport* transport        # NULL = not encrypted
    Address address

ctypedef void (*accept_fn)(void* ctx, ListenSocket* l, int fd, const Address* a) noexcept nogil
# Process the n bytes at p and return how many were used. For an unfinished frame the owner may set c.in_need.
ctypedef size_t (*input_fn)(void* ctx, Conn* c, const uint8_t* p, size_t n) noexcept nogil
# The peer closed (err 0) or the socket failed (errno). The owner calls conn_close.
ctypedef void (*lost_fn)(void* ctx, Conn* c, int err) noexcept nogil
ctypedef void (*conn_fn)(void* ctx, Conn* c) noexcept nogil
# Return the settings that are in force for c's listener now; NULL = it has none.
ctypedef TransportContext* (*context_fn)(void* ctx, Conn* c) noexcept nogil
ctypedef void (*release_fn)(void* ctx, void* ref) noexcept nogil
ctypedef void (*plain_fn)(void* ctx) noexcept nogil
ctypedef bint (*late_fn)(void* ctx) noexcept nogil
# A PROXY header has arrived (NULL: an invalid one). Return 0 to continue; otherwise the owner ends c before the turn ends.
ctypedef int (*proxied_fn)(void* ctx, Conn* c, const Proxied* p) noexcept nogil
# An outbound connection can be written to (err 0), or could not be opened (errno; EPROTO: its handshake failed). After an
# error the owner calls conn_close.
ctypedef void (*opened_fn)(void* ctx, Conn* c, int err) noexcept nogil
# A layer describes an error of a connection, before on_lost.
ctypedef void (*error_text_fn)(void* ctx, Conn* c, const char* text) noexcept nogil
# The HTTP request was answered. If u.wrong is 0, c speaks WebSocket from now on, and `text` is the
# request; otherwise the owner ends c.
ctypedef void (*upgraded_fn)(void* ctx, Conn* c, const Upgrade* u, const uint8_t* text) noexcept nogil

# The handshake of an inbound connection is complete, `us` microseconds after its first bytes.
ctypedef void (*shaken_fn)(void* ctx, uint64_t us) noexcept nogil

ctypedef struct Reactor:
    int ep
    int wake_fd
    int spare_fd                # descriptor to close when none are left, so that one connection can be accepted and refused
    void* ctx
    accept_fn on_accept
    input_fn on_input
    lost_fn on_lost
    conn_fn on_small            # a CONN_SMALL connection has read
    conn_fn on_drained          # a CONN_HUNGRY connection has no unsent output any more
    conn_fn on_free             # end of turn: no pointers to c are left
    release_fn release
    plain_fn on_wake
    plain_fn on_watched         # a descriptor of reactor_watch is readable
    plain_fn on_passage         # a descriptor of reactor_watch_passage is readable
    plain_fn on_notice          # a descriptor of reactor_watch_notice is readable
    plain_fn on_no_descriptors
    proxied_fn on_proxied
    upgraded_fn on_upgraded
    error_text_fn on_transport_error
    late_fn is_late             # whether the turn should end: input that waits stays for the next one. NULL: never
    context_fn context_of       # NULL: a connection keeps the settings with which it began
    opened_fn on_opened         # required for conn_connect (outward.pxd)
    void* layer                 # state shared by the transports of this loop; NULL = no connection has used one yet
    void (*layer_free)(void* layer) noexcept nogil
    # Return the next connection for which a thread of the layer has completed its work; NULL = none. It must be read then.
    Conn* (*layer_next)(void* layer) noexcept nogil
    int layer_threads           # threads of the layer; -1 = by the number of processors, 0 = the loop does the work
    uint32_t layer_per_network  # limit of handshakes of one network that began and did not end; 0 = none
    uint64_t handshakes         # complete handshakes of inbound connections
    uint64_t handshakes_failed
    shaken_fn on_shaken         # NULL: no call
    uint64_t turns
    uint32_t turn_interval_us   # average distance of turns under load, at least; 0 = turns follow each other at once
    uint64_t turn_due_us        # see turn_wait
    uint8_t* arena              # has ARENA_MARGIN bytes of room in front of it
    Buffers buffers
    Conn* dirty
    Conn* ready                 # connections whose input waits, in the order in which they are served
    Conn* ready_last            # valid if `ready` is not NULL
    ListenSocket* paused
    ListenSocket* due           # listeners on which connections wait, for reactor_accept
    uint64_t resume_ms
    uint64_t now_us             # monotonic time of the turn's begin, after the wait for events
    uint64_t now_ms             # the same in milliseconds
    int64_t now_s
    uint64_t bytes_in           # of connections that are not CONN_INNER
    uint64_t bytes_out
    uint64_t inner_in           # of CONN_INNER connections
    uint64_t inner_out
    uint64_t unsent_bytes       # sum of all connections
    uint64_t n_accepted


# Count bytes that a connection has received, and those that it has sent.
cdef inline void count_in(Reactor* r, const Conn* c, uint64_t n) noexcept nogil:
    if c.flags & CONN_INNER:
        r.inner_in += n
    else:
        r.bytes_in += n

cdef inline void count_out(Reactor* r, const Conn* c, uint64_t n) noexcept nogil:
    if c.flags & CONN_INNER:
        r.inner_out += n
    else:
        r.bytes_out += n

# Return whether output is unsent, in Segs or within the layer.
cdef inline bint conn_unsent(const Conn* c) noexcept nogil:
    return c.out_bytes != 0 or (c.transport != NULL and c.transport.unsent != 0)

# Return whether a Close frame can still be sent on a WebSocket, also after the peer's Close or its protocol error.
cdef inline bint conn_close_pending(const Conn* c) noexcept nogil:
    return c.web != NULL and c.web.stage == 3 and not c.web.close_sent       # WEB_OPEN
