# Addresses of peers.
from libc.stdint cimport uint8_t, uint32_t

from cext.net.conn_state cimport Address

ctypedef struct Network:
    uint8_t ip[16]                      # IPv4: mapped into ::ffff:0:0/96
    uint8_t bits

# Return whether the peer is on this machine: over a Unix socket or the loopback interface.
cdef bint address_local(const Address* a, bint loopback) noexcept nogil
# Return whether an IP address is in one of the networks; a mapped IPv4 address is an IPv4 address.
cdef bint address_in(const Address* a, const Network* networks, uint32_t n) noexcept nogil
