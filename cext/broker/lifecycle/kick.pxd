# Disconnect the clients of given users. See kick.pyx.
from cext.base.view cimport View
from cext.broker.core.broker cimport Broker
from cext.broker.core.job_state cimport Job

# Disconnect the clients of these users. `names` contains (uint32_t length, bytes) per user. `anonymous`: also disconnect all
# clients without a user name. Returns -1 if there is no memory.
cdef int kick_users(Broker* b, View names, bint anonymous) noexcept nogil
cdef bint kick_slice(Broker* b, Job* j) noexcept nogil              # JOB_KICK; 1 = done
cdef void kick_end(Broker* b, Job* j) noexcept nogil
