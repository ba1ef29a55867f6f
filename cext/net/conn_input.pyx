"""Read from connections and pass the input to their owners. This module knows sockets, buffers and the layers in between, but not
the meaning of the bytes.

    small frames:  recv -> arena -> (WebSocket, TLS) -> on_input; the unfinished rest is copied into a buffer of the connection
    large frames:  readv -> the frame's own buffer, and the arena for the bytes after it -> on_input

Invariants: all reads use one arena, so an idle connection holds no buffer. No decrypted byte stays within a layer. Cost: one system
call per read; a large frame is not copied, except from TLS.
"""

from libc.errno cimport EAGAIN, EINTR, ENOMEM, EPROTO, errno
from libc.stdint cimport uint32_t, uint64_t, uint8_t
from libc.string cimport memcpy, memmove

from cext.base.buffer cimport buffer_give, buffer_take
from cext.net.conn cimport conn_drop_input, conn_gone, conn_mark_dirty, conn_report_open
from cext.net.conn_state cimport (
    ARENA_BYTES, ARENA_MARGIN, CONN_CLOSED, CONN_CLOSING, CONN_DIRTY, CONN_OPENING, CONN_PAUSED, CONN_READY,
    CONN_SMALL, Conn, INPUT_FIRST_BYTES, NOTHING, Reactor, SMALL_FIRST_BYTES, SMALL_READ_BYTES, count_in,
)
from cext.net.proxy cimport PROXY_V2_BYTES_MAX, Proxied
from cext.net.system cimport MSG_PEEK, iovec, readv, recv
from cext.net.web cimport (
    WEB_BAD_PROXY, WEB_MORE, WEB_NO_MEMORY, WEB_OPEN, WEB_PLAIN, WEB_PROXY, WEB_REFUSED, WEB_UPGRADE, web_free,
    web_proxy_wants, web_stage_end, web_take,
)
from cext.net.websocket cimport WS_CLOSED, WS_FAILED, ws_decode


cdef ssize_t conn_receive(Reactor* r, Conn* c, uint8_t* p, size_t n) noexcept nogil:
    """Read bytes for the owner. Return their number, 0 if the peer closed, -1 with errno, or NOTHING
    if no bytes are for the owner."""
    cdef ssize_t got
    if c.transport != NULL and not c.flags & CONN_CLOSING:
        got = c.transport.ops.receive(r, c, p, n)
    else:
        got = recv(c.fd, p, n, 0)
    if got > 0:
        count_in(r, c, <uint64_t>got)
        if c.web != NULL and not c.flags & CONN_CLOSING:
            return web_input(r, c, p, <size_t>got)
    return got


cdef void conn_read(Reactor* r, Conn* c) noexcept nogil:
    cdef ssize_t got
    cdef uint32_t have = c.in_len - c.in_off
    if c.web != NULL and c.web.stage == WEB_PROXY and not c.flags & CONN_CLOSING:
        read_proxy(r, c)
        return
    if have > ARENA_MARGIN or c.in_need > ARENA_MARGIN:
        read_large(r, c)
        conn_check_end(r, c)
        return
    # a layer of TLS gets the whole arena, because no decrypted byte may stay in it
    got = conn_receive(r, c, r.arena, SMALL_READ_BYTES if c.flags & CONN_SMALL and c.transport == NULL else ARENA_BYTES)
    if c.flags & CONN_OPENING and c.transport != NULL and c.transport.open and conn_report_open(r, c):
        return
    if got <= 0:
        read_failed(r, c, got)
        conn_check_end(r, c)
        return
    c.rx_ms = r.now_ms
    if c.flags & CONN_CLOSING:
        return                  # read only so that the peer sees an orderly end and not a reset
    cdef uint8_t* p = r.arena - have
    if have:
        memcpy(p, c.in_buf + c.in_off, have)
        conn_drop_input(r, c)
    feed_arena(r, c, p, have + <size_t>got)
    conn_check_end(r, c)


cdef void read_failed(Reactor* r, Conn* c, ssize_t got) noexcept nogil:
    if got == 0:
        conn_gone(r, c, 0)
    elif got != NOTHING and errno != EAGAIN and errno != EINTR:
        conn_gone(r, c, errno)


# ---------------------------------------------------------------- small frames

cdef void feed_arena(Reactor* r, Conn* c, const uint8_t* p, size_t n) noexcept nogil:
    """Pass input in the arena to the owner, and copy the rest into the connection's own buffer."""
    cdef size_t used = r.on_input(r.ctx, c, p, n)
    cdef size_t left = n - used
    if left == 0 or c.flags & (CONN_CLOSED | CONN_CLOSING):
        return
    input_store(r, c, p + used, left)


