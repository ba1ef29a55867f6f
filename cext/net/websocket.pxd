# WebSocket frames [RFC 6455 5] of a server, sans-IO: wire bytes in, payload bytes out; headers for output. Clients
# read frames with this module too.
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
    WS_NO_STATUS = 1005         # never on the wire: the peer's Close contained no status
    WS_TOO_BIG = 1009

cdef enum:
    WS_CONTROL_BYTES_MAX = 125  # limit of the payload of a control frame [RFC 6455 5.5]
    # Limit of one frame's payload: far above any MQTT packet, and a frame is never stored as a whole.
    WS_FRAME_BYTES_MAX = 1 << 30
    WS_HEAD_SIZE_MAX = 10       # size limit of the header of a sent frame
    WS_PONG_SIZE_MAX = 127
    WS_CLOSE_SIZE_MAX = 4

cdef enum WsState:
    WS_HEAD = 0                 # in the next frame's header
    WS_DATA = 1                 # in the payload of a data frame
    WS_CONTROL = 2              # in the payload of a control frame
    WS_CLOSED = 3               # the peer's Close has arrived: `code` is its status
    WS_FAILED = 4               # the peer broke the protocol: `code` is the status to send

ctypedef struct WsDecoder:      # state of the decoder; zeroed = initial state
    uint64_t left               # bytes of the frame's payload that have not arrived
    uint32_t mask               # mask in memory order, rotated so that its first byte applies to the next payload byte
    uint16_t code
    uint8_t state
    uint8_t opcode              # opcode of the present frame
    uint8_t fragmented          # 1 = a message has begun and its last fragment has not
    uint8_t head_n              # bytes of the header that have arrived
    uint8_t head_size           # size of the header; known after its second byte
    uint8_t from_server         # 1 = the decoder reads as a client: frames have no mask
    uint8_t ping_due            # 1 = control[:control_n] is a whole Ping that waits for its Pong
    uint8_t control_n
    uint8_t head[14]
    uint8_t control[125]

# Take all n bytes at p. Move the payloads of data frames together at p, unmasked, and return their total size.
cdef size_t ws_decode(WsDecoder* d, uint8_t* p, size_t n) noexcept nogil
# dst may be src or before it. Return the mask for the bytes that follow.
cdef uint32_t ws_unmask(uint8_t* dst, const uint8_t* src, size_t n, uint32_t mask) noexcept nogil

# Output: final, unmasked frames. Each function returns the end of the written bytes.
cdef inline uint32_t ws_head_size(uint64_t n) noexcept nogil:
    return 2 if n <= 125 else 4 if n <= 0xFFFF else 10

cdef uint8_t* ws_head_put(uint8_t* out, int opcode, uint64_t n) noexcept nogil
cdef uint8_t* ws_pong_put(uint8_t* out, WsDecoder* d) noexcept nogil        # answers the Ping that is due
cdef uint8_t* ws_close_put(uint8_t* out, int code) noexcept nogil           # WS_NO_STATUS: an empty Close
