# Connections that workers on other machines open to this one. See callers.pyx.
from libc.stdint cimport uint8_t
from cext.broker.core.broker cimport Broker
from cext.net.conn_state cimport Address, Conn

# Accept connections on a listening socket. strangers_fd: a SOCK_SEQPACKET socket for those that begin without a ticket. Both belong to this room from now on.
cdef void callers_listen(Broker* b, int fd, int strangers_fd) noexcept nogil
cdef void callers_close(Broker* b) noexcept nogil           # the loop ends
# Take an accepted connection.
cdef void caller_accept(Broker* b, int fd, const Address* a) noexcept nogil
# Input, and the end, of a connection that has not proved itself.
cdef size_t caller_input(Broker* b, Conn* conn, const uint8_t* p, size_t n) noexcept nogil
cdef void caller_lost(Broker* b, Conn* conn) noexcept nogil
cdef void callers_late(Broker* b) noexcept nogil            # TIMER_CALLERS
