from cext.codec.frame cimport Frame
from cext.broker.broker cimport Broker, Client

cdef int handle_connect(Broker* b, Client* c, const Frame* f) noexcept nogil
