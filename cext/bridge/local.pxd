# The side of a link that is here: its session, its subscriptions, what is published about it.
from cext.broker.core.bridge_state cimport Bridge
from cext.broker.core.broker cimport Broker
from cext.session.message cimport Message
from cext.session.session cimport Session

cdef int local_begin(Broker* b, Bridge* l) noexcept nogil          # before its first connection; ENOMEM, EBUSY
cdef void local_end(Broker* b, Bridge* l) noexcept nogil           # for good: the session is gone
cdef void local_subscribe(Broker* b, Bridge* l) noexcept nogil     # to what its lines let out, anew
cdef void local_clear(Broker* b, Bridge* l) noexcept nogil         # local_clean, and the link is down
cdef void local_replay(Broker* b, Bridge* l, bint all) noexcept nogil      # what is retained here goes out; not all: of QoS 0 lines
cdef void local_notice(Broker* b, Bridge* l, const char* state) noexcept nogil     # "0", "1"
cdef void local_publish(Broker* b, Session* source, Message* m) noexcept nogil
# The remote broker has forgotten the session: what it was told is told again, what it had told us is ours.
cdef void local_forgotten(Broker* b, Bridge* l) noexcept nogil
cdef void local_lower(Broker* b, Bridge* l) noexcept nogil         # what waits goes out with the QoS that the remote takes
