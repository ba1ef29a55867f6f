from libc.stdint cimport uint8_t
from cext.base.view cimport View
from cext.broker.core.client_state cimport Client
from cext.topic.name cimport Filter

# Parse a filter below the listener's mount point with filter_parse. The caller frees *owned. -1: no memory.
cdef int parse_mounted(Client* c, View text, Filter* out, uint8_t** owned) noexcept nogil
