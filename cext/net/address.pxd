# Addresses of peers.
from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memcmp

from cext.net.conn_state cimport Address
from cext.net.system cimport AF_INET, AF_INET6

ctypedef struct Network:
    uint8_t ip[16]                      # IPv4: mapped into ::ffff:0:0/96
    uint8_t bits

# Return the four bytes of an IPv4 address, also of one in the form ::ffff:a.b.c.d, which listeners for both families and proxies give;
# NULL: another address.
cdef inline const uint8_t* address_ipv4(const Address* a) noexcept nogil:
    if a.family == AF_INET:
        return a.ip
    if a.family == AF_INET6 and memcmp(a.ip, b"\0\0\0\0\0\0\0\0\0\0\xff\xff", 12) == 0:
        return a.ip + 12
    return NULL

# Return whether the peer is on this machine: over a Unix socket or the loopback interface.
cdef bint address_local(const Address* a, bint loopback) noexcept nogil
# Return whether an IP address is in one of the networks; a mapped IPv4 address is an IPv4 address.
cdef bint address_in(const Address* a, const Network* networks, uint32_t n) noexcept nogil
