# Log lines about a wrong CONNECT. See connect_lines.pyx.
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport Client
from cext.codec.frame cimport Frame

cdef void log_malformed_connect(Broker* b, Client* c, const Frame* f) noexcept nogil
cdef void log_protocol_error(Broker* b, Client* c, const char* text) noexcept nogil
