# Newcomers: connections that were accepted and have not logged in, by source network.
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport Client

cdef void newcomer_add(Broker* b, Client* c) noexcept nogil
# The client has logged in, or has ended. No effect if it is no newcomer any more.
cdef void newcomer_leave(Broker* b, Client* c) noexcept nogil
# A proxy has reported another address of the client. No effect if it is no newcomer.
cdef void newcomer_moved(Broker* b, Client* c) noexcept nogil
# Count the memory of a newcomer again.
cdef void newcomer_count(Broker* b, Client* c) noexcept nogil
# Resume the newcomers that wait for the end of a reload.
cdef void newcomers_resume(Broker* b) noexcept nogil
# Return the newcomer that ends first if memory (by_bytes) or descriptors run out; NULL: there is none. Cost: two passes over a fixed table.
cdef Client* newcomer_to_end(Broker* b, bint by_bytes) noexcept nogil
