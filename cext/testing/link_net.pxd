# The network of the simulator: connections of bytes between workers.
from libc.stdint cimport int64_t, uint8_t, uint32_t
from cext.base.view cimport View
from cext.testing.link_world cimport Connection, Direction, Worker, World

cdef int64_t net_send(void* owner, uint32_t slot, int way, const uint8_t* head, uint32_t n, void* message, View payload) noexcept nogil
cdef void net_close(void* owner, uint32_t slot, int way) noexcept nogil
cdef void net_bind(void* owner, uint32_t slot, void* connection) noexcept nogil
cdef void net_connect(World* g, uint32_t a, uint32_t b) noexcept nogil          # does nothing if there is a connection, or no process
# Move bytes in one direction of a connection, a random number of them, or all if the world is quiet.
cdef void net_flush(World* g, Connection* k, bint back) noexcept nogil
cdef void net_read(World* g, Connection* k, bint back) noexcept nogil
cdef void net_cut(World* g, Connection* k) noexcept nogil
cdef void net_kill(World* g, uint32_t w) noexcept nogil
