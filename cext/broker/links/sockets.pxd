# The sockets of links, as connections of the reactor. See sockets.pyx.
from libc.stdint cimport int64_t, uint8_t, uint32_t
from cext.base.view cimport View
from cext.broker.core.broker cimport Broker
from cext.broker.core.link_state cimport LinkConn
from cext.net.conn_state cimport Conn

# Take two connected stream sockets to another worker, one for each direction, in place of those before. They belong to this room from now on. -1: its
# process has ended, and the next one has not begun.
cdef void link_sockets(Broker* b, uint32_t slot, int out_fd, int in_fd) noexcept nogil
# Take a new link to a worker, in place of the one before; its process may still run.
cdef void link_replace(Broker* b, uint32_t slot, int fd) noexcept nogil
# Close the links to and from a worker.
cdef void links_of_close(Broker* b, uint32_t slot) noexcept nogil
# Return a connection of this room with the descriptor; NULL: no memory, and it is closed.
cdef LinkConn* socket_take(Broker* b, uint32_t slot, int way, int fd) noexcept nogil
# What the reactor reports about a connection with CONN_PEER.
cdef void link_begin(Broker* b, uint32_t slot, int fd) noexcept nogil      # the socket of a new link to a worker
# The socket of a link that another worker has opened. `proved`: the slot that its handshake has proved, and its HELLO must have; NO_SLOT: the parent made
# the socket.
cdef void link_accepted(Broker* b, uint32_t proved, int fd) noexcept nogil
cdef size_t link_input(Broker* b, Conn* conn, const uint8_t* p, size_t n) noexcept nogil
cdef void link_lost(Broker* b, Conn* conn) noexcept nogil
cdef void link_empty(Broker* b, Conn* conn) noexcept nogil       # all output is sent
cdef void link_freed(Conn* conn) noexcept nogil
# A part of the turn. Return 1 if there is more to do at once.
cdef bint links_turn(Broker* b) noexcept nogil
# Twice a second: read on from the links on which a message waits for memory.
cdef void links_read_on(Broker* b) noexcept nogil
cdef void links_close(Broker* b) noexcept nogil             # the loop ends

# actions of LinkOps
cdef int64_t socket_send(void* broker, uint32_t slot, int way, const uint8_t* head, uint32_t n, void* message, View payload) noexcept nogil
cdef void socket_close(void* broker, uint32_t slot, int way) noexcept nogil
cdef void socket_bind(void* broker, uint32_t slot, void* connection) noexcept nogil
