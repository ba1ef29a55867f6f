# The head of a relayed connection, sans-IO: a broker's report about the client whose bytes follow. See relay_head.pyx.
from libc.stdint cimport uint8_t, uint16_t, uint32_t
from cext.base.view cimport View

cdef enum:
    RELAY_HEAD_BAD = -1
    RELAY_HEAD_MORE = 0
    RELAY_HEAD_DONE = 1

cdef enum:
    RELAY_HEAD_VERSION = 2
    RELAY_HEAD_BYTES = 48       # of this version, without the names
    RELAY_HEAD_BYTES_MAX = 256  # of a later version
    RELAY_NAME_MAX = 1024       # bytes of a user name from a certificate
    RELAY_PATH_MAX = 108        # bytes of a Unix socket's path

ctypedef struct RelayHead:
    # RELAY_HEAD_DONE: bytes of the head with its names; RELAY_HEAD_MORE: bytes that it needs, 0 = unknown; RELAY_HEAD_BAD: 0
    uint32_t size
    uint32_t origin             # of the listener; it names one that has no port
    uint32_t kind               # of the listener: a number for its decisions about clients; 0: version 1 has none
    uint32_t login_ms           # time that is left for the login
    uint16_t listener_port      # 0: a Unix socket
    uint8_t websockets          # 1: the listener has WebSockets
    uint8_t tls                 # 1: the listener has TLS
    uint8_t family              # of the client's address: AF_INET, AF_INET6, AF_UNIX; 0 = none
    uint8_t by_proxy            # 1: a proxy has reported the address
    uint16_t port               # the client's port
    uint8_t ip[16]
    View name                   # the user name that TLS or a proxy has proved; this and the next one: views into the head; n 0 = none
    View path                   # the client's Unix socket

# Read a head. p: the first n bytes of the connection.
cdef int relay_head_read(const uint8_t* p, size_t n, RelayHead* out) noexcept nogil
# Return the bytes of a head with its names, and write exactly that many; 0: a name is too long.
cdef uint32_t relay_head_size(const RelayHead* h) noexcept nogil
cdef void relay_head_put(uint8_t* out, const RelayHead* h) noexcept nogil
