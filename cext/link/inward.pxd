# The side of a link that receives messages: numbers, identities, the mark.
from libc.stdint cimport uint32_t, uint64_t
from cext.link.frame cimport LinkFrame
from cext.link.state cimport Links

# HELLO has come on a new connection. Return 0 or an error of frame.pxd.
cdef int in_hello(Links* x, const LinkFrame* f, void* connection) noexcept nogil
# Handle another frame. Return 0 or an error.
cdef int in_frame(Links* x, uint32_t slot, const LinkFrame* f) noexcept nogil
cdef void in_arrived(Links* x, uint32_t slot, uint64_t log, uint64_t run, uint64_t number, uint64_t identity, uint64_t batch) noexcept nogil
cdef void in_committed(Links* x, uint32_t slot) noexcept nogil
cdef void in_mark(Links* x, uint32_t slot, uint64_t batch) noexcept nogil
cdef void in_acknowledge(Links* x, uint32_t slot) noexcept nogil
# Set what the store had of another worker.
cdef int in_restore(Links* x, uint32_t slot, uint64_t log, uint64_t run, uint64_t number) noexcept nogil
cdef int in_restore_hole(Links* x, uint32_t slot, uint64_t number) noexcept nogil
