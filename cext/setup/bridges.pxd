# Specifications of links -> Links.
from cext.broker.core.bridge_state cimport Bridge, Bridges

# For an Engine that is made: all of them. Raises ValueError, OSError, MemoryError. bridges_free is due.
cdef Bridges* bridges_new(list specs) except NULL
# For a reload: *out gets an array of malloc's.
cdef int bridges_read(list specs, Bridge*** out) except -1
cdef void bridges_drop(Bridge** at, unsigned int n) noexcept nogil       # what of them is still there, and the array
