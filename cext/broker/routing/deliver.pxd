# From a publication to a session's socket or queue.
from libc.stdint cimport uint8_t, uint32_t
from cext.broker.core.broker cimport Broker
from cext.broker.core.publication_state cimport Publication
from cext.session.queue cimport Delivery
from cext.session.session cimport Session

cdef enum:
    NO_LOCAL = 1 << 2                   # in a subscription's options [v5 3.8.3.1]
    RETAIN_AS_PUBLISHED = 1 << 3

cdef inline uint8_t qos_for(const Broker* b, const Publication* p, uint8_t options) noexcept nogil:
    if b.settings.upgrade_outgoing_qos or options & 3 < p.qos:
        return options & 3
    return p.qos

# Owes p to the session under a subscription's options [v5 3.3.4]: sent now, queued, or dropped with a counted reason.
# retain is the flag of the outgoing PUBLISH.
cdef void deliver(Broker* b, Session* s, Publication* p, uint8_t qos, uint8_t retain, const uint32_t* sub_ids, uint32_t n_sub_ids) noexcept nogil
# The same, where the rules were asked already whether the session may read it.
cdef void deliver_readable(Broker* b, Session* s, Publication* p, uint8_t qos, uint8_t retain, const uint32_t* sub_ids,
                           uint32_t n_sub_ids) noexcept nogil
# Sends on what waited at the session's gate, as far as its fate is known.
cdef void deliver_gated(Broker* b, Session* s) noexcept nogil
# Sends what waits in the session's queue, as far as the window and the socket allow. p (may be NULL): a publication
# whose encodings may be used again.
cdef void pump(Broker* b, Session* s, Publication* p) noexcept nogil
# The delivery is over, ACCOUNT_...: its message is released, the floor moves.
cdef void delivery_done(Broker* b, Session* s, Delivery* d, int way) noexcept nogil
# One that was not sent in this connection is dropped.
cdef void unsent_done(Broker* b, Session* s, Delivery* d, int reason) noexcept nogil
# All that the session owes or holds is released; what was never sent counts as dropped (drop_reason -1: not counted).
cdef void session_clear(Broker* b, Session* s, int drop_reason) noexcept nogil
