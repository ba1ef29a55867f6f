# A listener's specification -> Door.
from libc.stdint cimport uint32_t
from cext.broker.core.listener cimport Listener, Security

# A new Door; `security` and the port that it really got are the caller's. Raises ValueError, OSError, MemoryError.
cdef Listener* listener_new(dict spec, list keep) except NULL
# Sessions that began with `old` may go on with `new`, where that is safe.
cdef int tickets_keep(Listener* old, Listener* new) except -1
cdef void listener_free(Listener* d) noexcept nogil
# The Listeners of bound sockets, as a list of addresses (each to be freed). d.port becomes the one that the system gave.
cdef list listen_sockets_new(list opened, Listener* d)
# Both arrays and what is in them; NULLs are left out.
cdef void lists_free(Security** securities, uint32_t n_securities, Listener** listeners, uint32_t n_listeners) noexcept
