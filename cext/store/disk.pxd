# File operations of a Python object, for the test APIs of rooms that write files. A broker never uses them.
from cext.store.file cimport FileOps

cdef FileOps disk_ops(object disk)          # valid while the object exists
