# Specifications of links -> Links.
from cext.broker.link cimport Link, Links

# For an Engine that is made: all of them. Raises ValueError, OSError, MemoryError. links_free is due.
cdef Links* links_new(list specs) except NULL
# For a reload: *out gets an array of malloc's.
cdef int links_read(list specs, Link*** out) except -1
cdef void links_drop(Link** at, unsigned int n) noexcept nogil       # what of them is still there, and the array
