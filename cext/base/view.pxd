# A pointer and a length into memory of another object. It is valid as long as that memory: a view into a decoded packet until its
# handler returns, a view into settings until the next reload.
from libc.stdint cimport uint8_t, uint32_t

ctypedef struct View:
    const uint8_t* p
    uint32_t n                  # bytes
