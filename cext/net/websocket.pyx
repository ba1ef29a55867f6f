"""Read and write the WebSocket frames of a server [RFC 6455 5], sans-IO. This module knows frames. It does not know sockets,
HTTP, or the meaning of the payload: frame borders have no meaning for MQTT [v5 6.0.0-2], so the payloads are one stream of bytes.

    HEAD --data frame--> DATA --all of it--> HEAD          HEAD --Close--> CONTROL --> CLOSED
    HEAD --Ping, Pong--> CONTROL --all of it--> HEAD       HEAD --any error--> FAILED

Invariants: every byte is consumed when it arrives, so the caller stores none. An invalid byte is reported before the next byte
is read, and the data before it is still delivered. The payload is unmasked in place and moved together, since it never grows.
Pings are bounded: only the last one is stored, and one Pong answers it [RFC 6455 5.5.3]. Cost: one pass over the payload, 8
bytes at a time, and some 20 ns a frame.
"""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy


cdef uint32_t ws_unmask(uint8_t* dst, const uint8_t* src, size_t n, uint32_t mask) noexcept nogil:
    # Load before storing, because dst may be a few bytes before src. Little-endian: the mask's first byte is its lowest.
    cdef uint64_t wide = <uint64_t>mask << 32 | mask
    cdef uint64_t a, b, c, d
    cdef size_t i = 0
    cdef uint32_t turn = <uint32_t>(n & 3) * 8
    while n - i >= 32:
        memcpy(&a, src + i, 8)
        memcpy(&b, src + i + 8, 8)
        memcpy(&c, src + i + 16, 8)
        memcpy(&d, src + i + 24, 8)
        a ^= wide
        b ^= wide
        c ^= wide
        d ^= wide
        memcpy(dst + i, &a, 8)
        memcpy(dst + i + 8, &b, 8)
        memcpy(dst + i + 16, &c, 8)
        memcpy(dst + i + 24, &d, 8)
        i += 32
    while n - i >= 8:
        memcpy(&a, src + i, 8)
        a ^= wide
        memcpy(dst + i, &a, 8)
        i += 8
    while i < n:
        dst[i] = src[i] ^ <uint8_t>(mask >> ((i & 3) * 8))
        i += 1
    return mask >> turn | mask << (32 - turn) if turn else mask


# ---------------------------------------------------------------- input

cdef inline void ws_fail(WsDecoder* d, uint16_t code) noexcept nogil:
    d.state = WS_FAILED
    d.code = code


cdef bint close_code_valid(uint32_t code) noexcept nogil:
    """Return whether a Close frame may contain this code [RFC 6455 7.4.1, 7.4.2, and IANA's list]."""
    return 1000 <= code <= 1003 or 1007 <= code <= 1014 or 3000 <= code <= 4999


cdef void ws_first_byte(WsDecoder* d) noexcept nogil:
    cdef uint8_t first = d.head[0]
    cdef uint8_t opcode = first & 15
    d.opcode = opcode
    if first & 0x70:
        ws_fail(d, WS_PROTOCOL_ERROR)           # no extension was negotiated [RFC 6455 5.2]
    elif opcode == WS_TEXT:
        ws_fail(d, WS_UNSUPPORTED)              # [v5 6.0.0-1]
    elif opcode == WS_BINARY:
        if d.fragmented:
            ws_fail(d, WS_PROTOCOL_ERROR)       # [RFC 6455 5.4]
    elif opcode == WS_CONTINUATION:
        if not d.fragmented:
            ws_fail(d, WS_PROTOCOL_ERROR)
    elif opcode < WS_CLOSE or opcode > WS_PONG or not first & 0x80:
        ws_fail(d, WS_PROTOCOL_ERROR)           # reserved [5.2], or a fragmented control frame [5.5]


cdef void ws_second_byte(WsDecoder* d) noexcept nogil:
    cdef uint8_t length = d.head[1] & 0x7F
    if d.head[1] >> 7 == d.from_server:
        ws_fail(d, WS_PROTOCOL_ERROR)           # a client masks, a server does not [RFC 6455 5.1]
    elif d.opcode >= WS_CLOSE and (length > WS_CONTROL_BYTES_MAX or (d.opcode == WS_CLOSE and length == 1)):
        ws_fail(d, WS_PROTOCOL_ERROR)           # [RFC 6455 5.5, 5.5.1]
    d.head_size = (2 if length < 126 else 4 if length == 126 else 10) + (0 if d.from_server else 4)


