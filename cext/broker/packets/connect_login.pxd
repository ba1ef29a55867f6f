# The login of a CONNECT. See connect_login.pyx.
from cext.base.view cimport View
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport Client
from cext.broker.packets.connect_state cimport Connecting

# Decide about the login. Returns 0 = allowed, PACKET_PENDING = the control plane was asked and the packet was copied, or the
# reason to end the client.
cdef int login_check(Broker* b, Client* c, Connecting* k) noexcept nogil
# Log which plugin refuses the login; p NULL: none
cdef void log_refused_by(Broker* b, Client* c, View plugin) noexcept nogil
# Refuse a login with the reason code of the control plane, and end the client.
cdef void login_refuse(Broker* b, Client* c, int rc) noexcept nogil
# Return whether the peer has closed the connection while its login waited.
cdef bint peer_has_closed(Client* c) noexcept nogil
