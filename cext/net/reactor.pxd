# The event loop's turn, its connections and listeners. Knows sockets; not MQTT: what bytes mean is behind the callbacks.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from cext.base.buffer cimport Buffers
from cext.net.proxy cimport Proxied
from cext.net.upgrade cimport Upgrade, UpgradeRules
from cext.net.websocket cimport WsDecoder

cdef enum:
    ARENA_BYTES = 128 * 1024    # one read of one connection
    ARENA_MARGIN = 2048         # an unfinished small frame is put back in front of what comes next
    EVENTS_MAX = 512            # per turn
    ACCEPTS_MAX = 64            # per listener and turn
    IOV_MAX_USED = 64           # segments per writev
    FLUSH_EARLY_BYTES = 256 * 1024      # a connection that collects more in one turn is flushed at once
    INPUT_FIRST_BYTES = 64 * 1024       # of a large frame, until so much of it has really come

cdef enum:
    SOURCE_LISTENER = 1
    SOURCE_CONN = 2
    SOURCE_WAKE = 3
    SOURCE_NEWS = 4

ctypedef struct Address:
    uint8_t family              # AF_INET, AF_INET6, AF_UNIX; 0: none
    uint8_t by_proxy                # by a proxy, or by the client itself: not what the system says
    uint16_t port
    uint8_t ip[16]

ctypedef struct ListenSocket

ctypedef struct ListenSocket:
    uint32_t source             # SOURCE_LISTENER; first, as in every source
    int32_t fd
    uint16_t port
    uint8_t family
    uint8_t paused              # out of descriptors, the spare one too: not watched for PAUSE_MS
    ListenSocket* paused_next
    void* owner                 # the broker's settings for it

ctypedef struct Seg:
    # A piece of output: own bytes (ref NULL) or a loan (ref: what to release when it is sent).
    Seg* next
    const uint8_t* p
    uint32_t len                # bytes to send, `off` included
    uint32_t off                # bytes sent already
    uint32_t cap                # own bytes: capacity from p
    uint32_t buffer_cap         # size of the buffer that holds this Seg and its bytes
    void* ref

ctypedef union WebParser:
    Upgrade upgrade
    WsDecoder ws

ctypedef struct Web:            # what is between the socket and the owner (web.pyx)
    uint8_t stage
    uint8_t proxy_version
    uint8_t over                # the peer's Close, or an error: nothing more is read
    uint8_t close_sent
    uint16_t goodbye            # status of our Close, when it is not the answer to one
    const UpgradeRules* rules   # NULL: no WebSocket
    uint8_t* request            # what has come of the PROXY header or HTTP request, when it is not whole
    uint32_t request_n
    uint32_t request_cap
    uint32_t proxy_need         # size of the PROXY header, once it is known
    uint32_t framed             # unsent bytes that need no header any more: those in front
    Seg* framed_tail            # the last of them, while there are any
    WebParser parser            # by stage

ctypedef struct Conn            # below
ctypedef struct Reactor

# What a connection may have between its socket and its owner, from the outside in. Any part may be missing; a plain connection has none
# and pays one look at each of two pointers per read and per flush.
#
#     socket -> PROXY header (Web) -> TLS (Transport) -> HTTP upgrade, WebSocket frames (Web) -> on_input
#     socket <-                    <- TLS (Transport) <- WebSocket frames (Web)               <- Segs
#
# All happens in the read and in the flush of the connection's turn: one recv, one send. What was decrypted and is not taken at once lies in
# in_buf as any input does, never within the layer, so that CONN_PAUSED, CONN_READY and CONN_DEAF mean what they mean elsewhere. What was
# encrypted and could not be sent is `unsent` here. The deadline for all of it is the owner's, from accept to the first packet.
cdef enum:
    NOTHING = -2                # TransportOps.receive: what came was not for the owner

cdef enum:
    # what TransportOps.tell is asked for
    PEER_PROTOCOL = 0           # "TLSv1.3"
    PEER_CIPHER = 1
    PEER_COMMON_NAME = 2        # of the peer's certificate, UTF-8
    PEER_SUBJECT = 3            # RFC 2253
    PEER_CERTIFICATE = 4        # PEM
    PEER_IDENTITY = 5           # of the pre-shared key

ctypedef struct TransportOps:
    # At most n bytes for the owner, as recv: 0 the peer closed, -1 errno, NOTHING. n is ARENA_BYTES: nothing is left within the layer.
    ssize_t (*receive)(Reactor* r, Conn* c, uint8_t* p, size_t n) noexcept nogil
    # Takes what it can from the Segs, changes none of them, and sends. How many of their bytes it took, or -1 errno; then none.
    ssize_t (*send)(Reactor* r, Conn* c) noexcept nogil
    # Last words as far as the socket takes them now; the layer's memory goes. The socket is still open.
    void (*close)(Reactor* r, Conn* c) noexcept nogil
    # How many bytes it put at out; -1: there is none, or it does not fit or is not text.
    int (*tell)(const Conn* c, int what, uint8_t* out, uint32_t n) noexcept nogil
    # Of a connection outwards, which speaks first. Before the connect: whom it is to meet, in the caller's words. 0 or errno
    int (*aim)(Reactor* r, Conn* c, const char* host) noexcept nogil
    # When the socket is there: the first words are `unsent`. 0 or errno
    int (*greet)(Reactor* r, Conn* c) noexcept nogil

