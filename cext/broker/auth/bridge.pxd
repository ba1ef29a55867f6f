# What the data plane asks of a bridge. See bridge.pyx.
from libc.stdint cimport uint32_t
from cext.base.view cimport View
from cext.broker.core.bridge_state cimport Bridge, BridgeSpec, bridge_of
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport Client
from cext.session.session cimport Session
from cext.topic.lines cimport Renaming

# How what the remote broker publishes is called here. 0: it may not come in.
cdef bint bridge_lets_in(Broker* b, Client* c, View topic, Renaming* out) noexcept nogil
# How it is called there; *retain is what goes out. 0: it cannot be called anything.
cdef bint bridge_renames(Broker* b, Client* c, View topic, Renaming* out, int* retain) noexcept nogil
# The delivery at `position` of its queue is written next: bridge_renames goes by the lines under which it came, until bridge_default_lines. 0: none is known.
cdef bint bridge_choose_lines(Client* c, uint32_t position, uint32_t floor, View topic) noexcept nogil
cdef inline void bridge_default_lines(Client* c) noexcept nogil:
    bridge_of(c).naming = &bridge_of(c).spec.lines
# The first position in a link's queue from which all came under the lines of now, and nothing was sent.
cdef uint32_t bridge_settled(Broker* b, Session* s) noexcept nogil
cdef void past_free(BridgeSpec** past) noexcept nogil
cdef void spec_free(BridgeSpec* s) noexcept nogil
# What a message that goes through the link gets: n 0: nothing.
cdef View bridge_via(Broker* b, const Client* c) noexcept nogil
# *props and `via` behind them, good until the next; 0: no memory.
cdef bint bridge_props(Broker* b, View* props, View via) noexcept nogil
# Was a message with these properties here before?
cdef bint bridge_seen(Broker* b, View props) noexcept nogil
# Something was queued for a session whose link is down, or enough may wait there for another reason.
cdef void session_queued(Broker* b, Session* s) noexcept nogil
cdef void bridge_queued(Broker* b, Bridge* l) noexcept nogil
cdef bint bridge_queues_qos0(Broker* b, Session* s) noexcept nogil
# Tells the control plane; what finds no room is told as soon as there is some, the last event of a link alone.
cdef void bridge_notify(Broker* b, Bridge* l, int event, View detail) noexcept nogil
cdef Bridge* bridge_find(Broker* b, View name) noexcept nogil
cdef Bridge* bridge_of_session(Broker* b, const Session* s) noexcept nogil      # NULL: none
