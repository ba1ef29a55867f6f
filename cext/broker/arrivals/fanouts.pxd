# Messages from other workers whose deliveries take several turns. See fanouts.pyx.
from libc.stdint cimport uint32_t, uint64_t
from cext.broker.core.broker cimport Broker
from cext.broker.core.job_state cimport Job
from cext.broker.core.publication_state cimport Publication
from cext.link.frame cimport LinkFrame

# Deliver p to the subscribers of this worker. Return LINK_TAKEN, LINK_LATER if that takes several turns, or LINK_NO_MEMORY: no session has it. changes: of the
# store, before anything was done for the message.
cdef int fanout_arrived(Broker* b, uint32_t slot, const LinkFrame* f, Publication* p, uint64_t changes) noexcept nogil
cdef void fanout_done(Broker* b, Job* j) noexcept nogil         # before the job is freed