ctypedef struct Transport:      # begins each layer's struct
    const TransportOps* ops
    uint32_t unsent             # encrypted bytes that the socket did not take
    int32_t error               # of `over`: errno, or 0: an orderly end
    uint8_t open                # its last words (close_notify) are still to be said
    uint8_t over                # nothing more comes

ctypedef struct TransportContext:       # what the connections of a listener are made with; begins each layer's struct. Counts references
    Transport* (*begin)(TransportContext* x, Reactor* r, Conn* c) noexcept nogil     # NULL: no memory
    bint (*verifies)(TransportContext* x, const Conn* c) noexcept nogil  # would c's certificate still let it in?
    void (*release)(TransportContext* x) noexcept nogil     # any thread

cdef enum:
    CONN_DIRTY = 1              # in the flush list
    CONN_BLOCKED = 2            # EPOLLOUT is armed
    CONN_READY = 4              # input waits in in_buf for the next turn
    CONN_CLOSED = 8             # in the graveyard
    CONN_CLOSING = 16           # flush what is there, then close; input is ignored
    CONN_PAUSED = 32            # the owner takes no input now
    CONN_SHUT = 64              # our side is shut; waiting for the peer to close, by a deadline
    CONN_HUNGRY = 128           # the owner has more to send: on_drained is called when all is out
    CONN_DEAF = 256             # EPOLLIN is disarmed: input came while paused
    CONN_CONNECTING = 512       # outwards, and the socket is not there yet: EPOLLOUT is armed, EPOLLIN is not
    CONN_OPENING = 1024         # outwards, and on_opened has not been called yet: the owner has nothing to write
    CONN_HELD = 2048            # the owner lets nothing out yet

ctypedef struct Conn:
    uint32_t source             # SOURCE_CONN
    int32_t fd
    uint32_t flags
    uint32_t out_bytes          # unsent
    Conn* dirty_next            # also links the graveyard
    Conn* ready_next
    Seg* out_head
    Seg* out_tail
    uint8_t* in_buf             # NULL but while a frame is unfinished or input waits for its turn
    uint32_t in_off
    uint32_t in_len
    uint32_t in_cap
    uint32_t in_need            # total bytes of the unfinished frame; 0: not known
    uint64_t rx_ms              # when something was last read
    Web* web                    # NULL: the bytes are the owner's as they come
    Transport* transport        # NULL: not encrypted
    Address address

ctypedef void (*accept_fn)(void* ctx, ListenSocket* l, int fd, const Address* a) noexcept nogil
# Takes the n bytes at p, returns how many it used up; c.in_need may be set for an unfinished frame.
ctypedef size_t (*input_fn)(void* ctx, Conn* c, const uint8_t* p, size_t n) noexcept nogil
# The peer closed (err 0) or the socket failed (errno). The owner calls conn_close.
ctypedef void (*lost_fn)(void* ctx, Conn* c, int err) noexcept nogil
ctypedef void (*conn_fn)(void* ctx, Conn* c) noexcept nogil
ctypedef void (*release_fn)(void* ctx, void* ref) noexcept nogil
ctypedef void (*plain_fn)(void* ctx) noexcept nogil
# A PROXY header has come (NULL: a bad one). 0: go on; else the owner ends c, before the turn is over.
ctypedef int (*proxied_fn)(void* ctx, Conn* c, const Proxied* p) noexcept nogil
# A connection outwards can be written to (err 0), or did not come about (errno; EPROTO: its handshake failed). The owner calls conn_close.
ctypedef void (*opened_fn)(void* ctx, Conn* c, int err) noexcept nogil
# A layer says what is wrong with a connection, before on_lost.
ctypedef void (*wrong_fn)(void* ctx, Conn* c, const char* text) noexcept nogil
# The HTTP request has been answered. u.wrong is 0: c speaks WebSocket from now on, `text` is the request; else the owner ends c.
ctypedef void (*upgraded_fn)(void* ctx, Conn* c, const Upgrade* u, const uint8_t* text) noexcept nogil

