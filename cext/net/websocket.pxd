# WebSocket frames [RFC 6455 5] of a server, sans-IO: wire bytes in, the payload's bytes out; headers for what is sent. A client reads by them, too.
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

cdef enum:
    WS_CONTINUATION = 0
    WS_TEXT = 1
    WS_BINARY = 2
    WS_CLOSE = 8
    WS_PING = 9
    WS_PONG = 10

cdef enum:
    # status codes [RFC 6455 7.4.1]
    WS_NORMAL = 1000
    WS_GOING_AWAY = 1001
    WS_PROTOCOL_ERROR = 1002
    WS_UNSUPPORTED = 1003
    WS_NO_STATUS = 1005         # never on the wire: the peer's Close gave none
    WS_TOO_BIG = 1009

cdef enum:
    WS_CONTROL_BYTES_MAX = 125  # payload of a control frame [RFC 6455 5.5]
    WS_FRAME_BYTES_MAX = 1 << 30    # of one frame's payload: far above any MQTT packet, and it is never held as a whole
    WS_HEAD_SIZE_MAX = 10       # of a frame that is sent
    WS_PONG_SIZE_MAX = 127
    WS_CLOSE_SIZE_MAX = 4

cdef enum WsState:
    WS_HEAD = 0                 # in the next frame's header
    WS_DATA = 1                 # in the payload of a data frame
    WS_CONTROL = 2              # in the payload of a control frame
    WS_CLOSED = 3               # the peer's Close has come: `code` is its status
    WS_FAILED = 4               # the peer broke the protocol: `code` is what to tell it

ctypedef struct WsDecoder:      # all zero is the beginning
    uint64_t left               # bytes of the frame's payload that have not come
    uint32_t mask               # as it lies in memory, turned so that its first byte is for the next byte of payload
    uint16_t code
    uint8_t state
    uint8_t opcode              # of the frame being read
    uint8_t fragmented          # a message has begun whose last fragment has not
    uint8_t head_n              # bytes of the header that have come
    uint8_t head_size           # its size, once its second byte says so
    uint8_t from_server         # we are the client: frames come without a mask
    uint8_t ping_due            # control[:control_n] is a whole Ping that waits for its Pong
    uint8_t control_n
    uint8_t head[14]
    uint8_t control[125]

# Takes all n bytes at p; moves the payload of data frames together at p, unmasked, and returns how much that is.
cdef size_t ws_decode(WsDecoder* d, uint8_t* p, size_t n) noexcept nogil
# dst may be src or lie before it. Returns the mask for what follows.
cdef uint32_t ws_unmask(uint8_t* dst, const uint8_t* src, size_t n, uint32_t mask) noexcept nogil

# What is sent: final, unmasked frames. Each returns the end of what it wrote.
cdef inline uint32_t ws_head_size(uint64_t n) noexcept nogil:
    return 2 if n <= 125 else 4 if n <= 0xFFFF else 10

cdef uint8_t* ws_head_put(uint8_t* out, int opcode, uint64_t n) noexcept nogil
cdef uint8_t* ws_pong_put(uint8_t* out, WsDecoder* d) noexcept nogil        # answers the Ping that is due
cdef uint8_t* ws_close_put(uint8_t* out, int code) noexcept nogil           # WS_NO_STATUS: an empty one
