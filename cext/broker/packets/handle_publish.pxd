from libc.stdint cimport uint16_t
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport Client
from cext.codec.frame cimport Frame

cdef int handle_publish(Broker* b, Client* c, const Frame* f) noexcept nogil
# Handle PUBREL: publish the message of the inbox with this packet id.
cdef int publish_released(Broker* b, Client* c, uint16_t pid) noexcept nogil
