from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport Client
from cext.codec.frame cimport Frame

cdef int handle_ack(Broker* b, Client* c, const Frame* f) noexcept nogil
