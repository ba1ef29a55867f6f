# Roles as the control plane gives them -> Roles.
from cext.broker.rules.roles cimport Roles

cdef Roles* roles_read(dict spec) except NULL       # raises ValueError, MemoryError; one reference, the caller's
