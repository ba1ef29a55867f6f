# The state of a connection whose bytes are not plain MQTT from the start: a PROXY header, an HTTP upgrade, and then WebSocket
# frames around all data. This module works on a Conn's structs; the reactor calls it between the socket (or TLS) and the owner.
from libc.stdint cimport uint8_t
from cext.base.buffer cimport Buffers
from cext.net.proxy cimport Proxied
from cext.net.conn_state cimport Conn, Web
from cext.net.upgrade cimport UpgradeRules

cdef enum WebStage:
    WEB_PLAIN = 0               # no layer: the bytes belong to the owner
    WEB_PROXY = 1               # a PROXY header comes first
    WEB_UPGRADE = 2             # an HTTP request comes first
    WEB_OPEN = 3                # WebSocket frames

cdef enum:
    # results of web_take
    WEB_MORE = 0
    WEB_PROXIED = 1             # the PROXY header is whole; `proxied` is valid until web_stage_end
    WEB_BAD_PROXY = 2
    WEB_UPGRADED = 3            # the answer is queued
    WEB_REFUSED = 4             # the answer, if any, is queued, and the connection must end
    WEB_NO_MEMORY = 5

# Rules NULL: no WebSocket; returns NULL if there is no memory.
cdef Web* web_new(int proxy_version, const UpgradeRules* rules) noexcept nogil
cdef void web_free(Buffers* b, Conn* c) noexcept nogil
cdef void web_request_drop(Buffers* b, Web* w) noexcept nogil       # the request is not read any more
# Return how many of the n bytes at p, which are still in the socket, belong to the PROXY header: at least 1.
cdef size_t web_proxy_wants(const Web* w, const uint8_t* p, size_t n) noexcept nogil
# Take the n bytes at p before the frames, or the part that belongs to the header or request; `used` gets the number of bytes.
cdef int web_take(Buffers* b, Conn* c, const uint8_t* p, size_t n, size_t* used, Proxied* proxied) noexcept nogil
cdef void web_stage_end(Buffers* b, Conn* c) noexcept nogil         # after PROXIED or UPGRADED: frees the request's memory
# Put frames around all data that waits to be sent, and append a Pong or a Close if one is due. Return -1 if there is no memory.
cdef int web_frame(Buffers* b, Conn* c) noexcept nogil
