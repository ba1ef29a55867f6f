# The output of a connection. See conn_output.pyx.
from libc.stdint cimport uint8_t, uint32_t
from cext.net.conn cimport conn_mark_dirty
from cext.net.conn_state cimport CONN_DIRTY, Conn, Reactor, Seg

cdef void conn_flush(Reactor* r, Conn* c) noexcept nogil            # sends before the end of the turn, unless the socket is full
cdef uint8_t* conn_room_new(Reactor* r, Conn* c, uint32_t n) noexcept nogil

# Return room for n contiguous bytes at the end of the output, or NULL if there is no memory. Write there, then call conn_wrote.
cdef inline uint8_t* conn_room(Reactor* r, Conn* c, uint32_t n) noexcept nogil:
    cdef Seg* tail = c.out_tail
    if tail != NULL and tail.cap - tail.len >= n:       # a loan has cap == len
        return <uint8_t*>tail.p + tail.len
    return conn_room_new(r, c, n)

cdef inline void conn_wrote(Reactor* r, Conn* c, uint32_t n) noexcept nogil:
    c.out_tail.len += n
    c.out_bytes += n
    r.unsent_bytes += n
    if not c.flags & CONN_DIRTY:
        conn_mark_dirty(r, c)

# Append n bytes at p as a loan; release(ctx, ref) is called when they are sent or dropped. Return 0, or -1 if there is no
# memory (then nothing was lent).
cdef int conn_lend(Reactor* r, Conn* c, const uint8_t* p, uint32_t n, void* ref) noexcept nogil

# For the reactor: send all output, also while EPOLLOUT is armed.
cdef void conn_send(Reactor* r, Conn* c) noexcept nogil
