# Test API of outgoing connections: a reactor with one connection, whose turns the test calls.
from libc.errno cimport ENOMEM
from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset, strlen

from cext.net.outward cimport (
    Outward, conn_connect,
)
from cext.net.conn cimport conn_close, conn_finish
from cext.net.conn_output cimport conn_room, conn_wrote
from cext.net.conn_state cimport Address, Conn, Reactor, TransportContext
from cext.net.reactor cimport reactor_fini, reactor_flush, reactor_init, reactor_turn

import _socket

cdef enum:
    INPUT_MAX = 1 << 20
    TEXT_MAX = 2000

cdef struct Seen:
    Reactor r
    Conn* c
    int n_opened
    int opened
    int n_lost
    int lost
    int n_freed
    bint close_at_opened
    size_t n_text
    char text[2000]              # size = TEXT_MAX
    size_t n_input
    uint8_t input[1048576]       # size = INPUT_MAX


cdef size_t on_input(void* ctx, Conn* c, const uint8_t* p, size_t n) noexcept nogil:
    cdef Seen* s = <Seen*>ctx
    if s.n_input + n <= INPUT_MAX:
        memcpy(s.input + s.n_input, p, n)
        s.n_input += n
    return n


cdef void on_opened(void* ctx, Conn* c, int err) noexcept nogil:
    cdef Seen* s = <Seen*>ctx
    s.n_opened += 1
    s.opened = err
    if err or s.close_at_opened:
        conn_close(&s.r, c)


cdef void on_lost(void* ctx, Conn* c, int err) noexcept nogil:
    cdef Seen* s = <Seen*>ctx
    s.n_lost += 1
    s.lost = err
    conn_close(&s.r, c)


cdef void on_free(void* ctx, Conn* c) noexcept nogil:
    cdef Seen* s = <Seen*>ctx
    s.n_freed += 1
    s.c = NULL
    free(c)


cdef void on_wrong(void* ctx, Conn* c, const char* text) noexcept nogil:
    cdef Seen* s = <Seen*>ctx
    cdef size_t n = strlen(text)
    if s.n_text + n + 1 <= TEXT_MAX:
        memcpy(s.text + s.n_text, text, n)
        s.text[s.n_text + n] = 10
        s.n_text += n + 1


cdef void nothing(void* ctx) noexcept nogil:
    pass


cdef void on_drained(void* ctx, Conn* c) noexcept nogil:
    pass


cdef int address_of(Address* a, uint32_t* scope, str host, int port) except -1:
    memset(a, 0, sizeof(Address))
    family, _, _, _, found = _socket.getaddrinfo(host, port, type=_socket.SOCK_STREAM, flags=_socket.AI_NUMERICHOST)[0]
    packed = _socket.inet_pton(family, found[0].partition("%")[0])
    a.family = <uint8_t>family
    a.port = port
    memcpy(a.ip, <const char*>packed, len(packed))
    scope[0] = found[3] if len(found) > 2 else 0
    return 0


cdef class Outwards:
    """One outgoing connection: call connect(...), then turn() until opened() is not None."""
    cdef Seen* s

    def __cinit__(self):
        self.s = <Seen*>calloc(1, sizeof(Seen))
        if self.s == NULL or reactor_init(&self.s.r, self.s) != 0:
            raise MemoryError
        self.s.r.on_input = on_input
        self.s.r.on_opened = on_opened
        self.s.r.on_lost = on_lost
        self.s.r.on_free = on_free
        self.s.r.on_transport_error = on_wrong
        self.s.r.on_wake = nothing
        self.s.r.on_drained = on_drained

    def __dealloc__(self):
        if self.s != NULL:
            if self.s.c != NULL:
                conn_close(&self.s.r, self.s.c)
                reactor_flush(&self.s.r)
            reactor_fini(&self.s.r)
            free(self.s)

    def connect(        # parameters: the fields of Outward, by name
            self, str address, int port, bytes host=b"", str bind="", keepalive=None, int user_timeout_ms=0, bint nodelay=True,
            tls_context=0, bint close_at_opened=False):
        """Begin to connect. Return 0, or the errno of an immediate failure."""
        cdef Outward o
        cdef int err
        memset(&o, 0, sizeof(o))
        address_of(&o.remote, &o.remote_scope, address, port)
        if bind:
            address_of(&o.bound, &o.bound_scope, bind, 0)
        if keepalive:
            o.keepalive_idle_s, o.keepalive_interval_s, o.keepalive_count = keepalive
        o.user_timeout_ms = <uint32_t>user_timeout_ms
        o.nodelay = nodelay
        o.host = host
        o.tls_context = <TransportContext*><size_t>tls_context
        self.s.close_at_opened = close_at_opened
        self.s.n_opened = self.s.n_lost = self.s.n_freed = 0
        self.s.n_input = self.s.n_text = 0
        self.s.c = <Conn*>calloc(1, sizeof(Conn))
        if self.s.c == NULL:
            return ENOMEM
        err = conn_connect(&self.s.r, self.s.c, &o)
        if err:
            free(self.s.c)
            self.s.c = NULL
        return err

    def turn(self, int timeout_ms=100):
        with nogil:
            reactor_turn(&self.s.r, timeout_ms)
            reactor_flush(&self.s.r)

    def opened(self):
        """Return the argument of on_opened: 0 or errno; None = it was not called yet."""
        assert self.s.n_opened <= 1
        return self.s.opened if self.s.n_opened else None

    def lost(self):
        return self.s.lost if self.s.n_lost else None

    def freed(self):
        return self.s.n_freed

    def fileno(self):
        return self.s.c.fd if self.s.c != NULL else -1

    def wrong(self):
        return self.s.text[:self.s.n_text].decode()

    def read(self):
        return (<const char*>self.s.input)[:self.s.n_input]

    def tell(self, int what):
        """Return what TLS knows about the peer (TELL_... of reactor.pxd)."""
        cdef uint8_t text[1000]
        cdef int n = self.s.c.transport.ops.describe(self.s.c, what, text, 1000)
        return None if n < 0 else (<const char*>text)[:n].decode()

    def send(self, bytes content):
        cdef uint8_t* p = conn_room(&self.s.r, self.s.c, <uint32_t>len(content))
        if p == NULL:
            raise MemoryError
        memcpy(p, <const char*>content, len(content))
        conn_wrote(&self.s.r, self.s.c, <uint32_t>len(content))

    def close(self):
        if self.s.c != NULL:
            conn_close(&self.s.r, self.s.c)
            reactor_flush(&self.s.r)

    def finish(self):
        conn_finish(&self.s.r, self.s.c)
