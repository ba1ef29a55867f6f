# A connection to somebody else's listener. Knows sockets and their options; not whom it is for, when it is tried, nor after which pause again.
from libc.stdint cimport uint16_t, uint32_t
from cext.net.reactor cimport Address, Conn, Reactor, TransportContext

cdef extern from "<sys/socket.h>" nogil:
    struct sockaddr_storage:
        uint16_t ss_family

ctypedef struct Outward:        # where to, and how; all zero but `remote`: as the system has it
    Address remote              # AF_INET or AF_INET6, with its port
    uint32_t remote_scope       # of a link-local IPv6 address: the interface
    Address bound               # family 0: none
    uint32_t bound_scope
    const char* host            # as its operator calls it: for TLS (name of the certificate, SNI). Not kept
    TransportContext* tls_context    # NULL: plain
    uint32_t user_timeout_ms    # unacknowledged bytes end it; 0: as the system has it
    uint32_t keepalive_idle_s   # 0: no probes
    uint32_t keepalive_interval_s
    uint32_t keepalive_count
    bint nodelay

# As the system wants it -> how many bytes of it there are; 0: it is none that can be connected to.
cdef unsigned int address_put(sockaddr_storage* storage, const Address* a, uint32_t scope) noexcept nogil

# Begins; 0 or errno, and then c is as before. c is watched from now on: r.on_opened comes once, in a later turn, unless c is closed first.
# Until then the owner writes nothing, and has a timer: the system gives up after two minutes.
cdef int conn_connect(Reactor* r, Conn* c, const Outward* o) noexcept nogil
