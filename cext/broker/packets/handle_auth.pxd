from cext.broker.auth.auth_requests cimport AuthAnswer
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport Client
from cext.codec.frame cimport Frame

cdef int handle_auth(Broker* b, Client* c, const Frame* f) noexcept nogil
# for a connected client that authenticates itself again
cdef void auth_answered(Broker* b, Client* c, const AuthAnswer* a) noexcept nogil
cdef void auth_timed_out(Broker* b, Client* c) noexcept nogil
