# A listener's specification -> Door.
from libc.stdint cimport uint32_t
from cext.broker.broker cimport Door, Security

# A new Door; `security` and the port that it really got are the caller's. Raises ValueError, OSError, MemoryError.
cdef Door* door_new(dict spec, list keep) except NULL
# Sessions that began with `old` may go on with `new`, where that is safe.
cdef int tickets_keep(Door* old, Door* new) except -1
cdef void door_free(Door* d) noexcept nogil
# The Listeners of bound sockets, as a list of addresses (each to be freed). d.port becomes the one that the system gave.
cdef list listeners_new(list opened, Door* d)
# Both arrays and what is in them; NULLs are left out.
cdef void lists_free(Security** securities, uint32_t n_securities, Door** doors, uint32_t n_doors) noexcept
