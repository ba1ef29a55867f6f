"""Handle a PROXY header, an HTTP upgrade and WebSocket frames between the socket and the owner. This module knows the structs of
a connection and the sans-IO parsers. It makes no system call, and does not know the meaning of the payload.

    WEB_PROXY --header--> WEB_UPGRADE --request--> WEB_OPEN         (either may be left out; after a PROXY header alone: WEB_PLAIN)

Output is in Segs as for any connection. Before they are sent, web_frame writes one header for all Segs without a frame, into room
that was reserved in front of them, and seals the last Seg, so that later output gets its own header. So the data of one flush is
one frame, nothing is copied, and the sending code knows nothing of frames.
Invariants: only an unfinished request is stored, up to its allowed size; at most one Pong per flush. Cost: 10 bytes of room a
turn; a few stores per flush; about 230 bytes for each connection.
"""

from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memchr, memcpy, memset

from cext.base.buffer cimport Buffers, buffer_give, buffer_take
from cext.net.proxy cimport PROXY_BAD, PROXY_DONE, PROXY_V2_HEAD_BYTES, Proxied, proxy_read
from cext.net.conn_state cimport CONN_CLOSING, Conn, Seg, Web
from cext.net.upgrade cimport (
    UPGRADE_ANSWER_MAX, UPGRADE_DONE, UPGRADE_MORE, UPGRADE_SIZE_MAX, UpgradeRules, upgrade_answer, upgrade_read,
)
from cext.net.websocket cimport (
    WS_BINARY, WS_CLOSED, WS_CLOSE_SIZE_MAX, WS_FAILED, WS_HEAD_SIZE_MAX, WS_NORMAL, WS_PONG_SIZE_MAX, WsDecoder, ws_close_put,
    ws_head_put, ws_head_size, ws_pong_put,
)


cdef Web* web_new(int proxy_version, const UpgradeRules* rules) noexcept nogil:
    cdef Web* w = <Web*>calloc(1, sizeof(Web))
    if w == NULL:
        return NULL
    w.proxy_version = <uint8_t>proxy_version
    w.rules = rules
    w.close_status = WS_NORMAL
    w.stage = WEB_PROXY if proxy_version else WEB_UPGRADE if rules != NULL else WEB_PLAIN
    return w


cdef void web_free(Buffers* b, Conn* c) noexcept nogil:
    if c.web != NULL:
        web_request_drop(b, c.web)
        free(c.web)
        c.web = NULL


# ---------------------------------------------------------------- header and request

cdef void web_request_drop(Buffers* b, Web* w) noexcept nogil:
    if w.request != NULL:
        buffer_give(b, w.request, w.request_cap)
        w.request = NULL
    w.request_n = w.request_cap = 0


cdef int request_keep(Buffers* b, Web* w, const uint8_t* p, size_t n) noexcept nogil:
    cdef uint32_t cap
    cdef uint8_t* q
    if w.request == NULL or w.request_cap - w.request_n < n:
        q = buffer_take(b, w.request_n + n, &cap)
        if q == NULL:
            return -1
        if w.request_n:
            memcpy(q, w.request, w.request_n)
        if w.request != NULL:
            buffer_give(b, w.request, w.request_cap)
        w.request = q
        w.request_cap = cap
    memcpy(w.request + w.request_n, p, n)
    w.request_n += <uint32_t>n
    return 0


cdef size_t web_proxy_wants(const Web* w, const uint8_t* p, size_t n) noexcept nogil:
    """Never return more than the header, because the bytes after it may be for TLS. Version 1 ends with its line,
    version 2 contains its length."""
    cdef const uint8_t* end
    cdef size_t want
    if w.proxy_version == 1:
        end = <const uint8_t*>memchr(p, c'\n', n)
        return <size_t>(end - p) + 1 if end != NULL else n
    want = w.proxy_need if w.proxy_need else PROXY_V2_HEAD_BYTES
    want -= w.request_n
    return want if want < n else n


cdef int proxy_take(Buffers* b, Conn* c, const uint8_t* p, size_t n, Proxied* proxied) noexcept nogil:
    cdef Web* w = c.web
    cdef int found
    if w.request != NULL:
        if request_keep(b, w, p, n) != 0:
            return WEB_NO_MEMORY
        p = w.request
        n = w.request_n
    found = proxy_read(w.proxy_version, p, n, proxied)
    w.proxy_need = proxied.size
    if found == PROXY_BAD:
        return WEB_BAD_PROXY
    if found != PROXY_DONE:
        return WEB_MORE if w.request != NULL or request_keep(b, w, p, n) == 0 else WEB_NO_MEMORY
    return WEB_PROXIED          # its views point into p: the owner reads them before the stage ends


