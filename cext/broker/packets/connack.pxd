# CONNACK: acceptance and refusal. See connack.pyx.
from libc.stdint cimport uint8_t
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport Client
from cext.broker.packets.connect_state cimport Connecting
from cext.codec.encode cimport Connack

# Fill the CONNACK of an accepted client. Returns 0, or the reason to end a client that cannot receive so large a packet.
cdef int connack_prepare(Broker* b, Client* c, Connecting* k) noexcept nogil
# Send it. Returns -1 if it exceeds the client's Maximum Packet Size or if there is no memory.
cdef int connack_send(Broker* b, Client* c, Connack* k) noexcept nogil
# The functions below refuse a client. They return the reason to end it, END_REFUSED or END_SILENT.
# Send CONNACK with rc5 to a v5 client, or with rc3 to a 3.x client.
cdef int connect_refuse(Broker* b, Client* c, uint8_t rc5, uint8_t rc3) noexcept nogil
# Refuse without a CONNACK, because 3.x has no code for this reason.
cdef int connect_refuse_silently(Broker* b, Client* c, uint8_t rc5) noexcept nogil
# Send CONNACK to a v5 client; refuse a 3.x client silently.
cdef int connect_refuse_5(Broker* b, Client* c, uint8_t rc5) noexcept nogil
# Log why a client is refused. log_refusal_why does not count as a line about a refused login, which programs such as fail2ban read: it explains the one that follows.
cdef void log_refusal(Broker* b, Client* c, const char* reason) noexcept nogil
cdef void log_refusal_why(Broker* b, Client* c, const char* reason) noexcept nogil
