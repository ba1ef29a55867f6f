# Send the deliveries of a session's queue. See pump.pyx.
from cext.broker.core.broker cimport Broker
from cext.broker.core.publication_state cimport Publication
from cext.session.queue cimport Delivery
from cext.session.session cimport Session

# Send the deliveries of the session's queue as far as the inflight window and the socket allow. p is a publication whose
# encodings may be reused, or NULL.
cdef void pump(Broker* b, Session* s, Publication* p) noexcept nogil
# End a delivery that was sent, for the reason `way` (ACCOUNT_...): release its message and mark it done in the queue.
cdef void delivery_done(Broker* b, Session* s, Delivery* d, int way) noexcept nogil
# Release all deliveries and inbound QoS 2 messages of the session. Deliveries that were never sent are counted as dropped with
# drop_reason; -1 = do not count them.
cdef void session_clear(Broker* b, Session* s, int drop_reason) noexcept nogil
