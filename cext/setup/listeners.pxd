# Make a Listener from the control plane's specification.
from libc.stdint cimport uint32_t
from cext.broker.core.listener cimport Listener, Security

# Make a Listener; the caller sets `security` and the actual port. Raises ValueError, OSError, MemoryError.
cdef Listener* listener_new(dict spec, list keep) except NULL
# Let TLS sessions that began with `old` continue with `new`, if that is safe.
cdef int tickets_keep(Listener* old, Listener* new) except -1
cdef void listener_free(Listener* d) noexcept nogil
# Return the ListenSockets of bound sockets, as a list of addresses (the caller frees each). d.port becomes the port that the system gave.
cdef list listen_sockets_new(list opened, Listener* d)
# Free both arrays and their content; NULLs are skipped.
cdef void lists_free(Security** securities, uint32_t n_securities, Listener** listeners, uint32_t n_listeners) noexcept
# Return the listener as the store keeps it.
cdef uint32_t origin_of(dict spec) except 0
