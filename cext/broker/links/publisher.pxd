# The publisher of a message, in frames between workers. See publisher.pyx.
from libc.stdint cimport uint32_t
from cext.base.view cimport View
from cext.broker.core.broker cimport Broker
from cext.session.record cimport RecordFrom
from cext.session.session cimport Session

# Return the bytes, which are valid until the next call; empty without memory.
cdef View publisher_bytes(Broker* b, uint32_t origin, View id, View user) noexcept nogil
cdef View publisher_of_session(Broker* b, const Session* s) noexcept nogil
# Return 0 if the bytes are empty or wrong. The topic is not set.
cdef bint publisher_read(View bytes, RecordFrom* out) noexcept nogil
