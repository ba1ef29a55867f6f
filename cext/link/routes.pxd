# Filters with subscribers of this worker, as it announces them to the others.
from libc.stdint cimport int32_t, uint32_t
from cext.base.view cimport View
from cext.link.state cimport Links

# Count a subscription of QoS `added` more, and one of QoS `removed` less (-1 = none). `filter` has `$share/GROUP/`.
# Return 1 if a new subscriber must wait (link_wait_routes), otherwise 0; -1 = no memory, and nothing changed.
cdef int route_count(Links* x, View filter, int added, int removed) noexcept nogil
# Members of a shared group came online or went offline.
cdef void route_online(Links* x, View filter, int32_t change) noexcept nogil
# Return the number of members online that the others know of this worker.
cdef uint32_t route_announced(Links* x, View filter) noexcept nogil
