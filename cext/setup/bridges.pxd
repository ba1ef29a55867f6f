# Make bridges from the control plane's specifications.
from cext.broker.core.bridge_state cimport Bridge, Bridges

# Make all bridges of a new Engine. Raises ValueError, OSError, MemoryError. The caller frees them with bridges_free.
cdef Bridges* bridges_new(list specs) except NULL
# Make the bridges of a reload: *out becomes an array allocated by malloc.
cdef int bridges_read(list specs, Bridge*** out) except -1
cdef void bridges_drop(Bridge** at, unsigned int n) noexcept nogil       # frees those that are left, and the array
