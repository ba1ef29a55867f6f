# Addresses of peers.
from cext.net.conn_state cimport Address

# Return whether the peer is on this machine: over a Unix socket or the loopback interface.
cdef bint address_local(const Address* a) noexcept nogil
