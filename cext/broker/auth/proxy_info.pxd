# The information of a connection before its first MQTT packet: a PROXY header, an HTTP upgrade.
from libc.stdint cimport uint8_t
from cext.broker.core.client_state cimport Client
from cext.codec.decode cimport Connect
from cext.net.proxy cimport Proxied
from cext.net.conn_state cimport Conn
from cext.net.upgrade cimport Upgrade

# proxied_fn and upgraded_fn of the reactor
cdef int client_proxied(void* broker, Conn* conn, const Proxied* p) noexcept nogil
cdef void client_upgraded(void* broker, Conn* conn, const Upgrade* u, const uint8_t* text) noexcept nogil
# Take the user name from a TLV of the PROXY header, if the listener requires it. 1: the header has none.
cdef bint proxied_identity(Client* c, Connect* p) noexcept nogil
