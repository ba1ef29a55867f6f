# New connections: accepted by a listener, or handed over by the embedding process.
from cext.broker.core.broker cimport Broker
from cext.net.reactor cimport Address, ListenSocket

# accept_fn and plain_fn of the reactor
cdef void client_accept(void* broker, ListenSocket* l, int fd, const Address* a) noexcept nogil
cdef void no_descriptors(void* broker) noexcept nogil
# A connected socket of the embedding process: trusted, no limits. 0 or errno (then fd is still the caller's).
cdef int client_adopt(Broker* b, int fd) noexcept nogil
