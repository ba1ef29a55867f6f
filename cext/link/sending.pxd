# Frames into the output of a connection.
from libc.stdint cimport uint32_t, uint64_t
from cext.link.frame cimport LinkFrame
from cext.link.state cimport Links

# Write a frame into the output of a connection. Return 0, or -1: the connection is closed.
cdef int frame_send(Links* x, uint32_t slot, int way, const LinkFrame* f, void* message) noexcept nogil
# A frame with nothing but a number or an identity.
cdef int number_send(Links* x, uint32_t slot, int way, int type, uint64_t number) noexcept nogil
# The connection to another worker has ended; kept messages stay.
cdef void out_broken(Links* x, uint32_t slot) noexcept nogil
