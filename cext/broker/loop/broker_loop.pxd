# What a turn of the loop consists of. See broker_loop.pyx.
from cext.broker.core.broker cimport Broker

cdef int broker_init(Broker* b) noexcept nogil              # settings are set before; returns 0 or errno
cdef void broker_fini(Broker* b) noexcept nogil
# Run the loop until CONTROL_STOP. The loop writes to event_fd when the log contains something to read.
cdef int broker_run(Broker* b, int event_fd) noexcept nogil