cdef void ws_frame_begin(WsDecoder* d) noexcept nogil:
    """Begin a frame whose header is complete."""
    cdef uint64_t length = d.head[1] & 0x7F
    cdef int i
    if length == 126:
        length = <uint64_t>d.head[2] << 8 | d.head[3]
        if length < 126:
            ws_fail(d, WS_PROTOCOL_ERROR)       # the fewest bytes must be used [RFC 6455 5.2]
            return
    elif length == 127:
        length = 0
        for i in range(2, 10):
            length = length << 8 | d.head[i]
        if length <= 0xFFFF or length >> 63:
            ws_fail(d, WS_PROTOCOL_ERROR)
            return
        if length > WS_FRAME_BYTES_MAX:
            ws_fail(d, WS_TOO_BIG)
            return
    if not d.from_server:                    # otherwise the mask stays 0
        memcpy(&d.mask, d.head + d.head_size - 4, 4)
    d.head_n = 0
    d.left = length
    if d.opcode >= WS_CLOSE:
        d.state = WS_CONTROL
        if d.opcode != WS_PONG:              # an unrequested Pong is ignored [RFC 6455 5.5.3]
            d.ping_due = 0
            d.control_n = 0
        if length == 0:
            ws_control_end(d)
        return
    d.fragmented = not d.head[0] & 0x80
    d.state = WS_DATA if length else WS_HEAD


cdef inline void ws_head_byte(WsDecoder* d, uint8_t byte) noexcept nogil:
    d.head[d.head_n] = byte
    d.head_n += 1
    if d.head_n == 1:
        ws_first_byte(d)
        return
    if d.head_n == 2:
        ws_second_byte(d)
    if d.head_n == d.head_size and d.state == WS_HEAD:
        ws_frame_begin(d)


cdef void ws_control_end(WsDecoder* d) noexcept nogil:
    cdef uint32_t code
    d.state = WS_HEAD
    if d.opcode == WS_PING:
        d.ping_due = 1
    elif d.opcode == WS_CLOSE:
        d.state = WS_CLOSED
        d.code = WS_NO_STATUS
        if d.control_n:
            code = <uint32_t>d.control[0] << 8 | d.control[1]
            if close_code_valid(code):
                d.code = <uint16_t>code
            else:
                ws_fail(d, WS_PROTOCOL_ERROR)


cdef size_t ws_control_take(WsDecoder* d, const uint8_t* p, size_t n) noexcept nogil:
    cdef size_t take = n if n < d.left else <size_t>d.left
    if d.opcode != WS_PONG:
        d.mask = ws_unmask(d.control + d.control_n, p, take, d.mask)
        d.control_n += <uint8_t>take
    d.left -= take
    if d.left == 0:
        ws_control_end(d)
    return take


cdef size_t ws_decode(WsDecoder* d, uint8_t* p, size_t n) noexcept nogil:
    cdef size_t at = 0, out = 0, take
    while at < n:
        if d.state == WS_DATA:
            take = n - at if n - at < d.left else <size_t>d.left
            d.mask = ws_unmask(p + out, p + at, take, d.mask)
            at += take
            out += take
            d.left -= take
            if d.left == 0:
                d.state = WS_HEAD
        elif d.state == WS_HEAD:
            ws_head_byte(d, p[at])
            at += 1
        elif d.state == WS_CONTROL:
            at += ws_control_take(d, p + at, n - at)
        else:
            break               # ignore all bytes after a Close or an error [RFC 6455 5.5.1]
    return out


# ---------------------------------------------------------------- output

cdef uint8_t* ws_head_put(uint8_t* out, int opcode, uint64_t n) noexcept nogil:
    cdef int i
    out[0] = <uint8_t>(0x80 | opcode)
    if n <= 125:
        out[1] = <uint8_t>n
        return out + 2
    if n <= 0xFFFF:
        out[1] = 126
        out[2] = <uint8_t>(n >> 8)
        out[3] = <uint8_t>n
        return out + 4
    out[1] = 127
    for i in range(8):
        out[2 + i] = <uint8_t>(n >> (56 - 8 * i))
    return out + 10


cdef uint8_t* ws_pong_put(uint8_t* out, WsDecoder* d) noexcept nogil:
    d.ping_due = 0
    out = ws_head_put(out, WS_PONG, d.control_n)
    memcpy(out, d.control, d.control_n)
    return out + d.control_n


cdef uint8_t* ws_close_put(uint8_t* out, int code) noexcept nogil:
    if code == WS_NO_STATUS:
        return ws_head_put(out, WS_CLOSE, 0)
    out = ws_head_put(out, WS_CLOSE, 2)
    out[0] = <uint8_t>(code >> 8)
    out[1] = <uint8_t>code
    return out + 2
