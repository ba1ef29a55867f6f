# Control requests of other threads: posted under a lock, served by the loop between turns; the posting thread waits for the answer.
from cext.broker.admin.control_request cimport ControlRequest
from cext.broker.core.broker cimport Broker

cdef int mailbox_init(Broker* b) noexcept nogil
cdef void mailbox_fini(Broker* b) noexcept nogil
# Blocks the calling thread until the loop has answered; -1 when the loop is not running (any more).
cdef int mailbox_post(Broker* b, ControlRequest* a) noexcept nogil
cdef void mailbox_open(Broker* b) noexcept nogil            # the loop runs from here
cdef void mailbox_close(Broker* b) noexcept nogil           # and no more: whoever waits is let go
cdef void mailbox_serve(void* broker) noexcept nogil        # plain_fn of the reactor
