from libc.stdint cimport uint8_t
from cext.base.view cimport View
from cext.broker.core.client_state cimport Client
from cext.topic.name cimport Filter

# filter_parse of the filter under the listener's mount point; *owned is to be freed. -1: no memory.
cdef int parse_mounted(Client* c, View text, Filter* out, uint8_t** owned) noexcept nogil
