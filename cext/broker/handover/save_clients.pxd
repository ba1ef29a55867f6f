# What of a connection moves. See save_clients.pyx.
from cext.broker.core.client_state cimport Client
from cext.broker.handover.saving cimport Saving

# Return MOVES, or the reason STAYS_... of handover_state.pxd.
cdef int connection_stays(const Client* c) noexcept nogil
# Return whether the client has a connection, which stays.
cdef bint client_stays(const Client* c) noexcept nogil
cdef void secrets_save(Saving* v) noexcept nogil
cdef void client_save(Saving* v, Client* c) noexcept nogil
# Write that a client is connected, and that the new process must end it: its connection stays.
cdef void client_left_save(Saving* v, Client* c) noexcept nogil
