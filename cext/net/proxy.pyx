"""Read the header of the PROXY protocol, sans-IO. This module knows the bytes that a proxy sends before the
client's first byte. It does not know sockets, nor which proxy is trusted: a listener that accepts such headers
believes them, so only proxies may reach it.

    version 1: one line of text, at most 107 bytes          version 2: 16 bytes, addresses, TLVs

Invariants: a header of the other version is an error; a byte that cannot belong to a header is rejected when it arrives; a length
inside the header never reaches beyond the header. Cost: one pass over the header, once per connection; nothing is copied or kept.
"""

from libc.stdint cimport uint8_t, uint16_t, uint32_t
from libc.string cimport memchr, memcmp, memcpy, memset

from cext.base.view cimport View
from cext.codec.field cimport be16, be32

cdef extern from "<sys/socket.h>" nogil:
    int AF_INET, AF_INET6, AF_UNIX

cdef extern from "<arpa/inet.h>" nogil:
    int inet_pton(int family, const char* text, void* out)

cdef enum:
    V2_LOCAL = 0x20
    V2_PROXY = 0x21
    V2_TCP4 = 0x11
    V2_TCP6 = 0x21
    V2_UNIX_STREAM = 0x31
    UNIX_PATH_BYTES = 108
    TLV_CRC32C = 0x03
    TLV_SSL = 0x20
    TLV_SSL_VERSION = 0x21
    TLV_SSL_CN = 0x22
    TLV_SSL_CIPHER = 0x23
    TLV_HEAD_BYTES = 3
    SSL_HEAD_BYTES = 5


cdef const uint8_t* signature() noexcept nogil:
    return <const uint8_t*>b"\r\n\r\n\0\r\nQUIT\n"


cdef int proxy_read(int version, const uint8_t* p, size_t n, Proxied* out) noexcept nogil:
    memset(out, 0, sizeof(Proxied))
    return v2_read(p, n, out) if version == 2 else v1_read(p, n, out)


# ---------------------------------------------------------------- version 1

cdef bint word_next(const uint8_t** p, const uint8_t* end, View* word) noexcept nogil:
    """Take the next word. One blank separates two words."""
    cdef const uint8_t* blank = <const uint8_t*>memchr(p[0], c' ', <size_t>(end - p[0])) if end > p[0] else NULL
    cdef const uint8_t* stop = blank if blank != NULL else end
    word.p = p[0]
    word.n = <uint32_t>(stop - p[0])
    p[0] = stop + 1 if blank != NULL else end
    return word.n > 0


cdef bint text_address_read(int family, View word, uint8_t* ip) noexcept nogil:
    cdef char text[46]
    cdef uint32_t i
    if word.n >= sizeof(text):
        return 0
    for i in range(word.n):      # rejects a scope (%eth0) and NUL
        if not (c'0' <= word.p[i] <= c'9' or c'a' <= word.p[i] | 0x20 <= c'f' or word.p[i] == c':' or word.p[i] == c'.'):
            return 0
    memcpy(text, word.p, word.n)
    text[word.n] = 0
    return inet_pton(family, text, ip) == 1


cdef bint port_read(View word, uint16_t* port) noexcept nogil:
    cdef uint32_t value = 0, i
    if word.n > 5 or (word.n > 1 and word.p[0] == c'0'):
        return 0
    for i in range(word.n):
        if not c'0' <= word.p[i] <= c'9':
            return 0
        value = value * 10 + word.p[i] - c'0'
    port[0] = <uint16_t>value
    return value <= 0xFFFF


cdef bint v1_addresses(const uint8_t* p, const uint8_t* end, int family, Proxied* out) noexcept nogil:
    """Read SOURCE DESTINATION PORT PORT."""
    cdef View source, destination, port, port_here
    cdef uint8_t here[16]
    cdef uint16_t number
    if not word_next(&p, end, &source) or not word_next(&p, end, &destination) or not word_next(&p, end, &port):
        return 0
    if not word_next(&p, end, &port_here) or port_here.p + port_here.n != end:
        return 0
    out.family = <uint8_t>family
    return (text_address_read(family, source, out.ip) and text_address_read(family, destination, here) and port_read(port, &out.port)
            and out.port and port_read(port_here, &number) and number)


cdef int v1_read(const uint8_t* p, size_t n, Proxied* out) noexcept nogil:
    cdef size_t start = n if n < 6 else 6
    cdef size_t seen = n if n < PROXY_V1_BYTES_MAX else PROXY_V1_BYTES_MAX
    cdef const uint8_t* end
    if memcmp(p, b"PROXY ", start) != 0:
        return PROXY_BAD
    end = <const uint8_t*>memchr(p, c'\n', seen)
    if end == NULL:
        return PROXY_BAD if n >= PROXY_V1_BYTES_MAX else PROXY_MORE
    out.size = <uint32_t>(end - p) + 1
    end -= 1
    if end < p + 6 or end[0] != c'\r':
        return PROXY_BAD
    p += 6
    n = <size_t>(end - p)
    if n >= 7 and memcmp(p, b"UNKNOWN", 7) == 0 and (n == 7 or p[7] == c' '):
        out.local = 1           # the rest of the line must be ignored
        return PROXY_DONE
    if n > 5 and memcmp(p, b"TCP4 ", 5) == 0:
        return PROXY_DONE if v1_addresses(p + 5, end, AF_INET, out) else PROXY_BAD
    if n > 5 and memcmp(p, b"TCP6 ", 5) == 0:
        return PROXY_DONE if v1_addresses(p + 5, end, AF_INET6, out) else PROXY_BAD
    return PROXY_BAD


# ---------------------------------------------------------------- version 2