cdef int upgrade_take(Buffers* b, Conn* c, const uint8_t* p, size_t n, size_t* used) noexcept nogil:
    cdef Web* w = c.web
    cdef uint32_t before = w.request_n
    cdef size_t limit = w.rules.size_max if w.rules.size_max < UPGRADE_SIZE_MAX else UPGRADE_SIZE_MAX
    # One byte more than allowed shows that the request is too large.
    cdef size_t room = limit + 1 - before if before <= limit else 1
    cdef int status
    if n > room:
        n = room
    used[0] = n
    if w.request != NULL:
        if request_keep(b, w, p, n) != 0:
            return WEB_NO_MEMORY
        p = w.request
        n = w.request_n
    status = upgrade_read(&w.parser.upgrade, p, n, w.rules)
    if status == UPGRADE_MORE:
        return WEB_MORE if w.request != NULL or request_keep(b, w, p, n) == 0 else WEB_NO_MEMORY
    if (status == UPGRADE_DONE or not w.rules.compat) and answer_put(b, c, status) != 0:
        return WEB_NO_MEMORY
    if status != UPGRADE_DONE:
        return WEB_REFUSED
    used[0] = w.parser.upgrade.size - before
    return WEB_UPGRADED


cdef int answer_put(Buffers* b, Conn* c, int status) noexcept nogil:
    cdef Seg* s = seg_new(b, UPGRADE_ANSWER_MAX)
    cdef uint8_t* p
    if s == NULL:
        return -1
    p = <uint8_t*>s.p
    s.len = <uint32_t>(upgrade_answer(p, &c.web.parser.upgrade, status) - p)
    framed_add(c, s)
    return 0


cdef int web_take(Buffers* b, Conn* c, const uint8_t* p, size_t n, size_t* used, Proxied* proxied) noexcept nogil:
    used[0] = n
    return proxy_take(b, c, p, n, proxied) if c.web.stage == WEB_PROXY else upgrade_take(b, c, p, n, used)


cdef void web_stage_end(Buffers* b, Conn* c) noexcept nogil:
    cdef Web* w = c.web
    if w.stage == WEB_PROXY:
        web_request_drop(b, w)
        w.stage = WEB_UPGRADE if w.rules != NULL else WEB_PLAIN
    else:
        web_request_drop(b, w)
        memset(&w.parser, 0, sizeof(w.parser))
        w.stage = WEB_OPEN


# ---------------------------------------------------------------- output

cdef Seg* seg_new(Buffers* b, size_t n) noexcept nogil:
    cdef uint32_t cap
    cdef uint8_t* p = buffer_take(b, sizeof(Seg) + n, &cap)
    cdef Seg* s = <Seg*>p
    if p == NULL:
        return NULL
    memset(s, 0, sizeof(Seg))
    s.p = p + sizeof(Seg)
    s.buffer_cap = cap
    return s


cdef void framed_add(Conn* c, Seg* s) noexcept nogil:
    """Append a whole frame, or data that needs none. All output before it is framed."""
    s.next = NULL
    s.cap = s.len
    if c.out_tail == NULL:
        c.out_head = s
    else:
        c.out_tail.next = s
    c.out_tail = s
    c.out_bytes += s.len
    c.web.framed += s.len
    c.web.framed_tail = s


cdef int frame_head_put(Buffers* b, Conn* c) noexcept nogil:
    """Write one header in front of all output without a frame."""
    cdef Web* w = c.web
    cdef Seg* before = w.framed_tail if w.framed else NULL
    cdef Seg* s = before.next if before != NULL else c.out_head
    cdef uint32_t n = c.out_bytes - w.framed
    cdef uint32_t size = ws_head_size(n)
    cdef Seg* h
    if s.buffer_cap and <size_t>(s.p - <uint8_t*>s) - sizeof(Seg) >= size:
        s.p -= size
        s.len += size
        s.cap += size
        ws_head_put(<uint8_t*>s.p, WS_BINARY, n)
    else:
        h = seg_new(b, WS_HEAD_SIZE_MAX)
        if h == NULL:
            return -1
        ws_head_put(<uint8_t*>h.p, WS_BINARY, n)
        h.len = size
        h.next = s
        if before != NULL:
            before.next = h
        else:
            c.out_head = h
    c.out_bytes += size
    w.framed = c.out_bytes
    w.framed_tail = c.out_tail
    c.out_tail.cap = c.out_tail.len          # seal: no more output fits into this Seg
    return 0


cdef int web_frame(Buffers* b, Conn* c) noexcept nogil:
    cdef Web* w = c.web
    cdef WsDecoder* d = &w.parser.ws
    cdef Seg* s
    if w.stage != WEB_OPEN or w.close_sent:
        return 0
    if c.out_bytes > w.framed and frame_head_put(b, c) != 0:
        return -1
    if d.ping_due:
        s = seg_new(b, WS_PONG_SIZE_MAX)
        if s == NULL:
            return -1
        s.len = <uint32_t>(ws_pong_put(<uint8_t*>s.p, d) - s.p)
        framed_add(c, s)
    if c.flags & CONN_CLOSING:
        s = seg_new(b, WS_CLOSE_SIZE_MAX)
        if s == NULL:
            return -1
        s.len = <uint32_t>(ws_close_put(<uint8_t*>s.p, d.code if d.state == WS_CLOSED or d.state == WS_FAILED else w.close_status) - s.p)
        framed_add(c, s)
        w.close_sent = 1
    return 0
