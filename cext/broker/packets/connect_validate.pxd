# The checks of a CONNECT before the login. See connect_validate.pyx.
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport Client
from cext.broker.packets.connect_state cimport Connecting

# Decode and check the packet; on success k.packet has the client id and user name that count. Returns 0 or the reason to end the
# client.
cdef int connect_validate(Broker* b, Client* c, Connecting* k) noexcept nogil
