# The queue of control requests: other threads post them under a lock, the loop answers them between turns, and the posting thread
# waits for the answer.
from cext.broker.admin.control_request cimport ControlRequest
from cext.broker.core.broker cimport Broker

cdef int mailbox_init(Broker* b) noexcept nogil
cdef void mailbox_fini(Broker* b) noexcept nogil
# Post a request and block the calling thread until the loop has answered. Returns -1 if the loop is not running.
cdef int mailbox_post(Broker* b, ControlRequest* a) noexcept nogil
cdef void mailbox_open(Broker* b) noexcept nogil            # the loop has started
cdef void mailbox_close(Broker* b) noexcept nogil           # the loop has ended: waiting threads return
cdef void mailbox_serve(void* broker) noexcept nogil        # callback of the reactor: plain_fn
