# Copies of retained messages, from and to other workers. See copies.pyx. Actions of LinkOps.
from libc.stdint cimport uint16_t, uint32_t, uint64_t
from cext.broker.core.broker cimport Broker
from cext.link.frame cimport LinkFrame

cdef void copy_arrived(void* broker, uint32_t slot, const LinkFrame* f, uint16_t generation) noexcept nogil
cdef void copies_end(void* broker, uint32_t slot, uint16_t generation) noexcept nogil
cdef int copies_walk(void* broker, uint32_t slot, uint64_t* cursor, uint32_t bytes) noexcept nogil
cdef void walk_close(Broker* b, uint32_t slot) noexcept nogil
