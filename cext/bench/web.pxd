# The client's side of a WebSocket [RFC 6455], without I/O: frames as a client sends them, and the answer to its handshake.
from libc.stdint cimport uint8_t, uint32_t

cdef enum:
    WEB_EXTRA = 14              # most bytes around a payload in a frame
    WEB_ANSWER_MAX = 8192       # limit of the answer's head in bytes
    WEB_ACCEPT_SIZE = 28

cdef enum:                      # results of web_answer besides the HTTP status of a complete answer
    WEB_CLIENT_MORE = -1
    WEB_NO_HTTP = 0
    WEB_OTHER_KEY = 1           # status 101 for another request

# p: the answer from its first byte, of which n bytes arrived. *size: size of its head when it is complete.
cdef int web_answer(const uint8_t* p, uint32_t n, const uint8_t* accept, uint32_t* size) noexcept nogil
# Write a final, masked frame. out has room for n + WEB_EXTRA bytes. Return its end.
cdef uint8_t* web_frame_put(uint8_t* out, int opcode, const uint8_t* p, size_t n, uint32_t mask) noexcept nogil
