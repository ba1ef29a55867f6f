# Ends the connections of users. See kick.pyx.
from cext.base.view cimport View
from cext.broker.core.broker cimport Broker
from cext.broker.core.job_state cimport Job

# names: (uint32_t length, bytes) each, behind one another; anonymous: also of all clients without a user name. -1: no memory.
cdef int kick_users(Broker* b, View names, bint anonymous) noexcept nogil
cdef bint kick_slice(Broker* b, Job* j) noexcept nogil              # JOB_KICK; 1: done
cdef void kick_end(Broker* b, Job* j) noexcept nogil
