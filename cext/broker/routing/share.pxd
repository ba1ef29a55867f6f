# Shared subscriptions [v5 4.8.2]: which member of a group gets a message, and who gets what a member leaves behind.
from libc.stdint cimport uint8_t, uint32_t
from cext.broker.core.broker cimport Broker
from cext.broker.core.publication_state cimport Publication
from cext.session.session cimport Session
from cext.topic.index cimport Group


cdef enum:
    SHARE_LOOK_MAX = 1024       # members of a group that are looked at for one message

cdef uint8_t share_strategy(Broker* b, const Group* g) noexcept nogil      # never 0: also of a group that had no message yet
# One member gets it, whose session keeps it when nobody is online. 0: there is none.
cdef bint share_deliver(Broker* b, Publication* p, Group* g) noexcept nogil
# After a start, when all subscriptions are there: what came through groups finds them again, by its topic.
cdef void share_restored(Broker* b, Session* s) noexcept nogil
# What an ended session's queue holds of shared groups goes to other members of theirs, the rest is dropped: as much as `budget` units
# of work allow. 1: the queue is empty. Its own subscriptions may still be there.
cdef bint share_hand_over(Broker* b, Session* s, uint32_t budget) noexcept nogil
