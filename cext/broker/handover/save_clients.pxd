# What of a connection moves. See save_clients.pyx.
from cext.broker.core.client_state cimport Client
from cext.broker.handover.saving cimport Saving

cdef bint connection_moves(const Client* c) noexcept nogil
cdef void secrets_save(Saving* v) noexcept nogil
cdef void client_save(Saving* v, Client* c) noexcept nogil
