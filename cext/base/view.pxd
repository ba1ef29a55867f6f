# A borrowed run of bytes. Valid only as long as the memory it points into: never kept over a turn.
from libc.stdint cimport uint8_t, uint32_t

ctypedef struct View:
    const uint8_t* p
    uint32_t n                  # bytes
