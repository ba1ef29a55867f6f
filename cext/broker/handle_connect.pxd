from cext.codec.frame cimport Frame
from cext.broker.ask cimport Answer
from cext.broker.broker cimport Broker, Client

cdef int handle_connect(Broker* b, Client* c, const Frame* f) noexcept nogil
# Of a client in C_ASKING
cdef void connect_answered(Broker* b, Client* c, const Answer* a) noexcept nogil
cdef void connect_timed_out(Broker* b, Client* c) noexcept nogil
