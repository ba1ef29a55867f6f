# Recognise when a ClientHello is complete, before OpenSSL sees a byte of it.
from libc.stdint cimport uint8_t

cdef enum:
    HELLO_BYTES_MAX = 64 * 1024     # largest ClientHello with its record headers; usual ones have less than 4 KiB
    HELLO_PART = 0                  # more bytes are needed
    HELLO_WHOLE = 1                 # complete, or nothing that may become a ClientHello: OpenSSL decides
    HELLO_TOO_LARGE = -1

# p: the n first bytes of a connection.
cdef int hello_state(const uint8_t* p, size_t n) noexcept nogil
