# The $SYS tree: counters and gauges as retained messages, published when they changed.
from libc.stdint cimport uint64_t
from cext.base.wheel cimport Timer
from cext.broker.core.broker cimport Broker

cdef int sys_init(Broker* b) noexcept nogil                 # -1: no memory
cdef void sys_fini(Broker* b) noexcept nogil
cdef void sys_begin(Broker* b) noexcept nogil               # the version, and the timer
cdef void sys_again(Broker* b) noexcept nogil               # another interval
cdef uint64_t packets_waiting(Broker* b) noexcept nogil       # unsent PUBLISHes of all clients, about
cdef void sys_timer_fired(Broker* b, Timer* t) noexcept nogil
