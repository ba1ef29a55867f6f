"""Make views of Python's text and bytes, for the structs of the data plane."""

from libc.stdint cimport uint8_t, uint32_t

from cext.base.view cimport View


cdef View view_keep(list keep, value):
    """Return a View of text or bytes. It is valid as long as `keep`, which holds the bytes."""
    cdef View v
    cdef bytes b = value.encode() if isinstance(value, str) else bytes(value or b"")
    keep.append(b)
    v.p = <const uint8_t*><const char*>b
    v.n = <uint32_t>len(b)
    return v
