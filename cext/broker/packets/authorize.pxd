# A plugin's word on the packets of a client. See authorize.pyx.
from libc.stdint cimport uint8_t
from cext.base.view cimport View
from cext.broker.auth.auth_requests cimport Answer, AuthRequest
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport Client
from cext.broker.core.listener cimport Security
from cext.codec.decode cimport Publish, Subscribe

cdef enum:
    BY_RULES = -1               # no plugin decides: the rules do

cdef inline bint is_plugged(const Security* s) noexcept nogil:
    return s != NULL and (s.authorize or s.transform_in != NULL)

# May the client publish this? topic: under the mount point. PARKED, or *allowed is set, but for what is refused in any case; then c.parked
# holds what a transform gave, if it did.
cdef int publish_decide(Broker* b, Client* c, Publish* p, View topic, int* allowed) noexcept nogil
# May the client subscribe (access 4) or unsubscribe (8) these? PARKED; else filter i was refused when filter_refused says so, until unpark.
cdef int filters_decide(Broker* b, Client* c, const Subscribe* s, uint8_t access) noexcept nogil
cdef inline bint filter_refused(Client* c, int i) noexcept nogil:
    return c.pending_packet != NULL and c.pending_packet.verdicts[i] == 2

cdef void packet_answered(Broker* b, Client* c, AuthRequest* q, int allowed) noexcept nogil     # to ASK_ACL
cdef void publish_changed(Broker* b, Client* c, const Answer* a) noexcept nogil       # to ASK_MESSAGE_IN; NULL: nobody answered
