# Messages from other workers. See arrival.pyx. Actions of LinkOps.
from libc.stdint cimport uint32_t, uint64_t
from cext.broker.core.broker cimport Broker
from cext.broker.core.publication_state cimport Publication
from cext.link.frame cimport LinkFrame
from cext.link.state cimport LinkSend, LinkWaiter

cdef void group_again(void* broker, uint32_t slot, void* message, LinkSend* s, LinkWaiter* waiter) noexcept nogil
cdef int arrival(void* broker, uint32_t slot, const LinkFrame* f, uint64_t* batch) noexcept nogil
cdef void publication_of_frame(Broker* b, const LinkFrame* f, Publication* p) noexcept nogil
