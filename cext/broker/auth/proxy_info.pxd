# What a connection says of itself before its first MQTT packet: a PROXY header, an HTTP upgrade.
from libc.stdint cimport uint8_t
from cext.broker.core.client_state cimport Client
from cext.codec.decode cimport Connect
from cext.net.proxy cimport Proxied
from cext.net.conn_state cimport Conn
from cext.net.upgrade cimport Upgrade

# proxied_fn and upgraded_fn of the reactor
cdef int client_proxied(void* broker, Conn* conn, const Proxied* p) noexcept nogil
cdef void client_upgraded(void* broker, Conn* conn, const Upgrade* u, const uint8_t* text) noexcept nogil
# The user name that a PROXY header's TLV gives, where the listener takes it. 1: there had to be one, but there is none.
cdef bint proxied_identity(Client* c, Connect* p) noexcept nogil
