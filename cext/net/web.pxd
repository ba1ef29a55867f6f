# What a connection has beside its socket when its bytes are not plain MQTT from the first one on: a PROXY header, an HTTP upgrade, and then
# WebSocket frames around everything. Works on a Conn's structs; the reactor calls it between the socket (or TLS) and the owner.
from libc.stdint cimport uint8_t
from cext.base.buffer cimport Buffers
from cext.net.proxy cimport Proxied
from cext.net.reactor cimport Conn, Web
from cext.net.upgrade cimport UpgradeRules

cdef enum WebStage:
    WEB_PLAIN = 0               # nothing to do any more: the bytes are the owner's
    WEB_PROXY = 1               # a PROXY header comes first
    WEB_UPGRADE = 2             # an HTTP request comes first
    WEB_OPEN = 3                # WebSocket frames

cdef enum:
    # what web_take found
    WEB_MORE = 0
    WEB_PROXIED = 1             # the PROXY header is whole, and in `proxied`; valid until web_stage_end
    WEB_BAD_PROXY = 2
    WEB_UPGRADED = 3            # the answer is queued
    WEB_REFUSED = 4             # the answer is queued, the connection must end
    WEB_NO_MEMORY = 5

cdef Web* web_new(int proxy_version, const UpgradeRules* rules) noexcept nogil      # rules NULL: no WebSocket. NULL: no memory
cdef void web_free(Buffers* b, Conn* c) noexcept nogil
cdef void web_request_drop(Buffers* b, Web* w) noexcept nogil       # nothing of it will be read any more
# How much of the n bytes at p, which wait in the socket, still belongs to the PROXY header. At least 1.
cdef size_t web_proxy_wants(const Web* w, const uint8_t* p, size_t n) noexcept nogil
# Before the frames: takes the n bytes at p, or what of them belongs to the header or request; `used` says how many.
cdef int web_take(Buffers* b, Conn* c, const uint8_t* p, size_t n, size_t* used, Proxied* proxied) noexcept nogil
cdef void web_stage_end(Buffers* b, Conn* c) noexcept nogil         # after PROXIED or UPGRADED: the request's memory goes
# Puts frames around all that waits to be sent, and a Pong or a Close behind it where one is due. -1: no memory.
cdef int web_frame(Buffers* b, Conn* c) noexcept nogil
