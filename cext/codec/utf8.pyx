# Check UTF-8 as MQTT requires it. This module knows code points, not topics. Invariant: it never reads beyond s + n.
# Cost: linear; 8 bytes at a time for ASCII, one code point at a time for the rest.
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy
from cext.codec.reason cimport RC_MALFORMED

cdef extern from *:
    """
    #define ONES 0x0101010101010101ull
    """
    const uint64_t ONES


cdef inline uint64_t word_unplain(uint64_t w) noexcept nogil:
    # Return 0 if all 8 bytes are in 0x20..0x7E. Other bytes set a top bit: a byte beyond ASCII has it, for U+007F the + 1 sets
    # it, and for a control character the - 0x20 borrows into it.
    return (w | (w + ONES) | (w - 0x20 * ONES)) & (0x80 * ONES)


cdef inline uint64_t load8(const uint8_t* p) noexcept nogil:
    cdef uint64_t w
    memcpy(&w, p, 8)
    return w


cdef inline uint64_t load4(const uint8_t* p) noexcept nogil:
    cdef uint32_t w
    memcpy(&w, p, 4)
    return w


cdef inline bint byte_plain(uint8_t c) noexcept nogil:
    return <uint8_t>(c - 0x20) < 0x5F


cdef inline uint32_t tail_bits(uint8_t c) noexcept nogil:
    # Return the six bits of a continuation byte, or a number too large for any code point.
    return (c & 0x3F) if c & 0xC0 == 0x80 else 0x80000000


cdef uint32_t code_point_len(const uint8_t* s, size_t n) noexcept nogil:
    # Return the length in bytes of the valid, accepted code point at s, which is not plain ASCII; 0 = there is none.
    cdef uint32_t c = s[0], length
    if 0xC2 <= c <= 0xDF:                       # C0 and C1 are overlong
        if n < 2:
            return 0
        c = (c & 0x1F) << 6 | tail_bits(s[1])
        return 2 if 0xA0 <= c <= 0x7FF else 0   # U+0080..9F are control characters
    if 0xE0 <= c <= 0xEF:
        if n < 3:
            return 0
        c = (c & 0x0F) << 12 | tail_bits(s[1]) << 6 | tail_bits(s[2])
        if tail_bits(s[1]) > 0x3F or c < 0x800 or 0xD800 <= c <= 0xDFFF or 0xFDD0 <= c <= 0xFDEF:
            return 0
        length = 3
    elif 0xF0 <= c <= 0xF4:                     # F5..FF exceed U+10FFFF
        if n < 4:
            return 0
        c = (c & 0x07) << 18 | (s[1] & 0x3F) << 12 | (s[2] & 0x3F) << 6 | tail_bits(s[3])
        if tail_bits(s[1]) > 0x3F or tail_bits(s[2]) > 0x3F or c < 0x10000:
            return 0
        length = 4
    else:
        return 0
    # On each plane, the last two code points (such as U+FFFE and U+FFFF) are non-characters.
    return length if c <= 0x10FFFF and c & 0xFFFE != 0xFFFE else 0


cdef int utf8_check(const uint8_t* s, uint32_t n) noexcept nogil:
    cdef const uint8_t* end = s + n
    cdef uint32_t length
    while end - s >= 8:
        if word_unplain(load8(s)) == 0:
            s += 8
            continue
        # These 8 bytes contain another character: skip the plain bytes and check it.
        while byte_plain(s[0]):
            s += 1
        length = code_point_len(s, end - s)
        if length == 0:
            return RC_MALFORMED
        s += length
    # Check the remaining bytes in one word, together with bytes before them that are already accepted.
    if n >= 8 and word_unplain(load8(end - 8)) == 0:
        return 0
    if 4 <= n < 8 and word_unplain(load4(s) | load4(end - 4) << 32) == 0:
        return 0
    while s < end:
        if byte_plain(s[0]):
            s += 1
            continue
        length = code_point_len(s, end - s)
        if length == 0:
            return RC_MALFORMED
        s += length
    return 0
