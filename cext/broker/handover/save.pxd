# Write the state of a quiet broker into a memory file. See save.pyx.
from cext.broker.core.broker cimport Broker
from cext.broker.core.handover_state cimport Handover

# Fill h.state_fd, h.fds and h.counts. Return 0 or errno. The state of the broker does not change.
cdef int state_save(Broker* b, Handover* h) noexcept nogil
