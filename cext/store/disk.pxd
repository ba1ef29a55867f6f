# Files kept by a Python object: for the faces of rooms that write files, never for a broker.
from cext.store.file cimport FileOps

cdef FileOps disk_ops(object disk)          # valid as long as the object is
