# Newcomers: connections that were accepted and have not logged in, from the oldest to the newest.
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport Client

cdef void newcomer_add(Broker* b, Client* c) noexcept nogil
# The client has logged in, or has ended. No effect if it is no newcomer any more.
cdef void newcomer_leave(Broker* b, Client* c) noexcept nogil
# Count the memory of a newcomer again.
cdef void newcomer_count(Broker* b, Client* c) noexcept nogil
cdef Client* newcomer_oldest(Broker* b) noexcept nogil      # NULL: there is none
