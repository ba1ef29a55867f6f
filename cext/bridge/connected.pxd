# A bridge after CONNACK: the agreed limits, and the packets to the remote broker.
from cext.broker.core.bridge_state cimport Bridge
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport Client
from cext.codec.as_client cimport ConnackIn
from cext.codec.frame cimport Frame

cdef void bridge_up(Broker* b, Bridge* l, Client* c, const ConnackIn* k) noexcept nogil
cdef int handle_suback(Broker* b, Client* c, const Frame* f) noexcept nogil      # and UNSUBACK
cdef void bridge_watch(Broker* b, Bridge* l, Client* c) noexcept nogil               # (re)starts the timer of the next PINGREQ
