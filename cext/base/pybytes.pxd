# Views of Python bytes, for test APIs and for values from the control plane. A view is valid as long
# as the caller keeps the bytes.
from libc.stdint cimport uint8_t, uint32_t
from cext.base.view cimport View

cdef inline View view_of(bytes b):           # None raises TypeError
    cdef View v
    v.p = <const uint8_t*><const char*>b
    v.n = <uint32_t>len(b)
    return v

cdef inline View view_or_none(bytes b):      # None gives a view with p == NULL
    cdef View v
    v.p = NULL
    v.n = 0
    return v if b is None else view_of(b)
