# The session of a CONNECT. See connect_session.pyx.
from libc.stdint cimport uint32_t
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport Client
from cext.broker.packets.connect_state cimport Connecting
from cext.codec.decode cimport Connect
from cext.session.session cimport Session

# Check the limits of clients, memory and disk. Returns 0 or the reason to end the client.
cdef int check_limits(Broker* b, Client* c, Connect* p) noexcept nogil
# Check and set the keepalive. Returns 0 or the reason to end the client.
cdef int check_keepalive(Broker* b, Client* c, Connecting* k) noexcept nogil
# Put the session expiry into CONNACK if the client gets less than it requested.
cdef void expiry_announce(Broker* b, Connecting* k) noexcept nogil
# Copy the will: its topic under the mount point and its forwardable properties. Returns -1 if there is no memory.
cdef int will_take(Broker* b, Client* c, Connect* p) noexcept nogil
# Return the session of this client id [v5 3.1.2-4..6, 3.1.4-3] with the user name; a connection that has it is taken over. NULL =
# no memory; then nothing is left over.
cdef Session* session_take(Broker* b, Client* c, Connecting* k) noexcept nogil
# Attach the session to the client, set its expiry, and record the session and the will.
cdef void session_begin(Broker* b, Client* c, Session* s, Connecting* k) noexcept nogil
