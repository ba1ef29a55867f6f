# Frames: where one packet ends and the next begins. This module is sans-IO: it looks at bytes that another module has read, and
# stores nothing. It knows only the fixed header; decode.pyx knows which flags a packet type may carry.
# Invariant: it never reads beyond p + n. Cost: it looks at no more than five bytes.
#
# A remaining length with more bytes than necessary (82 00 for 2) is accepted: 3.1 and 3.1.1 have no rule against it, the version
# is not known before CONNECT is decoded, and Mosquitto accepts it for 5.0 too (against [v5 1.5.5-1]).
from libc.stdint cimport uint8_t, uint32_t
from cext.codec.reason cimport RC_MALFORMED, RC_PACKET_TOO_LARGE


cdef int frame_next_long(const uint8_t* p, size_t n, uint32_t packet_max, Frame* out) noexcept nogil:
    cdef uint32_t length = 0, i
    out.total_len = 0
    for i in range(1, 5):
        if n <= i:
            return 0
        length |= <uint32_t>(p[i] & 127) << (7 * (i - 1))
        if p[i] < 128:
            out.first = p[0]
            out.start = p
            out.body = p + i + 1
            out.body_len = length
            out.total_len = length + i + 1
            if packet_max != 0 and out.total_len > packet_max:
                return RC_PACKET_TOO_LARGE
            return n >= out.total_len
    return RC_MALFORMED
