# Deliver a publication to one session: write it to the socket, queue it, or drop it.
from libc.stdint cimport uint8_t, uint32_t
from cext.broker.core.broker cimport Broker
from cext.broker.core.publication_state cimport Publication
from cext.session.session cimport Session

# Deliver p to the session under a subscription's options [v5 3.3.4]: send it now, queue it, or drop it with a counted reason.
# `retain` is the flag of the outgoing PUBLISH.
cdef void deliver(Broker* b, Session* s, Publication* p, uint8_t qos, uint8_t retain, const uint32_t* sub_ids,
                  uint32_t n_sub_ids) noexcept nogil
# Deliver p as `deliver` does, without asking the access rules; the caller has asked them whether the session may read the topic.
cdef void deliver_readable(Broker* b, Session* s, Publication* p, uint8_t qos, uint8_t retain, const uint32_t* sub_ids,
                           uint32_t n_sub_ids) noexcept nogil
# Send the deliveries at the head of the session's plugin gate whose verdict is known.
cdef void deliver_gated(Broker* b, Session* s) noexcept nogil
