# The $SYS tree: statistics as retained messages, published when they changed.
from cext.base.wheel cimport Timer
from cext.broker.core.broker cimport Broker

cdef int sys_init(Broker* b) noexcept nogil                 # -1: no memory
cdef void sys_fini(Broker* b) noexcept nogil
cdef void sys_begin(Broker* b) noexcept nogil               # publishes the version and starts the timer
cdef void sys_again(Broker* b) noexcept nogil               # after sys_interval changed
cdef void sys_timer_fired(Broker* b, Timer* t) noexcept nogil
