# The local side of a bridge: its session, its subscriptions, its notifications.
from cext.broker.core.bridge_state cimport Bridge
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport Client
from cext.session.message cimport Message
from cext.session.session cimport Session

cdef int local_begin(Broker* b, Bridge* l) noexcept nogil          # before its first connection; ENOMEM, EBUSY
cdef void local_end(Broker* b, Bridge* l) noexcept nogil           # for good: the session is gone
cdef void local_subscribe(Broker* b, Bridge* l) noexcept nogil     # subscribes again to what its lines send out
cdef void local_clear(Broker* b, Bridge* l) noexcept nogil         # local_clean, and the bridge is down
# Send retained messages out: those of all lines if l.replay_all, otherwise those of lines with QoS 0; replay_now: at once.
cdef void local_replay(Broker* b, Bridge* l, Client* c) noexcept nogil
cdef void replay_now(Broker* b, Client* c) noexcept nogil
cdef void local_notice(Broker* b, Bridge* l, const char* state) noexcept nogil     # "0", "1"
cdef void local_publish(Broker* b, Session* source, Message* m) noexcept nogil
# The remote broker has lost the session: take over the QoS 2 messages that it had sent.
cdef void local_session_lost(Broker* b, Bridge* l) noexcept nogil
cdef void local_lower(Broker* b, Bridge* l) noexcept nogil         # lowers queued deliveries to the QoS that the remote broker accepts
