# Freeze the loop for a handover, and let it continue or leave. See frozen.pyx.
from cext.broker.core.broker cimport Broker

ctypedef bint (*jobs_fn)(Broker* b) noexcept nogil       # run slices of jobs

# Return 1 if the loop continues, with b.stopping 0; 0 if it must leave without a word to its clients.
cdef bint frozen_run(Broker* b, jobs_fn jobs_run, int event_fd) noexcept nogil
