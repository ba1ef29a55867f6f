# Acknowledgements that wait for what they promise. See promise.pyx.
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport Client
from cext.broker.core.durable cimport Durable
from cext.session.message cimport Message

# Each sends an acknowledgement in its turn [v5 4.6.0-2]. This one, where something was recorded since `changes` was read, when that is
# committed; m: what was published, whose record may prove needless before (NULL: nothing was).
cdef void ack_when_committed(Broker* b, Client* c, int packet_type, uint16_t pid, uint8_t rc, uint64_t changes, const Message* m,
                  uint8_t durability) noexcept nogil
cdef void ack_now(Broker* b, Client* c, int packet_type, uint16_t pid, uint8_t rc) noexcept nogil     # promises nothing
cdef void ack_after_all(Broker* b, Client* c, int packet_type, uint16_t pid) noexcept nogil     # when all that was ever recorded is committed
# The same for all of its output, what stands there already included. soft: but not while the store takes nothing, on a full disk.
cdef void hold_output(Broker* b, Client* c, uint64_t changes, bint soft) noexcept nogil
cdef void pending_acks_resume(Broker* b) noexcept nogil       # trouble has begun or ended: who waits for the one or the other does not wait any more
cdef void pending_acks_job_done(Broker* b, Client* c) noexcept nogil     # what waited for it waits for a batch from now on
cdef void pending_acks_free(Client* c) noexcept nogil
# Sends what is due: when a batch was committed, and when a message proved to need no record.
cdef void pending_acks_release(Broker* b, Client* c) noexcept nogil
cdef int waiter_add(Durable* t, uint32_t serial) noexcept nogil     # its place is the last one; -1: no memory
