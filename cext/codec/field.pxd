# The fields of packets and properties: numbers in network byte order, and strings and binary data with a
# length in front [v5 1.5.2 - 1.5.6].
from libc.stdint cimport uint8_t, uint16_t, uint32_t
from libc.string cimport memcpy
from cext.base.view cimport View

cdef inline uint16_t be16(const uint8_t* p) noexcept nogil:
    return <uint16_t>(p[0] << 8 | p[1])

cdef inline uint32_t be32(const uint8_t* p) noexcept nogil:
    return <uint32_t>be16(p) << 16 | be16(p + 2)

cdef inline bint binary_take(const uint8_t** p, const uint8_t* end, View* out) noexcept nogil:
    # Take binary data, or the bytes of a string. Return 0 if the packet ends before the data.
    cdef const uint8_t* at = p[0]
    if end - at < 2:
        return 0
    out.n = be16(at)
    out.p = at + 2
    if <uint32_t>(end - out.p) < out.n:
        return 0
    p[0] = out.p + out.n
    return 1

cdef inline uint8_t* u16_put(uint8_t* out, uint32_t v) noexcept nogil:
    out[0] = <uint8_t>(v >> 8)
    out[1] = <uint8_t>v
    return out + 2

cdef inline uint8_t* view_put(uint8_t* out, View v) noexcept nogil:
    out = u16_put(out, v.n)
    if v.n:
        memcpy(out, v.p, v.n)
    return out + v.n

cdef inline uint8_t* prop_u16_put(uint8_t* out, int prop, uint32_t v) noexcept nogil:
    out[0] = <uint8_t>prop
    return u16_put(out + 1, v)

cdef inline uint8_t* prop_u32_put(uint8_t* out, int prop, uint32_t v) noexcept nogil:
    out[0] = <uint8_t>prop
    return u16_put(u16_put(out + 1, v >> 16), v)