cdef uint32_t crc32c(const uint8_t* p, size_t n, const uint8_t* zeroed) noexcept nogil:
    """Return the CRC-32C [RFC 3720 B.4], with the four bytes at `zeroed` taken as zero."""
    cdef uint32_t crc = 0xFFFFFFFFu
    cdef size_t i
    cdef int _
    for i in range(n):
        if not zeroed <= p + i < zeroed + 4:
            crc ^= p[i]
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78u & (0 - (crc & 1)))
    return ~crc


cdef bint tlv_next(const uint8_t** p, const uint8_t* end, int* kind, View* value) noexcept nogil:
    """Take the next TLV. Return 0 if it does not fit."""
    if end - p[0] < TLV_HEAD_BYTES:
        return 0
    kind[0] = p[0][0]
    value.n = be16(p[0] + 1)
    value.p = p[0] + TLV_HEAD_BYTES
    if <size_t>(end - value.p) < value.n:
        return 0
    p[0] = value.p + value.n
    return 1


cdef bint ssl_read(View tlv, Proxied* out) noexcept nogil:
    cdef const uint8_t* p = tlv.p + SSL_HEAD_BYTES
    cdef const uint8_t* end = tlv.p + tlv.n
    cdef View value
    cdef int kind
    if tlv.n < SSL_HEAD_BYTES or out.has_tls:
        return 0
    out.has_tls = 1
    out.tls = tlv.p[0]
    out.verify = be32(tlv.p + 1)
    while p < end:
        if not tlv_next(&p, end, &kind, &value):
            return 0
        if kind == TLV_SSL_VERSION:
            out.tls_version = value
        elif kind == TLV_SSL_CN:
            out.common_name = value
        elif kind == TLV_SSL_CIPHER:
            out.cipher = value
    return 1


cdef bint tlvs_read(const uint8_t* start, const uint8_t* p, const uint8_t* end, Proxied* out) noexcept nogil:
    cdef View value
    cdef int kind
    cdef bint summed = 0
    while p < end:
        if not tlv_next(&p, end, &kind, &value):
            return 0
        if kind == TLV_SSL:
            if not ssl_read(value, out):
                return 0
        elif kind == TLV_CRC32C:
            if summed or value.n != 4 or be32(value.p) != crc32c(start, <size_t>(end - start), value.p):
                return 0
            summed = 1
    return 1


cdef int v2_addresses_size(int family) noexcept nogil:
    """Return the size of the addresses, or -1 if the family is unspecified, unknown or not a stream."""
    if family == V2_TCP4:
        return 12
    if family == V2_TCP6:
        return 36
    if family == V2_UNIX_STREAM:
        return 2 * UNIX_PATH_BYTES
    return -1


cdef int v2_addresses_min(int family) noexcept nogil:
    """Return the least size of the addresses. A header that ends within the paths of Unix sockets has no TLVs: some proxies
    send the client's path without padding, and Mosquitto accepts that."""
    return 1 if family == V2_UNIX_STREAM else v2_addresses_size(family)


cdef void v2_addresses(int family, const uint8_t* p, uint32_t n, Proxied* out) noexcept nogil:
    cdef const uint8_t* end
    cdef uint32_t most
    if family == V2_TCP4:
        out.family = <uint8_t>AF_INET
        memcpy(out.ip, p, 4)
        out.port = <uint16_t>be16(p + 8)
    elif family == V2_TCP6:
        out.family = <uint8_t>AF_INET6
        memcpy(out.ip, p, 16)
        out.port = <uint16_t>be16(p + 32)
    elif family == V2_UNIX_STREAM:
        out.family = <uint8_t>AF_UNIX
        most = n if n < UNIX_PATH_BYTES else UNIX_PATH_BYTES
        end = <const uint8_t*>memchr(p, 0, most)
        out.path.p = p
        out.path.n = <uint32_t>(end - p) if end != NULL else most


cdef int v2_head(const uint8_t* p, size_t n, Proxied* out) noexcept nogil:
    """Read the first 16 bytes as far as they have arrived."""
    if memcmp(p, signature(), n if n < 12 else 12) != 0:
        return PROXY_BAD
    if n > 12 and p[12] != V2_LOCAL and p[12] != V2_PROXY:
        return PROXY_BAD
    if n > 13 and p[12] == V2_PROXY and v2_addresses_size(p[13]) < 0:
        return PROXY_BAD
    if n < PROXY_V2_HEAD_BYTES:
        return PROXY_MORE
    out.size = PROXY_V2_HEAD_BYTES + be16(p + 14)
    if out.size > PROXY_V2_BYTES_MAX or (p[12] == V2_PROXY and <int>be16(p + 14) < v2_addresses_min(p[13])):
        out.size = 0
        return PROXY_BAD
    return PROXY_DONE if n >= out.size else PROXY_MORE


cdef int v2_read(const uint8_t* p, size_t n, Proxied* out) noexcept nogil:
    cdef int found = v2_head(p, n, out)
    cdef int size
    if found != PROXY_DONE:
        return found
    if p[12] == V2_LOCAL:
        out.local = 1           # health check of the proxy itself; only `compat` reads the addresses, and nothing in them is an error
        if v2_addresses_size(p[13]) >= 0 and <int>be16(p + 14) >= v2_addresses_min(p[13]):
            v2_addresses(p[13], p + PROXY_V2_HEAD_BYTES, be16(p + 14), out)
        return PROXY_DONE
    size = v2_addresses_size(p[13])
    if size > <int>be16(p + 14):
        size = <int>be16(p + 14)
    v2_addresses(p[13], p + PROXY_V2_HEAD_BYTES, <uint32_t>size, out)
    if not tlvs_read(p, p + PROXY_V2_HEAD_BYTES + size, p + out.size, out):
        return PROXY_BAD
    return PROXY_DONE
