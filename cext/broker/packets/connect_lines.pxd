# Log lines about a CONNECT that cannot be decoded. See connect_lines.pyx.
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport Client
from cext.codec.frame cimport Frame

cdef void log_malformed_connect(Broker* b, Client* c, const Frame* f) noexcept nogil
