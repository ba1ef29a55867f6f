# Views of Python's bytes, for faces and for what the control plane gives: valid as long as the bytes live, which is the caller's care.
from libc.stdint cimport uint8_t, uint32_t
from cext.base.view cimport View

cdef inline View view_of(bytes b):           # None: TypeError
    cdef View v
    v.p = <const uint8_t*><const char*>b
    v.n = <uint32_t>len(b)
    return v

cdef inline View view_or_none(bytes b):      # None: p is NULL
    cdef View v
    v.p = NULL
    v.n = 0
    return v if b is None else view_of(b)
