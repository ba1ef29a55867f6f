# From an attempt to CONNACK.
from cext.base.view cimport View
from cext.broker.core.bridge_state cimport Bridge, BridgeCommand
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport Client
from cext.codec.frame cimport Frame

cdef int bridge_open(Broker* b, Bridge* l, BridgeCommand* a) noexcept nogil            # 0 or errno; what becomes of it is told as an event
cdef void bridge_opened(Broker* b, Client* c, int err) noexcept nogil         # the socket is there, or not
cdef int handle_connack(Broker* b, Client* c, const Frame* f) noexcept nogil
cdef View text_view(const char* text) noexcept nogil
