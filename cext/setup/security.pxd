# What a listener's clients must show and may do -> Security.
from cext.broker.core.listener cimport Security

cdef Security* security_new(dict spec) except NULL          # raises ValueError, MemoryError
cdef void security_free(Security* s) noexcept nogil
# The place of a listener's security among n of them. Raises ValueError.
cdef int security_place(dict spec, Py_ssize_t n) except -1
