# Verdicts of plugins about the packets of a client. See authorize.pyx.
from libc.stdint cimport uint8_t, uint32_t
from cext.base.view cimport View
from cext.broker.auth.auth_requests cimport AuthAnswer, AuthRequest
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport Client
from cext.broker.core.listener cimport Security
from cext.codec.decode cimport Publish, Subscribe, SubscribeItem

cdef enum:
    BY_RULES = -1               # no plugin decides; the rules do

cdef inline bint is_plugged(const Security* s) noexcept nogil:
    return s != NULL and (s.authorize or s.transform_in != NULL)

# Decide whether the client may publish. `topic` includes the mount point. Returns PACKET_PENDING, or 0 with *allowed set, or a
# reason code if the packet is refused in any case. If a plugin transformed the message, c.pending_packet holds the result.
cdef int publish_decide(Broker* b, Client* c, Publish* p, View topic, int* allowed) noexcept nogil
# Decide whether the client may subscribe to the filters (access ACL_SUBSCRIBE) or unsubscribe from them (ACL_UNSUBSCRIBE).
# Returns PACKET_PENDING, 0, or a reason code. After 0, filter_refused gives the verdict of filter i until the pending packet is
# freed.
cdef int filters_decide(Broker* b, Client* c, const Subscribe* s, uint8_t access) noexcept nogil
cdef inline bint filter_refused(Client* c, int i) noexcept nogil:
    return c.pending_packet != NULL and c.pending_packet.verdicts != NULL and c.pending_packet.verdicts[i] == 2

# Put the filter and the options that a plugin has set into filter i. Returns 0 if none has.
cdef bint filter_changed(Client* c, uint32_t i, SubscribeItem* item) noexcept nogil

# answer to ASK_ACL; NULL = no answer came
cdef void packet_answered(Broker* b, Client* c, AuthRequest* q, int allowed, const AuthAnswer* a) noexcept nogil
# Apply the answer to ASK_MESSAGE_IN; NULL = no answer came.
cdef void publish_changed(Broker* b, Client* c, const AuthAnswer* a) noexcept nogil
