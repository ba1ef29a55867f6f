# The client's side of a WebSocket [RFC 6455], sans-IO: frames as a client sends them, and the answer to its handshake.
from libc.stdint cimport uint8_t, uint32_t

cdef enum:
    WEB_EXTRA = 14              # around a payload in a frame, at most
    WEB_ANSWER_MAX = 8192       # bytes of the answer's head
    WEB_ACCEPT_SIZE = 28

cdef enum:                      # what web_answer returns, beside the HTTP status of an answer that is whole
    WEB_MORE = -1
    WEB_NO_HTTP = 0
    WEB_OTHER_KEY = 1           # 101, and not to our request

# p: the answer from its first byte, n: what of it has come. *size: of its head, when it is whole
cdef int web_answer(const uint8_t* p, uint32_t n, const uint8_t* accept, uint32_t* size) noexcept nogil
# A final, masked frame; out has room for WEB_EXTRA more than n. Its end
cdef uint8_t* web_frame_put(uint8_t* out, int opcode, const uint8_t* p, size_t n, uint32_t mask) noexcept nogil
