# Rebuild the state of a broker from the memory file of the process before. See restore.pyx.
from libc.stdint cimport int32_t, uint32_t, uint64_t
from cext.broker.core.broker cimport Broker
from cext.broker.core.handover_state cimport HandoverCounts

# Before the loop starts, and after the store was read. Descriptors that became part of a connection belong to it. Return 0; otherwise `why` has
# the reason, and the broker must not run.
cdef int state_restore(Broker* b, int state_fd, const int32_t* fds, uint32_t n_fds, HandoverCounts* counts, char* why, uint32_t why_n) noexcept nogil
# When the loop begins: give the clients back the time of the handover, report them to plugins and streams, and send what waits for them.
cdef void arrived_begin(Broker* b) noexcept nogil
# The same after a handover that failed.
cdef void keepalives_shift(Broker* b, uint64_t ms) noexcept nogil
