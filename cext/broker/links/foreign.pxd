# The routes of other workers, as entries of the index. See foreign.pyx. Actions of LinkOps.
from libc.stdint cimport uint16_t, uint32_t
from cext.base.view cimport View
from cext.link.frame cimport LinkFrame
from cext.topic.index cimport Entry, List

cdef void foreign_route(void* broker, uint32_t slot, const LinkFrame* f, uint16_t generation) noexcept nogil
cdef void foreign_unroute(void* broker, uint32_t slot, View filter) noexcept nogil
cdef void foreign_routes_end(void* broker, uint32_t slot, uint16_t generation) noexcept nogil

# For index_explain: route number i of a list, and the number of its worker, as people count.
cdef Entry* peer_route(void* broker, List* list, uint32_t i, uint32_t* worker) noexcept nogil
# Remove all routes of a worker.
cdef void foreign_lost(Broker* b, uint32_t slot) noexcept nogil
