# From an attempt to CONNACK.
from cext.base.view cimport View
from cext.broker.broker cimport Broker, Client
from cext.broker.link cimport Link, LinkAsk
from cext.codec.frame cimport Frame

cdef int link_open(Broker* b, Link* l, LinkAsk* a) noexcept nogil            # 0 or errno; what becomes of it is told as an event
cdef void link_opened(Broker* b, Client* c, int err) noexcept nogil         # the socket is there, or not
cdef int handle_connack(Broker* b, Client* c, const Frame* f) noexcept nogil
cdef View text_view(const char* text) noexcept nogil
