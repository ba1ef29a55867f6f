"""Classify the addresses of peers. This module knows address families, not sockets."""

from cext.net.conn_state cimport Address

cdef extern from "<sys/socket.h>" nogil:
    int AF_INET, AF_INET6, AF_UNIX


cdef bint address_local(const Address* a) noexcept nogil:
    cdef int i
    if a.by_proxy:
        return False             # any client can send such a header
    if a.family == AF_UNIX:
        return True
    if a.family == AF_INET:
        return a.ip[0] == 127
    if a.family != AF_INET6:
        return False
    for i in range(10):
        if a.ip[i]:
            return False
    if a.ip[10] == 0xFF and a.ip[11] == 0xFF:
        return a.ip[12] == 127           # an IPv4 address on a listener for both families
    for i in range(10, 15):
        if a.ip[i]:
            return False
    return a.ip[15] == 1
