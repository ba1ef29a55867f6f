# A borrowed run of bytes. It is valid as long as the memory that it points into, so it is never kept over a turn.
from libc.stdint cimport uint8_t, uint32_t

ctypedef struct View:
    const uint8_t* p
    uint32_t n                  # bytes
