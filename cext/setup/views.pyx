"""Views of Python's text and bytes, for the structs of the data plane."""

from libc.stdint cimport uint8_t, uint32_t

from cext.base.view cimport View


cdef View view_keep(list keep, value):
    """A View of text or bytes; `keep` keeps the bytes alive: as long as it lives, the View may be looked at."""
    cdef View v
    cdef bytes b = value.encode() if isinstance(value, str) else bytes(value or b"")
    keep.append(b)
    v.p = <const uint8_t*><const char*>b
    v.n = <uint32_t>len(b)
    return v
