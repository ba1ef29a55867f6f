# From an attempt to CONNACK.
from cext.base.view cimport View
from cext.broker.core.bridge_state cimport Bridge, BridgeCommand
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport Client
from cext.codec.frame cimport Frame

cdef int bridge_open(Broker* b, Bridge* l, BridgeCommand* a) noexcept nogil            # 0 or errno; an event reports the result
cdef void bridge_opened(Broker* b, Client* c, int err) noexcept nogil         # called when the socket is connected, or when that failed
cdef int handle_connack(Broker* b, Client* c, const Frame* f) noexcept nogil
cdef View text_view(const char* text) noexcept nogil
