"""Collect the output of connections in Segs, and send it. This module knows sockets, Segs and the layers in between, but not the
meaning of the bytes.

Invariants: output is collected during a turn and flushed once per connection, with one writev; EPOLLOUT is armed only after EAGAIN.
A loan is released when its bytes are sent or dropped. Cost: O(1) per append; a flush is one system call for up to IOV_MAX_USED Segs.
"""

from libc.errno cimport EAGAIN, EINTR, ENOBUFS, ENOMEM, errno
from libc.stdint cimport uint32_t, uint64_t, uint8_t
from libc.stdlib cimport malloc
from libc.string cimport memset

from cext.base.buffer cimport buffer_take
from cext.net.conn cimport conn_gone, conn_mark_dirty, conn_watch, seg_free
from cext.net.conn_state cimport (
    CONN_BLOCKED, CONN_CLOSED, CONN_CLOSING, CONN_DIRTY, CONN_HELD, CONN_HUNGRY, CONN_SHUT, Conn, IOV_MAX_USED, Reactor, Seg,
    count_out,
)
from cext.net.system cimport MSG_NOSIGNAL, SHUT_WR, iovec, msghdr, send, sendmsg, shutdown
from cext.net.web cimport web_frame
from cext.net.websocket cimport WS_HEAD_SIZE_MAX


# ---------------------------------------------------------------- collecting

cdef inline void seg_append(Conn* c, Seg* s) noexcept nogil:
    s.next = NULL
    if c.out_tail == NULL:
        c.out_head = s
    else:
        c.out_tail.next = s
    c.out_tail = s


cdef uint8_t* conn_room_new(Reactor* r, Conn* c, uint32_t n) noexcept nogil:
    """Return room in a new piece of output. The first piece of a turn is small, because most turns send little; a piece after a
    loan is small, because it is usually the next message's header. A busy connection gets larger pieces."""
    cdef uint32_t cap
    cdef bint little = c.out_bytes < 1024 or c.out_tail.ref != NULL
    cdef size_t head = WS_HEAD_SIZE_MAX if c.web != NULL else 0
    cdef size_t want = 2048 if little else 16384 if c.out_bytes < 32768 else 65536
    if want < n + sizeof(Seg) + head:
        want = n + sizeof(Seg) + head
    cdef uint8_t* p = buffer_take(&r.buffers, want, &cap)
    if p == NULL:
        return NULL
    cdef Seg* s = <Seg*>p
    s.p = p + sizeof(Seg) + head
    s.len = s.off = 0
    s.cap = cap - <uint32_t>(sizeof(Seg) + head)
    s.buffer_cap = cap
    s.ref = NULL
    seg_append(c, s)
    return <uint8_t*>s.p


cdef int conn_lend(Reactor* r, Conn* c, const uint8_t* p, uint32_t n, void* ref) noexcept nogil:
    cdef Seg* s = <Seg*>malloc(sizeof(Seg))
    if s == NULL:
        return -1
    s.p = p
    s.len = s.cap = n
    s.off = s.buffer_cap = 0
    s.ref = ref
    seg_append(c, s)
    c.out_bytes += n
    r.unsent_bytes += n
    if not c.flags & CONN_DIRTY:
        conn_mark_dirty(r, c)
    return 0


# ---------------------------------------------------------------- sending

cdef ssize_t send_segs(Conn* c) noexcept nogil:
    cdef iovec iov[IOV_MAX_USED]
    cdef msghdr m
    cdef int n = 0
    cdef Seg* s = c.out_head
    if s.next == NULL:
        return send(c.fd, s.p + s.off, s.len - s.off, MSG_NOSIGNAL)
    while s != NULL and n < IOV_MAX_USED:
        iov[n].iov_base = <void*>(s.p + s.off)
        iov[n].iov_len = s.len - s.off
        n += 1
        s = s.next
    memset(&m, 0, sizeof(m))
    m.msg_iov = iov
    m.msg_iovlen = n
    return sendmsg(c.fd, &m, MSG_NOSIGNAL)


cdef inline bint transport_pending(Conn* c) noexcept nogil:
    """Return whether the layer itself has something to send."""
    return c.transport.unsent != 0 or (c.flags & CONN_CLOSING and c.transport.open)


cdef void conn_send(Reactor* r, Conn* c) noexcept nogil:
    cdef ssize_t sent
    cdef Seg* s
    cdef uint32_t left
    if c.web != NULL and frame_output(r, c) != 0:
        return
    while c.out_head != NULL or (c.transport != NULL and transport_pending(c)):
        sent = send_segs(c) if c.transport == NULL else c.transport.ops.send(r, c)
        if sent < 0:
            if errno == EINTR:
                continue
            if errno == EAGAIN or errno == ENOBUFS:
                output_block(r, c)
            else:
                conn_gone(r, c, errno)
            return
        count_out(r, c, <uint64_t>sent)
        c.out_bytes -= <uint32_t>sent
        if c.web != NULL:
            c.web.framed -= <uint32_t>sent
        r.unsent_bytes -= <uint64_t>sent
        while c.out_head != NULL:
            s = c.out_head
            left = s.len - s.off
            if <size_t>sent < left:
                s.off += <uint32_t>sent
                break
            sent -= left
            c.out_head = s.next
            if s.next == NULL:
                c.out_tail = NULL
            seg_free(r, s)
    if c.flags & CONN_BLOCKED:
        c.flags &= ~<uint32_t>CONN_BLOCKED
        conn_watch(r, c)
    if c.flags & CONN_CLOSING:
        end_output(r, c)
    elif c.flags & CONN_HUNGRY:
        c.flags &= ~<uint32_t>CONN_HUNGRY
        r.on_drained(r.ctx, c)


cdef int frame_output(Reactor* r, Conn* c) noexcept nogil:
    cdef uint32_t before = c.out_bytes
    if web_frame(&r.buffers, c) != 0:
        conn_gone(r, c, ENOMEM)
        return -1
    r.unsent_bytes += c.out_bytes - before
    return 0


cdef void conn_flush(Reactor* r, Conn* c) noexcept nogil:
    if not c.flags & (CONN_CLOSED | CONN_BLOCKED | CONN_HELD):
        conn_send(r, c)


cdef void output_block(Reactor* r, Conn* c) noexcept nogil:
    if not c.flags & CONN_BLOCKED:
        c.flags |= CONN_BLOCKED
        conn_watch(r, c)


cdef void end_output(Reactor* r, Conn* c) noexcept nogil:
    """Shut our side after all output is sent, and wait for the peer's end, for which the owner sets a deadline. A close with
    unread input would reset the connection and destroy data that the peer has not read yet."""
    if c.flags & CONN_SHUT:
        return
    c.flags |= CONN_SHUT
    shutdown(c.fd, SHUT_WR)
