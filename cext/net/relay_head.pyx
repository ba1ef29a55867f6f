"""Write and read the head of a relayed connection, sans-IO. This module knows the bytes that a broker sends in front of the bytes of a client that it
relays to another one. It does not know sockets, nor which broker is trusted: a broker believes the head, so only brokers that have proved the secret of
their cluster may send one.

    0 u32 length of all of it   4 u8 version   5 u8 1: WebSocket, 2: TLS   6 u16 port of the listener   8 u32 origin of the listener
    12 u32 ms left for the login   16 u8 family, u8 by_proxy, u16 port, 16 bytes: address of the client   36 u16 bytes of the name
    38 u16 bytes of the path   40 u16 bytes of this head without the names   42 u32 kind of the listener (version 1: zero)
    46 2 bytes: zero   48 name, path

Numbers are little-endian. A later version may have more bytes between these fields and the names, and a meaning for bits that are zero now; a reader
passes over them. The machines of a cluster have the same numbers for address families, because all of them run Linux.

Invariants: a head has at most RELAY_HEAD_BYTES_MAX bytes and both names of their longest; a head of this version that is read and written again has
the same bytes. Cost: once per relayed connection; nothing is copied or kept.
"""

from libc.stdint cimport uint8_t, uint16_t, uint32_t
from libc.string cimport memcpy, memset

from cext.base.words cimport load32, store32

cdef extern from "<sys/socket.h>" nogil:
    int AF_INET, AF_INET6, AF_UNIX

cdef enum:
    BY_WEB = 1
    BY_TLS = 2
    KIND_AT = 42


cdef inline void store16(uint8_t* p, uint16_t v) noexcept nogil:
    memcpy(p, &v, 2)


cdef inline uint16_t load16(const uint8_t* p) noexcept nogil:
    cdef uint16_t v
    memcpy(&v, p, 2)
    return v


cdef bint is_known(const uint8_t* p) noexcept nogil:
    """Return whether a head has only what its version writes."""
    cdef uint32_t i
    cdef uint8_t rest = 0
    for i in range(KIND_AT if p[4] == 1 else KIND_AT + 4, RELAY_HEAD_BYTES):
        rest |= p[i]
    return load16(p + 40) == RELAY_HEAD_BYTES and rest == 0 and p[5] <= (BY_WEB | BY_TLS) and p[17] <= 1


cdef int relay_head_read(const uint8_t* p, size_t n, RelayHead* out) noexcept nogil:
    cdef uint32_t head_n, name_n, path_n
    memset(out, 0, sizeof(RelayHead))
    if n < RELAY_HEAD_BYTES:
        return RELAY_HEAD_MORE
    name_n, path_n, head_n = load16(p + 36), load16(p + 38), load16(p + 40)
    if p[4] == 0 or (p[4] <= RELAY_HEAD_VERSION and not is_known(p)) or name_n > RELAY_NAME_MAX or path_n > RELAY_PATH_MAX \
            or not RELAY_HEAD_BYTES <= head_n <= RELAY_HEAD_BYTES_MAX or load32(p) != head_n + name_n + path_n \
            or not (p[16] == 0 or p[16] == AF_UNIX or p[16] == AF_INET or p[16] == AF_INET6):
        return RELAY_HEAD_BAD
    out.size = load32(p)
    if n < out.size:
        return RELAY_HEAD_MORE
    out.websockets = p[5] & BY_WEB
    out.tls = (p[5] & BY_TLS) != 0
    out.listener_port = load16(p + 6)
    out.origin = load32(p + 8)
    out.login_ms = load32(p + 12)
    out.kind = load32(p + KIND_AT)
    out.family, out.by_proxy, out.port = p[16], p[17] & 1, load16(p + 18)
    memcpy(out.ip, p + 20, sizeof(out.ip))
    out.name.p, out.name.n = p + head_n, name_n
    out.path.p, out.path.n = p + head_n + name_n, path_n
    return RELAY_HEAD_DONE


cdef uint32_t relay_head_size(const RelayHead* h) noexcept nogil:
    if h.name.n > RELAY_NAME_MAX or h.path.n > RELAY_PATH_MAX:
        return 0
    return RELAY_HEAD_BYTES + h.name.n + h.path.n


cdef void relay_head_put(uint8_t* out, const RelayHead* h) noexcept nogil:
    memset(out, 0, RELAY_HEAD_BYTES)
    store32(out, RELAY_HEAD_BYTES + h.name.n + h.path.n)
    out[4] = RELAY_HEAD_VERSION
    out[5] = (BY_WEB if h.websockets else 0) | (BY_TLS if h.tls else 0)
    store16(out + 6, h.listener_port)
    store32(out + 8, h.origin)
    store32(out + 12, h.login_ms)
    out[16], out[17] = h.family, h.by_proxy
    store16(out + 18, h.port)
    memcpy(out + 20, h.ip, sizeof(h.ip))
    store16(out + 36, <uint16_t>h.name.n)
    store16(out + 38, <uint16_t>h.path.n)
    store16(out + 40, RELAY_HEAD_BYTES)
    store32(out + KIND_AT, h.kind)
    if h.name.n:
        memcpy(out + RELAY_HEAD_BYTES, h.name.p, h.name.n)
    if h.path.n:
        memcpy(out + RELAY_HEAD_BYTES + h.name.n, h.path.p, h.path.n)
