# The life of a connection: open, pause, close. See conn.pyx.
from libc.stdint cimport uint32_t
from libc.stdlib cimport free
from cext.base.buffer cimport buffer_give
from cext.net.conn_state cimport Address, Conn, Reactor, Seg, TransportContext
from cext.net.upgrade cimport UpgradeRules

cdef int conn_open(Reactor* r, Conn* c, int fd, const Address* a) noexcept nogil     # 0 or errno
# Do the same for a socket whose connect has begun. on_opened is called once, unless c is closed
# before. The owner sets the deadline.
cdef int conn_await(Reactor* r, Conn* c, int fd, const Address* a) noexcept nogil
cdef void conn_close(Reactor* r, Conn* c) noexcept nogil            # closes now; on_free frees c at the end of the turn
cdef void conn_finish(Reactor* r, Conn* c) noexcept nogil           # closes after the queued output is sent
cdef void conn_resume(Reactor* r, Conn* c) noexcept nogil           # ends CONN_PAUSED, or continues in the next turn
# Expect a PROXY header first (proxy_version, or 0 for none), then a WebSocket handshake (rules NULL: none). Call it before the
# first read. Return 0 or ENOMEM.
cdef int conn_web(Conn* c, int proxy_version, const UpgradeRules* rules) noexcept nogil
# Put a transport under the connection. Call it before the first read. Return 0 or ENOMEM.
cdef int conn_tls_context(Reactor* r, Conn* c, TransportContext* x) noexcept nogil

# For the other modules of the loop.
cdef int conn_watch(Reactor* r, Conn* c) noexcept nogil             # sets the events that epoll reports, by the flags; 0 or -1
cdef void conn_connected(Reactor* r, Conn* c) noexcept nogil
cdef bint conn_report_open(Reactor* r, Conn* c) noexcept nogil
cdef void conn_gone(Reactor* r, Conn* c, int err) noexcept nogil
cdef void conn_drop_input(Reactor* r, Conn* c) noexcept nogil       # frees the input buffer
cdef void conn_mark_dirty(Reactor* r, Conn* c) noexcept nogil       # flushes c at the end of the turn; call it once per turn

cdef inline void seg_free(Reactor* r, Seg* s) noexcept nogil:
    if s.ref != NULL:
        r.release(r.ctx, s.ref)
        free(s)
    else:
        buffer_give(&r.buffers, s, s.buffer_cap)