ctypedef struct Reactor:
    int ep
    int wake_fd
    int spare_fd                # given up to be able to refuse politely when descriptors run out
    void* ctx
    accept_fn on_accept
    input_fn on_input
    lost_fn on_lost
    conn_fn on_drained          # a CONN_HUNGRY connection has nothing unsent any more
    conn_fn on_free             # end of turn: nobody points to c any more
    release_fn release
    plain_fn on_wake
    plain_fn on_news            # a descriptor of reactor_watch is readable
    plain_fn on_no_descriptors
    proxied_fn on_proxied
    upgraded_fn on_upgraded
    wrong_fn on_wrong
    opened_fn on_opened         # needed by who calls conn_connect (outward.pxd)
    void* layer                 # what the transports of this loop share; NULL until the first
    void (*layer_free)(void* layer) noexcept nogil
    uint64_t turns
    uint8_t* arena              # ARENA_MARGIN bytes of room before it
    Buffers buffers
    Conn* dirty
    Conn* ready
    ListenSocket* paused
    uint64_t resume_ms
    uint64_t now_ms
    int64_t now_s
    uint64_t bytes_in
    uint64_t bytes_out
    uint64_t unsent_bytes       # all connections
    uint64_t n_accepted

cdef int reactor_init(Reactor* r, void* ctx) noexcept nogil         # 0 or errno
cdef void reactor_fini(Reactor* r) noexcept nogil
# One turn: waits up to timeout_ms (not at all when input or output is pending), then reads, calls back, and leaves the
# flush to reactor_flush.
cdef int reactor_turn(Reactor* r, int timeout_ms) noexcept nogil
cdef void reactor_flush(Reactor* r) noexcept nogil                  # all dirty connections, then the graveyard
cdef int reactor_watch(Reactor* r, int fd) noexcept nogil           # on_news when it is readable; 0 or errno
cdef void reactor_wake(Reactor* r) noexcept nogil                   # from any thread

cdef int reactor_listen(Reactor* r, ListenSocket* l) noexcept nogil     # l.fd is bound and listening; 0 or errno
cdef void reactor_unlisten(Reactor* r, ListenSocket* l) noexcept nogil  # the socket stays open; l itself must stay until the end of the turn
cdef int conn_open(Reactor* r, Conn* c, int fd, const Address* a) noexcept nogil     # 0 or errno
# The same for a socket whose connect has begun: then on_opened, once, unless c is closed before. The deadline is the owner's.
cdef int conn_await(Reactor* r, Conn* c, int fd, const Address* a) noexcept nogil
cdef void conn_close(Reactor* r, Conn* c) noexcept nogil            # at once; c is freed by on_free at the end of the turn
cdef void conn_finish(Reactor* r, Conn* c) noexcept nogil           # after what is queued has been sent
cdef uint8_t* conn_room_new(Reactor* r, Conn* c, uint32_t n) noexcept nogil
cdef void conn_flush(Reactor* r, Conn* c) noexcept nogil            # now, rather than at the end of the turn
cdef void conn_mark_dirty(Reactor* r, Conn* c) noexcept nogil

# Room for n contiguous bytes at the end of the output; write there, then conn_wrote. NULL: no memory.
cdef inline uint8_t* conn_room(Reactor* r, Conn* c, uint32_t n) noexcept nogil:
    cdef Seg* tail = c.out_tail
    if tail != NULL and tail.cap - tail.len >= n:       # a loan has cap == len
        return <uint8_t*>tail.p + tail.len
    return conn_room_new(r, c, n)

cdef inline void conn_wrote(Reactor* r, Conn* c, uint32_t n) noexcept nogil:
    c.out_tail.len += n
    c.out_bytes += n
    r.unsent_bytes += n
    if not c.flags & CONN_DIRTY:
        conn_mark_dirty(r, c)

# Lends n bytes at p; release(ctx, ref) is called when they are sent or dropped. 0 or -1: no memory (not lent).
cdef int conn_lend(Reactor* r, Conn* c, const uint8_t* p, uint32_t n, void* ref) noexcept nogil
cdef void conn_resume(Reactor* r, Conn* c) noexcept nogil           # after CONN_PAUSED, or to go on next turn
# Before the first byte is read: a PROXY header comes first (its version, or 0), then a WebSocket (rules NULL: none). 0 or ENOMEM
cdef int conn_web(Conn* c, int proxy_version, const UpgradeRules* rules) noexcept nogil
# Before the first byte is read: 0 or ENOMEM
cdef int conn_tls_context(Reactor* r, Conn* c, TransportContext* x) noexcept nogil
# Something waits to be sent, be it in Segs or within the layer.
cdef inline bint conn_unsent(const Conn* c) noexcept nogil:
    return c.out_bytes != 0 or (c.transport != NULL and c.transport.unsent != 0)
# A last word can still be said: a WebSocket's Close, also after the peer's, or after it broke the rules of WebSocket.
cdef inline bint conn_owes_close(const Conn* c) noexcept nogil:
    return c.web != NULL and c.web.stage == 3 and not c.web.close_sent       # WEB_OPEN
# Hands the input buffer over when it holds exactly the n bytes at p (a large frame): the caller owns it then (buffer_give).
cdef uint8_t* conn_steal_input(Conn* c, const uint8_t* p, uint32_t n, uint32_t* cap) noexcept nogil
