# A WebSocket from the client's side [RFC 6455 4.1, 5.1], without I/O. This module knows frames and one kind of HTTP answer. The
# broker's decoder (cext/net/websocket) reads incoming frames, with the setting that a server does not mask.
# Cost: one pass over the output, which copies and masks it at once.
from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memcmp, memcpy

from cext.net.websocket cimport ws_head_put, ws_unmask

cdef extern from "<strings.h>" nogil:
    int strncasecmp(const char* a, const char* b, size_t n)

cdef extern from * nogil:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <string.h>
    extern void *memmem(const void *, size_t, const void *, size_t);
    """
    void* memmem(const void* p, size_t n, const void* what, size_t size)

cdef enum:
    STATUS_SIZE = 12            # HTTP/1.1 101
    NAME_SIZE = 21              # Sec-WebSocket-Accept:


cdef uint8_t* web_frame_put(uint8_t* out, int opcode, const uint8_t* p, size_t n, uint32_t mask) noexcept nogil:
    cdef uint8_t* at = ws_head_put(out, opcode, n)
    out[1] |= 0x80
    memcpy(at, &mask, 4)
    ws_unmask(at + 4, p, n, mask)
    return at + 4 + n


cdef bint has_accept_line(const uint8_t* p, uint32_t n, const uint8_t* accept) noexcept nogil:
    """Return whether this head contains a line `Sec-WebSocket-Accept: ACCEPT`."""
    cdef const uint8_t* end = p + n
    cdef const uint8_t* line = <const uint8_t*>memmem(p, n, b"\r\n", 2)
    while line != NULL:
        line += 2
        if end - line >= NAME_SIZE and strncasecmp(<const char*>line, b"Sec-WebSocket-Accept:", NAME_SIZE) == 0:
            line += NAME_SIZE
            while line < end and (line[0] == c' ' or line[0] == c'\t'):
                line += 1
            return end - line > WEB_ACCEPT_SIZE and memcmp(line, accept, WEB_ACCEPT_SIZE) == 0
        line = <const uint8_t*>memmem(line, <size_t>(end - line), b"\r\n", 2)
    return False


cdef int web_answer(const uint8_t* p, uint32_t n, const uint8_t* accept, uint32_t* size) noexcept nogil:
    cdef const uint8_t* end
    cdef int status = 0, i
    if memcmp(p, b"HTTP/1.", 7 if n > 7 else n) != 0:
        return WEB_NO_HTTP
    end = <const uint8_t*>memmem(p, n, b"\r\n\r\n", 4)
    if end == NULL:
        return WEB_NO_HTTP if n >= WEB_ANSWER_MAX else WEB_CLIENT_MORE
    size[0] = <uint32_t>(end + 4 - p)
    for i in range(9, STATUS_SIZE):
        if size[0] < STATUS_SIZE or not c'0' <= p[i] <= c'9':
            return WEB_NO_HTTP
        status = status * 10 + p[i] - c'0'
    if status < 100:
        return WEB_NO_HTTP
    return WEB_OTHER_KEY if status == 101 and not has_accept_line(p, size[0], accept) else status