cdef void input_store(Reactor* r, Conn* c, const uint8_t* p, size_t n) noexcept nogil:
    """Append input to the connection's own buffer."""
    cdef uint32_t have = c.in_len - c.in_off
    cdef size_t want = have + n
    cdef uint32_t cap
    cdef uint8_t* q
    if c.in_buf == NULL or c.in_cap - c.in_len < n:
        q = buffer_take(&r.buffers, want, &cap)
        if q == NULL:
            conn_gone(r, c, ENOMEM)
            return
        if have:
            memcpy(q, c.in_buf + c.in_off, have)
        if c.in_buf != NULL:
            buffer_give(&r.buffers, c.in_buf, c.in_cap)
        c.in_buf = q
        c.in_cap = cap
        c.in_off = 0
        c.in_len = have
    memcpy(c.in_buf + c.in_len, p, n)
    c.in_len += <uint32_t>n


cdef void conn_feed(Reactor* r, Conn* c) noexcept nogil:
    cdef uint32_t have = c.in_len - c.in_off
    cdef size_t used = r.on_input(r.ctx, c, c.in_buf + c.in_off, have)
    if c.in_buf == NULL:
        return                  # closed, or taken by conn_steal_input
    c.in_off += <uint32_t>used
    if c.in_off == c.in_len:
        conn_drop_input(r, c)


# ---------------------------------------------------------------- large frames

cdef int room_for_frame(Reactor* r, Conn* c) noexcept nogil:
    """Make the buffer large enough for the unfinished frame; only for its first part until that has arrived."""
    cdef uint32_t have = c.in_len - c.in_off
    cdef uint32_t want = c.in_need if have >= INPUT_FIRST_BYTES or c.in_need <= INPUT_FIRST_BYTES else INPUT_FIRST_BYTES
    cdef uint32_t cap
    if c.flags & CONN_SMALL:
        cap = 2 * have if have > SMALL_FIRST_BYTES // 2 else SMALL_FIRST_BYTES
        want = c.in_need if c.in_need < cap else cap
    cdef uint8_t* q
    if c.in_cap >= want and c.in_off == 0:
        return 0
    if c.in_cap >= want:
        memmove(c.in_buf, c.in_buf + c.in_off, have)
    else:
        q = buffer_take(&r.buffers, want, &cap)
        if q == NULL:
            return -1
        memcpy(q, c.in_buf + c.in_off, have)
        buffer_give(&r.buffers, c.in_buf, c.in_cap)
        c.in_buf = q
        c.in_cap = cap
    c.in_off = 0
    c.in_len = have
    return 0


cdef void read_large(Reactor* r, Conn* c) noexcept nogil:
    """Read the rest of a large frame into its own buffer, and the bytes after it into the arena, in one call."""
    cdef iovec iov[2]
    cdef ssize_t got
    cdef size_t first
    cdef int n_iov = 1
    if c.in_cap < c.in_need and c.in_len - c.in_off >= INPUT_FIRST_BYTES:
        conn_feed(r, c)          # the owner decides again before the buffer grows: memory may be short by now
        if c.in_buf == NULL or c.flags & (CONN_CLOSED | CONN_CLOSING):
            return
    if room_for_frame(r, c) != 0:
        conn_gone(r, c, ENOMEM)
        return
    if c.transport != NULL:
        read_large_tls(r, c)
        return
    if c.web != NULL:
        read_large_web(r, c)
        return
    first = (c.in_need if c.in_cap >= c.in_need else c.in_cap) - c.in_len
    iov[0].iov_base = c.in_buf + c.in_len
    iov[0].iov_len = first
    if c.in_cap >= c.in_need and not c.flags & CONN_SMALL:
        iov[1].iov_base = r.arena
        iov[1].iov_len = ARENA_BYTES
        n_iov = 2
    got = readv(c.fd, iov, n_iov)
    if got <= 0:
        read_failed(r, c, got)
        return
    count_in(r, c, <uint64_t>got)
    c.rx_ms = r.now_ms
    if <size_t>got < first:
        c.in_len += <uint32_t>got
        return
    c.in_len += <uint32_t>first
    got -= <ssize_t>first
    if c.in_len < c.in_need:
        return                  # the first part is full: the next read makes room for the rest
    large_done(r, c, r.arena, <size_t>got)


cdef void large_done(Reactor* r, Conn* c, const uint8_t* p, size_t n) noexcept nogil:
    """Handle a complete large frame. The n bytes at p, in the arena, follow it."""
    conn_feed(r, c)
    if n == 0 or c.flags & (CONN_CLOSED | CONN_CLOSING):
        return
    if c.in_buf != NULL:
        input_store(r, c, p, n)
    elif c.flags & (CONN_PAUSED | CONN_READY):
        c.in_need = 0
        input_store(r, c, p, n)
    else:
        feed_arena(r, c, p, n)


cdef void read_large_tls(Reactor* r, Conn* c) noexcept nogil:
    """Decrypt in the arena, because nothing may stay within the layer, and copy the large frame's part into its own buffer."""
    cdef uint8_t* p = r.arena
    cdef ssize_t got = conn_receive(r, c, p, ARENA_BYTES)
    cdef size_t left, n
    if got <= 0:
        read_failed(r, c, got)
        return
    c.rx_ms = r.now_ms
    if c.flags & CONN_CLOSING:
        return
    left = <size_t>got
    while left:
        if room_for_frame(r, c) != 0:
            conn_gone(r, c, ENOMEM)
            return
        n = (c.in_need if c.in_cap >= c.in_need else c.in_cap) - c.in_len
        n = n if n < left else left
        memcpy(c.in_buf + c.in_len, p, n)
        c.in_len += <uint32_t>n
        p += n
        left -= n
        if c.in_len >= c.in_need:
            large_done(r, c, p, left)
            return


