# The functions of a bridge that other rooms call. See bridge.pyx.
from libc.stdint cimport uint32_t
from cext.base.view cimport View
from cext.broker.core.bridge_state cimport Bridge, BridgeSpec, bridge_of
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport Client
from cext.session.session cimport Session
from cext.topic.lines cimport Renaming

# Rename a topic of the remote broker to its local name. 0: the message may not come in.
cdef bint bridge_accepts(Broker* b, Client* c, View topic, Renaming* out) noexcept nogil
# Rename a topic to its remote name; *retain is the flag that is sent. 0: there is no remote name.
cdef bint bridge_renames(Broker* b, Client* c, View topic, Renaming* out, int* retain) noexcept nogil
# Choose the lines for the delivery at `position` of the queue: bridge_renames uses the lines under which it was queued, until bridge_default_lines.
# 0: those lines are not known.
cdef bint bridge_choose_lines(Client* c, uint32_t position, uint32_t floor, View topic) noexcept nogil
cdef inline void bridge_default_lines(Client* c) noexcept nogil:
    bridge_of(c).naming = &bridge_of(c).spec.lines
# Return the first position in the bridge's queue from which on all deliveries were queued under the current lines and are unsent.
cdef uint32_t bridge_settled(Broker* b, Session* s) noexcept nogil
cdef void past_specs_free(BridgeSpec** past) noexcept nogil
cdef void spec_free(BridgeSpec* s) noexcept nogil
# Return the user property that is added to messages through the bridge; n 0: nothing.
cdef View bridge_via(Broker* b, const Client* c) noexcept nogil
# Append `via` to *props. The result is valid until the next call. 0: no memory.
cdef bint bridge_props(Broker* b, View* props, View via) noexcept nogil
# Did a message with these properties pass this broker before?
cdef bint bridge_seen(Broker* b, View props) noexcept nogil
# Report that a delivery was queued for the session of a bridge that is down, or that enough may wait for another reason.
cdef void session_queued(Broker* b, Session* s) noexcept nogil
cdef void bridge_queued(Broker* b, Bridge* l) noexcept nogil
cdef bint bridge_queues_qos0(Broker* b, Session* s, uint32_t payload_n) noexcept nogil
# Report an event to the control plane. An event that finds no room is reported as soon as there is some; of each bridge only the last one.
cdef void bridge_notify(Broker* b, Bridge* l, int event, View detail) noexcept nogil
cdef Bridge* bridge_find(Broker* b, View name) noexcept nogil
cdef Bridge* bridge_of_session(Broker* b, const Session* s) noexcept nogil      # NULL: none
