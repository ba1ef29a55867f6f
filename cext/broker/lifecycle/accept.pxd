# New connections: accepted by a listener, or passed in by the embedding program.
from libc.stdint cimport uint32_t
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport Client
from cext.broker.core.listener cimport Listener
from cext.net.conn_state cimport Address, Conn, ListenSocket

# callbacks of the reactor: accept_fn and plain_fn
cdef void client_accept(void* broker, ListenSocket* l, int fd, const Address* a) noexcept nogil
cdef void no_descriptors(void* broker) noexcept nogil
cdef void newcomer_grew(void* broker, Conn* conn) noexcept nogil       # on_small
cdef void descriptors_begin(Broker* b) noexcept nogil            # the loop starts
cdef uint32_t connections_room(Broker* b) noexcept nogil         # number of connections for which there are descriptors
# Return the descriptor that a new connection keeps, or -1 after closing it, if no more are left for clients.
cdef int descriptor_below_limit(Broker* b, int fd) noexcept nogil
cdef void refuse_connection(Broker* b, int fd, const Address* a, int reason, const char* text) noexcept nogil    # counts, logs, closes
# The limits of connections, of one listener and of all.
cdef bint listener_full(Broker* b, Listener* listener) noexcept nogil
cdef bint all_full(Broker* b) noexcept nogil
# Make a newcomer of a connected socket, with its deadline; the limits were checked. NULL: no memory, and it was refused.
cdef Client* client_open(Broker* b, Listener* listener, int fd, const Address* a) noexcept nogil
# Prepare it as the listener wants it, and log it. The client may end before the turn ends.
cdef void client_welcome(Broker* b, Client* c) noexcept nogil
# Adopt a connected socket of the embedding program; trusted, without limits. Returns 0 or errno; then the caller still owns fd.
cdef int client_adopt(Broker* b, int fd) noexcept nogil
