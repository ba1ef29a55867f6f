# Connections to another program's listener. This module knows sockets and their options. It does not know the purpose of a
# connection, nor when the broker tries again.
from libc.stdint cimport uint16_t, uint32_t
from cext.net.conn_state cimport Address, Conn, Reactor, TransportContext
from cext.net.system cimport sockaddr_storage

# Target and options of an outbound connection; a zero field other than `remote` means the system's default.
ctypedef struct Outward:
    Address remote              # AF_INET or AF_INET6, with its port
    uint32_t remote_scope       # interface of a link-local IPv6 address
    Address bound               # local address; family 0 = none
    uint32_t bound_scope
    const char* host            # host name in the configuration, for TLS (name of the certificate, SNI); not kept
    TransportContext* tls_context    # NULL = without TLS
    uint32_t user_timeout_ms    # time after which unacknowledged bytes end the connection; 0 = the system's default
    uint32_t keepalive_idle_s   # 0 = no probes
    uint32_t keepalive_interval_s
    uint32_t keepalive_count
    bint nodelay

# Write an address in the system's form. Return its size in bytes, or 0 if its family cannot be connected to.
cdef unsigned int address_put(sockaddr_storage* storage, const Address* a, uint32_t scope) noexcept nogil

# Begin to connect. Return 0 or errno; after an error c is unchanged. The reactor watches c from now on and calls r.on_opened
# once, in a later turn, unless the owner closes c first. Until then the owner writes nothing and needs a timer of its own,
# because the system gives up only after two minutes.
cdef int conn_connect(Reactor* r, Conn* c, const Outward* o) noexcept nogil
