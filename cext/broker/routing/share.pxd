# Shared subscriptions [v5 4.8.2]: select the member of a group for a message, and hand over the deliveries of a member that ends.
from libc.stdint cimport uint8_t, uint32_t
from cext.broker.core.broker cimport Broker
from cext.broker.core.publication_state cimport Publication
from cext.session.session cimport Session
from cext.topic.index cimport Group


cdef enum:
    SHARE_LOOK_MAX = 1024       # largest number of members that are looked at for one message

cdef uint8_t share_strategy(Broker* b, const Group* g) noexcept nogil      # never 0, also for a group that had no message yet
# Determine the strategy of a group that had no message yet.
cdef void group_init(Broker* b, Group* g) noexcept nogil
# Deliver p to one member, whose session queues it if no member is online. Returns 0 if the group has no member.
cdef bint share_deliver(Broker* b, Publication* p, Group* g) noexcept nogil
# Find the groups of restored deliveries again by topic. Called after a start, when all subscriptions are there.
cdef void share_restored(Broker* b, Session* s) noexcept nogil
# Hand over the shared deliveries of an ended session's queue to other members of their groups, and drop the rest, within `budget`
# units of work. Returns 1 when the queue is empty. The session's own subscriptions may still be there.
cdef bint share_hand_over(Broker* b, Session* s, uint32_t budget) noexcept nogil
