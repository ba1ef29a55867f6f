# Acknowledgements that wait for the commit of their records. See pending_acks.pyx.
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport Client
from cext.broker.core.durable cimport Durable
from cext.session.message cimport Message

# Send an acknowledgement in the order of the packets [v5 4.6.0-2]. If something was recorded since `changes` was read, it waits until that is
# committed. `m`: the published message, whose record may become unnecessary before (NULL: none).
cdef void ack_when_committed(Broker* b, Client* c, int packet_type, uint16_t pid, uint8_t rc, uint64_t changes, const Message* m,
                             uint8_t durability) noexcept nogil
# Append an acknowledgement that waits for other workers until pending_ack_due. Return 0 without memory; then the client ends.
cdef bint pending_ack_linked(Broker* b, Client* c, int packet_type, uint16_t pid, uint8_t rc, uint32_t* position) noexcept nogil
cdef void pending_ack_due(Broker* b, Client* c, uint32_t position) noexcept nogil
cdef void ack_now(Broker* b, Client* c, int packet_type, uint16_t pid, uint8_t rc) noexcept nogil     # for an acknowledgement without a record
cdef void ack_after_all(Broker* b, Client* c, int packet_type, uint16_t pid) noexcept nogil     # when everything recorded so far is committed
# Hold back all output of the client in the same way, unsent output included. soft: not while the store accepts nothing because the disk is full.
cdef void hold_output(Broker* b, Client* c, uint64_t changes, bint soft) noexcept nogil
cdef void pending_acks_resume(Broker* b) noexcept nogil       # called when trouble begins or ends; resumes the clients that it paused
cdef void pending_acks_job_done(Broker* b, Client* c) noexcept nogil     # acknowledgements that waited for a job wait for a batch from now on
cdef void pending_acks_free(Client* c) noexcept nogil
# Send the acknowledgements that are due: after a commit, and when a message turns out to need no record.
cdef void pending_acks_release(Broker* b, Client* c) noexcept nogil
cdef int waiter_add(Durable* t, uint32_t serial) noexcept nogil     # adds the waiter at the end of the ring; -1: no memory
