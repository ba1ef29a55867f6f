# The limits of a session's queue and what is dropped above them. See overflow.pyx.
from libc.stdint cimport uint8_t, uint32_t
from cext.broker.core.broker cimport Broker
from cext.broker.core.publication_state cimport Publication
from cext.session.message cimport Message
from cext.session.queue cimport Delivery
from cext.session.session cimport Session

# Make room for one delivery under the overflow policy. Returns 0 if there is no room: then the new delivery is dropped. Each drop
# is counted.
cdef bint make_room(Broker* b, Session* s, const Publication* p, uint8_t qos) noexcept nogil
# Return whether max_queued_bytes allows no further delivery.
cdef bint queue_bytes_full(Broker* b, Session* s) noexcept nogil
# Replace a waiting delivery of the same topic that was never sent by message m, if there is one among the last LAST_VALUES_MAX.
# Returns 1 if it did; then the queue owns the caller's reference to m. Without memory for the record p.lacks is set, and a repetition records it.
cdef bint replace_older(Broker* b, Session* s, Message* m, Publication* p, uint8_t qos, uint32_t sub_id) noexcept nogil
# Record a delivery of a durable session. Returns -1 if there is no memory.
cdef int record_delivery(Broker* b, Session* s, Message* m, Delivery* d, const Publication* p) noexcept nogil
# Drop a delivery that was not sent in this connection.
cdef void unsent_done(Broker* b, Session* s, Delivery* d, int reason) noexcept nogil
