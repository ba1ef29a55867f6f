# Make a Security, the login and access rules of a listener's clients, from the control plane's specification.
from cext.broker.core.listener cimport Security

cdef Security* security_new(dict spec) except NULL          # raises ValueError, MemoryError
cdef void security_free(Security* s) noexcept nogil
# Return the position of a listener's security among n. Raises ValueError.
cdef int security_place(dict spec, Py_ssize_t n) except -1
