"""Classify the addresses of peers. This module knows address families, not sockets."""

from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memcmp, memcpy, memset

from cext.net.conn_state cimport Address
from cext.net.system cimport AF_INET, AF_INET6, AF_UNIX


cdef bint address_local(const Address* a, bint loopback) noexcept nogil:
    cdef const uint8_t* v4 = address_ipv4(a)
    cdef int i
    if a.by_proxy:
        return False             # any client can send such a header
    if a.family == AF_UNIX:
        return True
    if v4 != NULL:
        return loopback and v4[0] == 127
    if a.family != AF_INET6 or not loopback:
        return False
    for i in range(15):
        if a.ip[i]:
            return False
    return a.ip[15] == 1


cdef bint is_in_network(const uint8_t* ip, const Network* net) noexcept nogil:
    cdef int whole = net.bits >> 3, left = net.bits & 7
    return memcmp(ip, net.ip, whole) == 0 and (left == 0 or (ip[whole] ^ net.ip[whole]) >> (8 - left) == 0)


cdef bint address_in(const Address* a, const Network* networks, uint32_t n) noexcept nogil:
    cdef uint8_t ip[16]
    cdef uint32_t i
    if a.family == AF_INET6:
        memcpy(ip, a.ip, 16)
    elif a.family == AF_INET:
        memset(ip, 0, 10)
        ip[10] = ip[11] = 0xFF
        memcpy(ip + 12, a.ip, 4)
    else:
        return 0
    for i in range(n):
        if is_in_network(ip, &networks[i]):
            return 1
    return 0
