# The functions of bridges that the loop calls. Apart from bridge_state.pxd, whose structs broker.pxd needs.
from cext.base.wheel cimport Timer
from cext.broker.core.broker cimport Broker
from cext.net.conn_state cimport Conn

cdef void bridges_begin(Broker* b) noexcept nogil                          # the loop begins
cdef void bridges_ready(Broker* b) noexcept nogil                          # of a worker: it knows all others
cdef void bridge_timer_fired(Broker* b, Timer* t) noexcept nogil           # TIMER_BRIDGE
cdef void conn_opened(void* broker, Conn* conn, int err) noexcept nogil  # opened_fn of the reactor
