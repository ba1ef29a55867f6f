# A message on its way, and what is counted when it does not arrive.
from libc.stdint cimport uint32_t, uint64_t
from cext.base.view cimport View
from cext.broker.core.broker cimport Broker
from cext.broker.core.publication_state cimport Publication
from cext.broker.persist.events cimport event_dropped
from cext.session.message cimport Message
from cext.session.session cimport Session

# A publication over a stored message (a reference is held until publication_fini).
cdef void publication_of(Publication* p, Message* m) noexcept nogil
cdef void publication_init(Publication* p) noexcept nogil
cdef void publication_fini(Broker* b, Publication* p) noexcept nogil
# The stored message of p, made when first asked for; NULL: no memory (or memory_limit). The reference stays p's.
cdef Message* publication_store(Broker* b, Publication* p) noexcept nogil
# The message of one delivery that waits: the stored one, or with several subscription identifiers one of its own. The reference is the
# caller's; NULL: no memory.
cdef Message* publication_message(Broker* b, Publication* p, const uint32_t* sub_ids, uint32_t n_sub_ids) noexcept nogil


# One is not delivered, or not taken: counted, and an event. s: whose it was, who was to get it or who published it; NULL: nobody's.
cdef inline void dropped(Broker* b, const Session* s, int reason, View topic) noexcept nogil:
    b.stats.drops[reason] += 1
    event_dropped(b, s, reason, topic)

# The same, among what was to go out.
cdef void drop_unlogged(Broker* b, const Session* s, int reason, View topic) noexcept nogil
# The same, to somebody who is there: the first of an episode is logged.
cdef void drop(Broker* b, Session* s, int reason, View topic) noexcept nogil
# Is what is held over memory_limit and the reserve (bytes)?
cdef bint memory_short(Broker* b, uint64_t reserve) noexcept nogil
