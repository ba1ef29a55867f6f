"""Open, pause and close connections. This module knows sockets, epoll and the structs of a connection, but not the bytes.

    accepted socket:  conn_open -> reads and flushes -> conn_finish (sends the rest) or conn_close -> on_free at the end of the turn
    outbound socket:  conn_await -> conn_connected -> (the handshake) -> on_opened -> the same

Invariants: a closed connection stays allocated until the end of the turn, so that events and lists of this turn may still point to
it. on_opened is called at most once, and on_lost never before it. Cost: O(1), except for the Segs and layers that a close frees.
"""

from libc.errno cimport ECONNABORTED, ECONNRESET, ENOMEM, errno
from libc.stdint cimport uint32_t

from cext.base.buffer cimport buffer_give
from cext.net.conn_state cimport (
    Address, CONN_BLOCKED, CONN_CLOSED, CONN_CLOSING, CONN_CONNECTING, CONN_DEAF, CONN_DIRTY, CONN_HUNGRY, CONN_OPENING,
    CONN_PAUSED, CONN_READY, Conn, Reactor, SOURCE_CONN, Seg, TransportContext,
)
from cext.net.system cimport (
    EPOLLIN, EPOLLOUT, EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, SOL_SOCKET, SO_ERROR, c_close, epoll_ctl, epoll_event,
    getsockopt,
)
from cext.net.upgrade cimport UpgradeRules
from cext.net.web cimport web_free, web_new, web_request_drop


# ---------------------------------------------------------------- opening

cdef int conn_open(Reactor* r, Conn* c, int fd, const Address* a) noexcept nogil:
    return conn_register(r, c, fd, a, EPOLLIN)


cdef int conn_await(Reactor* r, Conn* c, int fd, const Address* a) noexcept nogil:
    cdef int err = conn_register(r, c, fd, a, EPOLLOUT)
    if err == 0:
        c.flags |= CONN_CONNECTING | CONN_OPENING
    return err


cdef int conn_register(Reactor* r, Conn* c, int fd, const Address* a, uint32_t events) noexcept nogil:
    cdef epoll_event e
    c.source = SOURCE_CONN
    c.fd = fd
    c.address = a[0]
    e.events = events
    e.data.ptr = c
    return errno if epoll_ctl(r.ep, EPOLL_CTL_ADD, fd, &e) != 0 else 0


cdef void conn_connected(Reactor* r, Conn* c) noexcept nogil:
    """Handle the end of a connect, successful or not."""
    cdef int err = 0
    cdef unsigned int size = sizeof(err)
    c.flags &= ~<uint32_t>CONN_CONNECTING
    if getsockopt(c.fd, SOL_SOCKET, SO_ERROR, &err, &size) != 0:
        err = errno
    if c.flags & CONN_CLOSING and not err:
        err = ECONNABORTED      # the owner closes already: no reason to wait for the peer's end
    c.rx_ms = r.now_ms
    if not err and conn_watch(r, c) != 0:
        err = errno
    if not err and c.transport != NULL:
        err = c.transport.ops.start(r, c)
    if err:
        conn_gone(r, c, err)
    elif c.transport == NULL:
        conn_report_open(r, c)


cdef bint conn_report_open(Reactor* r, Conn* c) noexcept nogil:
    """Report that the connection is open. Return 1 if the owner closed it."""
    c.flags &= ~<uint32_t>CONN_OPENING
    r.on_opened(r.ctx, c, 0)
    return c.flags & (CONN_CLOSED | CONN_CLOSING) != 0


cdef int conn_tls_context(Reactor* r, Conn* c, TransportContext* x) noexcept nogil:
    c.transport = x.begin(x, r, c)
    return 0 if c.transport != NULL else ENOMEM


cdef int conn_web(Conn* c, int proxy_version, const UpgradeRules* rules) noexcept nogil:
    c.web = web_new(proxy_version, rules)
    return 0 if c.web != NULL else ENOMEM


cdef int conn_watch(Reactor* r, Conn* c) noexcept nogil:
    cdef epoll_event e
    e.events = (0 if c.flags & CONN_DEAF else EPOLLIN) | (EPOLLOUT if c.flags & CONN_BLOCKED else 0)
    e.data.ptr = c
    return epoll_ctl(r.ep, EPOLL_CTL_MOD, c.fd, &e)


# ---------------------------------------------------------------- closing

cdef void conn_gone(Reactor* r, Conn* c, int err) noexcept nogil:
    """Report that the peer closed (0) or the socket failed (errno). If the owner does not know yet that c is
    open, report a failed opening."""
    if c.flags & CONN_OPENING:
        c.flags &= ~<uint32_t>CONN_OPENING
        r.on_opened(r.ctx, c, err if err else ECONNRESET)
    else:
        r.on_lost(r.ctx, c, err)


cdef void conn_close(Reactor* r, Conn* c) noexcept nogil:
    if c.flags & CONN_CLOSED:
        return
    c.flags |= CONN_CLOSED
    if c.transport != NULL:
        c.transport.ops.close(r, c)
        c.transport = NULL
    # A forked child may hold a copy of the descriptor: without this its events would continue.
    epoll_ctl(r.ep, EPOLL_CTL_DEL, c.fd, NULL)
    c_close(c.fd)
    c.fd = -1
    conn_drop_output(r, c)
    conn_drop_input(r, c)
    web_free(&r.buffers, c)
    if not c.flags & CONN_DIRTY:
        conn_mark_dirty(r, c)    # reactor_flush finds the connection in this list and frees it


cdef void conn_drop_input(Reactor* r, Conn* c) noexcept nogil:
    if c.in_buf != NULL:
        buffer_give(&r.buffers, c.in_buf, c.in_cap)
        c.in_buf = NULL
    c.in_off = c.in_len = c.in_cap = c.in_need = 0


cdef void conn_drop_output(Reactor* r, Conn* c) noexcept nogil:
    cdef Seg* s = c.out_head
    cdef Seg* following
    while s != NULL:
        following = s.next
        seg_free(r, s)
        s = following
    r.unsent_bytes -= c.out_bytes
    c.out_head = c.out_tail = NULL
    c.out_bytes = 0
    if c.web != NULL:
        c.web.framed = 0


cdef void conn_finish(Reactor* r, Conn* c) noexcept nogil:
    if c.flags & (CONN_CLOSED | CONN_CLOSING):
        return
    c.flags |= CONN_CLOSING
    c.flags &= ~<uint32_t>(CONN_HUNGRY | CONN_PAUSED)
    if c.flags & CONN_DEAF:
        c.flags &= ~<uint32_t>CONN_DEAF
        conn_watch(r, c)
    conn_drop_input(r, c)
    if c.web != NULL:
        web_request_drop(&r.buffers, c.web)
    if not c.flags & CONN_DIRTY:
        conn_mark_dirty(r, c)


# ---------------------------------------------------------------- lists of the turn

cdef void conn_mark_dirty(Reactor* r, Conn* c) noexcept nogil:
    c.flags |= CONN_DIRTY
    c.dirty_next = r.dirty
    r.dirty = c


cdef void conn_resume(Reactor* r, Conn* c) noexcept nogil:
    c.flags &= ~<uint32_t>CONN_PAUSED
    if c.flags & (CONN_READY | CONN_CLOSED):
        return
    c.flags |= CONN_READY
    c.ready_next = NULL
    if r.ready == NULL:
        r.ready = c
    else:
        r.ready_last.ready_next = c
    r.ready_last = c
