"""Recognise when a ClientHello [RFC 8446 4.1.2] is complete. This module knows records and the header of a handshake message, and no
OpenSSL.

OpenSSL allocates its state at the first byte, and room for the announced size at the first header: 100 kB of a ClientHello cost 164 kB,
and 5 bytes that announce 128 KiB cost as much. So a connection gets its SSL only when its ClientHello is whole. Cost: one walk over the
headers of the records that have arrived.
"""

from libc.stdint cimport uint8_t, uint32_t

cdef enum:
    HELLO_RECORD_HEADER = 5
    HELLO_MESSAGE_HEADER = 4
    HELLO_RECORD = 22
    CLIENT_HELLO = 1


cdef int hello_state(const uint8_t* p, size_t n) noexcept nogil:
    cdef uint8_t header[4]
    cdef uint32_t size, i
    cdef size_t at = 0, have = 0, want = HELLO_MESSAGE_HEADER
    while n - at >= HELLO_RECORD_HEADER:
        if p[at] != HELLO_RECORD:
            return HELLO_WHOLE           # an alert, an old protocol, or no TLS
        size = <uint32_t>p[at + 3] << 8 | p[at + 4]
        if size == 0 or size > 16384 + 256:
            return HELLO_WHOLE
        at += HELLO_RECORD_HEADER
        i = 0
        while have + i < HELLO_MESSAGE_HEADER and i < size and at + i < n:
            header[have + i] = p[at + i]
            i += 1
        have += size if size <= n - at else n - at
        if have >= HELLO_MESSAGE_HEADER:
            if header[0] != CLIENT_HELLO:
                return HELLO_WHOLE
            want = HELLO_MESSAGE_HEADER + (<size_t>header[1] << 16 | <size_t>header[2] << 8 | header[3])
            if want > HELLO_BYTES_MAX:
                return HELLO_TOO_LARGE
        if have >= want and size <= n - at:
            return HELLO_WHOLE           # the record that ends the message is complete, too
        if size > n - at:
            break
        at += size
    if n and p[0] != HELLO_RECORD:
        return HELLO_WHOLE
    return HELLO_PART if n < HELLO_BYTES_MAX else HELLO_TOO_LARGE
