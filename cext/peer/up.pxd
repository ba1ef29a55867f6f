# A link that is let in: what both sides agreed on, what is told to the remote broker.
from cext.broker.broker cimport Broker, Client
from cext.broker.link cimport Link
from cext.codec.as_client cimport ConnackIn
from cext.codec.frame cimport Frame

cdef void link_up(Broker* b, Link* l, Client* c, const ConnackIn* k) noexcept nogil
cdef int handle_suback(Broker* b, Client* c, const Frame* f) noexcept nogil      # and UNSUBACK
cdef void link_watch(Broker* b, Link* l, Client* c) noexcept nogil               # (re)starts the timer for the next PINGREQ
