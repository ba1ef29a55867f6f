"""Pass the loop's calls on to the bridge room (BridgeOps)."""

from libc.stdint cimport uint8_t

from cext.base.wheel cimport Timer
from cext.broker.core.bridge_state cimport Bridge, bridges_of
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport client_of
from cext.net.conn_state cimport Conn


cdef void bridges_begin(Broker* b) noexcept nogil:
    if b.bridges != NULL:
        bridges_of(b).ops.begin(b)


cdef void bridges_ready(Broker* b) noexcept nogil:
    if b.bridges != NULL:
        bridges_of(b).ops.ready(b)


cdef void bridge_timer_fired(Broker* b, Timer* t) noexcept nogil:
    bridges_of(b).ops.bridge_timer(b, <Bridge*>(<uint8_t*>t - <size_t>&(<Bridge*>NULL).timer))


cdef void conn_opened(void* broker, Conn* conn, int err) noexcept nogil:
    bridges_of(<Broker*>broker).ops.opened(<Broker*>broker, client_of(conn), err)
