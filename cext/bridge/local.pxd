# The local side of a bridge: its session, its subscriptions, its notifications.
from cext.broker.core.bridge_state cimport Bridge
from cext.broker.core.broker cimport Broker
from cext.session.message cimport Message
from cext.session.session cimport Session

cdef int local_begin(Broker* b, Bridge* l) noexcept nogil          # before its first connection; ENOMEM, EBUSY
cdef void local_end(Broker* b, Bridge* l) noexcept nogil           # for good: the session is gone
cdef void local_subscribe(Broker* b, Bridge* l) noexcept nogil     # subscribes again to what its lines send out
cdef void local_clear(Broker* b, Bridge* l) noexcept nogil         # local_clean, and the bridge is down
cdef void local_replay(Broker* b, Bridge* l, bint all) noexcept nogil      # sends retained messages out; not all: only those of QoS 0 lines
cdef void local_notice(Broker* b, Bridge* l, const char* state) noexcept nogil     # "0", "1"
cdef void local_publish(Broker* b, Session* source, Message* m) noexcept nogil
# The remote broker has lost the session: take over the QoS 2 messages that it had sent.
cdef void local_session_lost(Broker* b, Bridge* l) noexcept nogil
cdef void local_lower(Broker* b, Bridge* l) noexcept nogil         # lowers queued deliveries to the QoS that the remote broker accepts
