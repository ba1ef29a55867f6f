# The server's proof that it understood a WebSocket handshake [RFC 6455 4.2.2]: 28 bytes of base64 for the client's 24.
from libc.stdint cimport uint8_t

cdef enum:
    WS_KEY_SIZE = 24            # 16 bytes in base64
    WS_ACCEPT_SIZE = 28         # 20 bytes in base64

# Write WS_ACCEPT_SIZE bytes to `out` for a key of WS_KEY_SIZE bytes.
cdef void ws_accept(uint8_t* out, const uint8_t* key) noexcept nogil