cdef void read_large_web(Reactor* r, Conn* c) noexcept nogil:
    """Read into the large frame's own buffer: the payloads of WebSocket frames are moved together there, and the bytes after the
    large frame stay in the socket."""
    cdef uint32_t first = (c.in_need if c.in_cap >= c.in_need else c.in_cap) - c.in_len
    cdef ssize_t got = conn_receive(r, c, c.in_buf + c.in_len, first)
    if got <= 0:
        read_failed(r, c, got)
        return
    c.rx_ms = r.now_ms
    c.in_len += <uint32_t>got
    if c.in_len >= c.in_need:
        conn_feed(r, c)


cdef uint8_t* conn_steal_input(Conn* c, const uint8_t* p, uint32_t n, uint32_t* cap) noexcept nogil:
    cdef uint8_t* q = c.in_buf
    if q == NULL or p != q or c.in_off != 0 or c.in_len != n:
        return NULL
    cap[0] = c.in_cap
    c.in_buf = NULL
    c.in_len = c.in_cap = c.in_need = 0
    return q


# ---------------------------------------------------------------- layers

cdef void read_proxy(Reactor* r, Conn* c) noexcept nogil:
    """Take the header and not a byte more, because the bytes after it may be for TLS."""
    cdef Proxied proxied
    cdef size_t used
    cdef int found
    cdef ssize_t got = recv(c.fd, r.arena, PROXY_V2_BYTES_MAX, MSG_PEEK)
    if got > 0:
        got = recv(c.fd, r.arena, web_proxy_wants(c.web, r.arena, <size_t>got), 0)
    if got <= 0:
        read_failed(r, c, got)
        return
    count_in(r, c, <uint64_t>got)
    found = web_take(&r.buffers, c, r.arena, <size_t>got, &used, &proxied)
    if found == WEB_MORE:
        return
    if found == WEB_NO_MEMORY:
        conn_gone(r, c, ENOMEM)
        return
    if r.on_proxied(r.ctx, c, NULL if found == WEB_BAD_PROXY else &proxied) != 0:
        return
    web_stage_end(&r.buffers, c)
    if c.web.stage == WEB_PLAIN:
        web_free(&r.buffers, c)


cdef bint web_upgrade(Reactor* r, Conn* c, uint8_t* p, size_t n, size_t* left) noexcept nogil:
    """Return 1 if the request is complete and WebSocket frames begin; the `left` bytes of them that came with it are at p."""
    cdef Proxied _
    cdef uint32_t before = c.out_bytes
    cdef size_t used
    cdef int found = web_take(&r.buffers, c, p, n, &used, &_)
    r.unsent_bytes += c.out_bytes - before
    if found == WEB_MORE:
        return 0
    if found == WEB_NO_MEMORY:
        conn_gone(r, c, ENOMEM)
        return 0
    if not c.flags & CONN_DIRTY:
        conn_mark_dirty(r, c)
    r.on_upgraded(r.ctx, c, &c.web.parser.upgrade, p if c.web.request == NULL else c.web.request)
    if found == WEB_REFUSED:
        return 0
    web_stage_end(&r.buffers, c)
    memmove(p, p + used, n - used)
    left[0] = n - used
    return 1


cdef ssize_t web_input(Reactor* r, Conn* c, uint8_t* p, size_t n) noexcept nogil:
    """Return how many of the n bytes at p are for the owner, moved together there."""
    cdef size_t left = n
    cdef size_t found = 0
    if not c.web.over and (c.web.stage == WEB_OPEN or (c.web.stage == WEB_UPGRADE and web_upgrade(r, c, p, n, &left))):
        found = ws_decode(&c.web.parser.ws, p, left)
        c.web.over = c.web.parser.ws.state == WS_CLOSED or c.web.parser.ws.state == WS_FAILED
        if c.web.parser.ws.ping_due and not c.flags & CONN_DIRTY:
            conn_mark_dirty(r, c)
    return <ssize_t>found if found else NOTHING


cdef void conn_check_end(Reactor* r, Conn* c) noexcept nogil:
    """End a connection after the peer's last bytes, or after an error in a layer, once the owner has taken all input that it can.
    """
    if (c.web == NULL and c.transport == NULL) or c.flags & (CONN_CLOSED | CONN_CLOSING | CONN_PAUSED | CONN_READY):
        return
    if c.web != NULL and c.web.over:
        conn_gone(r, c, EPROTO if c.web.parser.ws.state == WS_FAILED else 0)
    elif c.transport != NULL and c.transport.over:
        conn_gone(r, c, c.transport.error)
