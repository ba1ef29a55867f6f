from cext.codec.frame cimport Frame
from cext.broker.broker cimport Broker, Client

cdef int handle_disconnect(Broker* b, Client* c, const Frame* f) noexcept nogil
cdef int handle_pingreq(Broker* b, Client* c, const Frame* f) noexcept nogil
