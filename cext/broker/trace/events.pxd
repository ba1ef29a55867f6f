# The events of traces. Call these functions only while log_wanted(&b.log, LOG_TRACE). See events.pyx.
from libc.stdint cimport uint8_t, uint32_t
from cext.base.view cimport View
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport Client
from cext.broker.core.publication_state cimport Publication
from cext.codec.frame cimport Frame
from cext.session.session cimport Session

cdef void trace_received(Broker* b, Client* c, const Frame* f) noexcept nogil        # before the packet is handled
cdef void trace_sent(Broker* b, Client* c, const uint8_t* p, uint32_t n) noexcept nogil      # a whole packet in one piece
# A PUBLISH that was delivered: its n bytes before the payload.
cdef void trace_published(Broker* b, Client* c, const Publication* p, const uint8_t* head, uint32_t n) noexcept nogil
cdef void trace_queued(Broker* b, const Session* s, View topic, int qos) noexcept nogil
# s: the receiver or the publisher; NULL: none
cdef void trace_dropped(Broker* b, const Session* s, int reason, View topic) noexcept nogil
cdef void trace_closed(Broker* b, Client* c, const char* reason) noexcept nogil      # before the client leaves its session
