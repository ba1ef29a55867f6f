# Frames: the fixed header and the variable byte integer of MQTT [v5 2.1, 1.5.5] [v3.1.1 2.2].
from libc.stdint cimport uint8_t, uint32_t

cdef enum:
    # packet types [v5 2.1.2]
    T_CONNECT = 1
    T_CONNACK = 2
    T_PUBLISH = 3
    T_PUBACK = 4
    T_PUBREC = 5
    T_PUBREL = 6
    T_PUBCOMP = 7
    T_SUBSCRIBE = 8
    T_SUBACK = 9
    T_UNSUBSCRIBE = 10
    T_UNSUBACK = 11
    T_PINGREQ = 12
    T_PINGRESP = 13
    T_DISCONNECT = 14
    T_AUTH = 15

cdef enum:
    # protocol levels, as in CONNECT
    V31 = 3
    V311 = 4
    V5 = 5

ctypedef struct Frame:
    uint8_t first               # byte 1: packet type << 4 | flags
    const uint8_t* start        # address of byte 1
    const uint8_t* body         # address after the remaining length
    uint32_t body_len           # bytes
    uint32_t total_len          # bytes including the header; 0 = not yet known

# Read the frame at p from n bytes. Return 1 if *out is a complete frame, and 0 if more bytes are needed (out.total_len is set
# once the header is complete). Otherwise return the reason code: RC_MALFORMED for a 5th length byte, RC_PACKET_TOO_LARGE if
# total_len > packet_max (packet_max 0 = no limit).
cdef int frame_next_long(const uint8_t* p, size_t n, uint32_t packet_max, Frame* out) noexcept nogil

cdef inline int frame_next(const uint8_t* p, size_t n, uint32_t packet_max, Frame* out) noexcept nogil:
    # Most frames have one length byte. The caller's inline code handles these, and frame_next_long handles all others.
    cdef uint32_t total
    if n >= 2 and p[1] < 128:
        total = 2 + <uint32_t>p[1]
        out.total_len = total
        if packet_max == 0 or total <= packet_max:
            out.first = p[0]
            out.start = p
            out.body = p + 2
            out.body_len = total - 2
            return n >= total
    return frame_next_long(p, n, packet_max, out)

cdef inline uint32_t varint_size(uint32_t v) noexcept nogil:
    return 1 if v < 128 else 2 if v < 16384 else 3 if v < 2097152 else 4

cdef inline uint8_t* varint_put(uint8_t* out, uint32_t v) noexcept nogil:
    while v >= 128:
        out[0] = <uint8_t>(v & 127 | 128)
        out += 1
        v >>= 7
    out[0] = <uint8_t>v
    return out + 1
