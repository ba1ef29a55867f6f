# The way of a message to other workers. See outward.pyx.
from libc.stdint cimport uint8_t, uint64_t
from cext.base.view cimport View
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport Client
from cext.broker.core.publication_state cimport Publication
from cext.link.frame cimport LinkFrame
from cext.topic.index cimport Group
from cext.topic.match cimport Match

# Send p to the workers whose routes are in the match; if the match is only a part, to all. Groups for which a member at another worker was chosen leave
# the match. Return 0 if a link has no room, which happens only to QoS 1 of a 5.0 client, or if a stream has none; then nothing was sent. owner: the client that waits for the
# acknowledgements of the workers (waiter_take), or NULL. A QoS 2 message has the identity BrokerLinks.identity.
cdef bint links_take(Broker* b, Publication* p, Match* m, bint part, Client* owner) noexcept nogil
cdef void paused_resume(Broker* b) noexcept nogil           # the links have room for the clients that wait for it
cdef void expiry_put(uint64_t expires_ms, LinkFrame* f) noexcept nogil     # 0: it does not expire
# Return the worker that gets a message for a group, by the members online there; -1 = none of those not tried has a member. qos: highest QoS of its members.
cdef int group_worker(Broker* b, Group* g, View topic, View client, uint64_t tried, uint8_t* qos) noexcept nogil
