# Deliver a publication to one session: write it to the socket, queue it, or drop it.
from libc.stdint cimport uint8_t, uint32_t
from cext.broker.core.broker cimport Broker
from cext.broker.core.publication_state cimport Publication
from cext.session.queue cimport Delivery
from cext.session.session cimport Session

cdef enum:
    NO_LOCAL = 1 << 2                   # subscription option No Local [v5 3.8.3.1]
    RETAIN_AS_PUBLISHED = 1 << 3

cdef inline uint8_t qos_for(const Broker* b, const Publication* p, uint8_t options) noexcept nogil:
    if b.settings.upgrade_outgoing_qos or options & 3 < p.qos:
        return options & 3
    return p.qos

# Deliver p to the session under a subscription's options [v5 3.3.4]: send it now, queue it, or drop it with a counted reason.
# `retain` is the flag of the outgoing PUBLISH.
cdef void deliver(Broker* b, Session* s, Publication* p, uint8_t qos, uint8_t retain, const uint32_t* sub_ids,
                  uint32_t n_sub_ids) noexcept nogil
# Deliver p as `deliver` does, without asking the access rules; the caller has asked them whether the session may read the topic.
cdef void deliver_readable(Broker* b, Session* s, Publication* p, uint8_t qos, uint8_t retain, const uint32_t* sub_ids,
                           uint32_t n_sub_ids) noexcept nogil
# Send the deliveries at the head of the session's plugin gate whose verdict is known.
cdef void deliver_gated(Broker* b, Session* s) noexcept nogil
# Send the deliveries of the session's queue as far as the inflight window and the socket allow. p is a publication whose
# encodings may be reused, or NULL.
cdef void pump(Broker* b, Session* s, Publication* p) noexcept nogil
# End a delivery that was sent, for the reason `way` (ACCOUNT_...): release its message and mark it done in the queue.
cdef void delivery_done(Broker* b, Session* s, Delivery* d, int way) noexcept nogil
# Drop a delivery that was not sent in this connection.
cdef void unsent_done(Broker* b, Session* s, Delivery* d, int reason) noexcept nogil
# Release all deliveries and inbound QoS 2 messages of the session. Deliveries that were never sent are counted as dropped with
# drop_reason; -1 = do not count them.
cdef void session_clear(Broker* b, Session* s, int drop_reason) noexcept nogil
