# What a turn of the loop consists of. See broker_loop.pyx.
from cext.broker.core.broker cimport Broker

cdef int broker_init(Broker* b) noexcept nogil              # settings are set already; 0 or errno
cdef void broker_fini(Broker* b) noexcept nogil
# The loop, until CONTROL_STOP; event_fd is written to when there is something to read in the log.
cdef int broker_run(Broker* b, int event_fd) noexcept nogil
