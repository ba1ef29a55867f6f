# A message on its way, and the counters of dropped messages.
from libc.stdint cimport uint32_t, uint64_t
from cext.base.view cimport View
from cext.broker.core.broker cimport Broker
from cext.broker.core.log cimport LOG_TRACE, log_wanted
from cext.broker.core.publication_state cimport Publication
from cext.broker.persist.drop_examples cimport drop_example
from cext.broker.persist.events cimport event_dropped
from cext.broker.trace.events cimport trace_dropped
from cext.session.message cimport Message
from cext.session.session cimport Session

# Make a publication of a stored message (a reference is held until publication_fini).
cdef void publication_of(Publication* p, Message* m) noexcept nogil
cdef void publication_init(Publication* p) noexcept nogil
cdef void publication_fini(Broker* b, Publication* p) noexcept nogil
# Return the stored message of p, made on the first call; NULL without memory (or over memory_limit). The reference stays with p.
cdef Message* publication_store(Broker* b, Publication* p) noexcept nogil
# Return the message of one queued delivery: the stored one, or with several subscription identifiers one of its own. The reference belongs to the
# caller; NULL without memory.
cdef Message* publication_message(Broker* b, Publication* p, const uint32_t* sub_ids, uint32_t n_sub_ids) noexcept nogil

# Count a drop for the listener of a connected client.
cdef void listener_dropped(const Session* s, int reason) noexcept nogil


# Count and report a message that is not delivered or not accepted. s: its session, its receiver or its publisher; NULL: none.
cdef inline void dropped(Broker* b, const Session* s, int reason, View topic) noexcept nogil:
    b.stats.drops[reason] += 1
    if s != NULL:
        listener_dropped(s, reason)
    drop_example(b, s, reason, topic)
    event_dropped(b, s, reason, topic)
    if log_wanted(&b.log, LOG_TRACE):
        trace_dropped(b, s, reason, topic)

# Same, for an outgoing message.
cdef void drop_unlogged(Broker* b, const Session* s, int reason, View topic) noexcept nogil
# Same, for a connected receiver: the first one of an episode is logged.
cdef void drop(Broker* b, Session* s, int reason, View topic) noexcept nogil
# Return whether the memory in use exceeds memory_limit and `reserve` bytes.
cdef bint memory_short(Broker* b, uint64_t reserve) noexcept nogil

# Return the reserve of new sessions and of messages that are not retained. Retained messages, subscriptions and large packets end at the
# limit itself, so a client that fills the memory with them does not stop the messages of the others.
cdef inline uint64_t memory_reserve(const Broker* b) noexcept nogil:
    return b.settings.memory_limit // 16
