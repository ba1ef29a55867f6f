# Make Roles from the control plane's description.
from cext.broker.rules.roles cimport Roles

cdef Roles* roles_read(dict spec) except NULL       # raises ValueError, MemoryError; the caller owns the one reference
