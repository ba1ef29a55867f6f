"""What the loop calls of links: passed on to the room above (LinkOps)."""

from libc.stdint cimport uint8_t

from cext.base.wheel cimport Timer
from cext.broker.broker cimport Broker, client_of
from cext.broker.link cimport Link, links_of
from cext.net.reactor cimport Conn


cdef void links_begin(Broker* b) noexcept nogil:
    if b.links != NULL:
        links_of(b).ops.begin(b)


cdef void link_timer_fired(Broker* b, Timer* t) noexcept nogil:
    links_of(b).ops.link_timer(b, <Link*>(<uint8_t*>t - <size_t>&(<Link*>NULL).timer))


cdef void conn_opened(void* broker, Conn* conn, int err) noexcept nogil:
    links_of(<Broker*>broker).ops.opened(<Broker*>broker, client_of(conn), err)
