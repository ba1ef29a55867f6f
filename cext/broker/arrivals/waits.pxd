# What clients wait for at other workers. See waits.pyx.
from libc.stdint cimport uint8_t, uint16_t, uint64_t
from cext.base.wheel cimport Timer
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport Client
from cext.link.state cimport LinkWaiter
from cext.session.message cimport Message
from cext.session.session cimport Session

# Send PUBACK in the order of the packets, when this worker has committed what it recorded since `changes` was read, and the workers that have got the
# message that was routed last have acknowledged it. waiter_is_left holds.
cdef void ack_when_linked(Broker* b, Client* c, uint16_t pid, uint8_t rc, uint64_t changes, const Message* m, uint8_t durability) noexcept nogil
cdef void wait_of_job_done(Broker* b, LinkWaiter* w, uint8_t durability) noexcept nogil
# The same for PUBCOMP: the end of the inbox record comes first. The message keeps its identity until that is committed.
cdef void ack_when_routed(Broker* b, Client* c, LinkWaiter* w, uint16_t pid, Message* m, uint64_t identity, uint8_t durability) noexcept nogil
# A PUBREL that came again, for a message that other workers have not acknowledged yet: its PUBCOMP goes to this client. Return 0 if there is none.
cdef bint routed_again(Broker* b, Client* c, uint16_t pid) noexcept nogil
# Return such a message; NULL = none.
cdef Message* routed_message(Broker* b, const Session* s, uint16_t pid, uint64_t* identity) noexcept nogil
# The pending packet of the client waits until all workers know the routes of this one (retained: and the owners have the retained messages of before), or
# (current) until this worker has the retained messages of all; then it is handled again. Return 0 without memory.
cdef bint wait_for_routes(Broker* b, Client* c, bint retained, bint current) noexcept nogil
# A bridge has connected: send it retained messages (BridgeOps.replay) when all workers know its subscriptions, and this one has the messages of all.
cdef void replay_when_routed(Broker* b, Client* c) noexcept nogil
cdef void wait_timed_out(Broker* b, Timer* t) noexcept nogil             # route_timeout
cdef void wait_released(void* broker, void* context) noexcept nogil      # action of LinkOps
cdef void waits_free(Broker* b) noexcept nogil               # what is left at the end
