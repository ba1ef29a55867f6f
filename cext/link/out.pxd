# The side of a link that sends messages: the connection, the kept messages, the snapshots.
from libc.stdint cimport uint32_t, uint64_t
from cext.base.view cimport View
from cext.link.frame cimport LinkFrame
from cext.link.state cimport LinkOut, LinkSend, LinkWaiter, Links

cdef void out_connected(Links* x, uint32_t slot) noexcept nogil
cdef void out_close(Links* x, uint32_t slot) noexcept nogil
# Handle a frame from the other worker. Return 0 or the error of frame.pxd.
cdef int out_frame(Links* x, uint32_t slot, const LinkFrame* f) noexcept nogil
# Send what may be sent now, about `bytes` bytes of it. Return 1 if the rest could follow at once.
cdef bint out_work(Links* x, uint32_t slot, uint32_t bytes) noexcept nogil
cdef bint out_full(Links* x, uint32_t slot, uint32_t messages, uint64_t bytes) noexcept nogil
cdef int out_keep(Links* x, uint32_t slot, void* message, const LinkSend* s, LinkWaiter* w) noexcept nogil
# Let a waiter wait until the owners have the retained messages that this worker has sent to them, and has set itself. -1 = no memory.
cdef int out_flush(Links* x, LinkWaiter* w) noexcept nogil
cdef void out_ask_routes(Links* x, uint32_t slot) noexcept nogil
cdef void out_ask_retained(Links* x, uint32_t slot) noexcept nogil
cdef void out_answer_current(Links* x, uint32_t slot) noexcept nogil
cdef void out_free(Links* x, uint32_t slot) noexcept nogil          # also drops the kept messages
