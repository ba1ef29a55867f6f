# Messages from other workers. See arrival.pyx. Actions of LinkOps.
from libc.stdint cimport uint32_t, uint64_t
from cext.link.frame cimport LinkFrame

cdef int arrival(void* broker, uint32_t slot, const LinkFrame* f, uint64_t* batch) noexcept nogil
