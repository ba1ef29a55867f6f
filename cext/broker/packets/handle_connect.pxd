from cext.broker.auth.auth_requests cimport AuthAnswer
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport Client
from cext.codec.frame cimport Frame

cdef int handle_connect(Broker* b, Client* c, const Frame* f) noexcept nogil
# answer and time-out for a client in C_AUTHENTICATING
cdef void connect_answered(Broker* b, Client* c, const AuthAnswer* a) noexcept nogil
cdef void connect_timed_out(Broker* b, Client* c) noexcept nogil
# Report a client that came with its session from another process to plugins and streams, as one that has connected.
cdef void arrived_notify(Broker* b, Client* c) noexcept nogil
