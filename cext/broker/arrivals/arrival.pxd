# Messages from other workers. See arrival.pyx. Actions of LinkOps.
from libc.stdint cimport uint32_t, uint64_t
from cext.base.view cimport View
from cext.broker.core.broker cimport Broker
from cext.broker.core.publication_state cimport Publication
from cext.link.frame cimport LinkFrame
from cext.link.state cimport LinkSend, LinkWaiter
from cext.session.record cimport RecordFrom

cdef void group_again(void* broker, uint32_t slot, void* message, LinkSend* s, LinkWaiter* waiter) noexcept nogil
cdef int arrival(void* broker, uint32_t slot, const LinkFrame* f, uint64_t* batch) noexcept nogil
# Note the publisher of a message that came with its publisher. Return 0 if it is not known.
cdef bint arrival_from(Broker* b, View publisher, Publication* p, RecordFrom* out) noexcept nogil
# Deliver to a member of the group here; text: $share/GROUP/FILTER. Return 0 if there is none.
cdef bint group_takes(Broker* b, Publication* p, View text) noexcept nogil
cdef void publication_of_frame(Broker* b, const LinkFrame* f, Publication* p) noexcept nogil
