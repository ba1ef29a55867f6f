# New connections: accepted by a listener, or passed in by the embedding program.
from cext.broker.core.broker cimport Broker
from cext.net.conn_state cimport Address, ListenSocket

# callbacks of the reactor: accept_fn and plain_fn
cdef void client_accept(void* broker, ListenSocket* l, int fd, const Address* a) noexcept nogil
cdef void no_descriptors(void* broker) noexcept nogil
# Adopt a connected socket of the embedding program; trusted, without limits. Returns 0 or errno; then the caller still owns fd.
cdef int client_adopt(Broker* b, int fd) noexcept nogil
