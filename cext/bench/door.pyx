# The way of a client's bytes with TLS, WebSockets, or both:
#
#     client_write -> web_frame_put -> secure_write -> client_put        client_read <- ws_decode <- secure_read <- recv
#
#     OPENING -> SECURING (TLS) -> UPGRADING (HTTP) -> GREETING          each only where it is asked for
#
# Knows the order of the two and what they fail with; not what the bytes mean. A load without them has no Doors, and pays one look at a pointer
# per read and per write.
# Invariants: what was read is decrypted and taken out of its frames wholly, so no event is owed for it; what waits to be sent (Client.out) is
# encrypted already. A write is one frame, and one send.
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport uint8_t, uint16_t, uint32_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memmove, strdup

from cext.base.clock cimport clock_monotonic_ns
from cext.bench.client cimport client_fail, client_fail_told, client_greet, client_put
from cext.bench.histogram cimport histogram_add
from cext.bench.load cimport (
    CLIENT_SECURING, CLIENT_UPGRADING, FAIL_CERTIFICATE, FAIL_CLOSED, FAIL_MEMORY, FAIL_TLS, FAIL_WEB, HELD_OTHER_MAX, READ_BYTES, Client, Load)
from cext.bench.secure cimport (
    SECURE_CLOSED, SECURE_FAILED, SECURE_MORE, Why, secure_begin, secure_bye, secure_end, secure_fini, secure_handshake,
    secure_init, secure_read, secure_why, secure_write)
from cext.bench.web cimport WEB_ANSWER_MAX, WEB_EXTRA, WEB_MORE, web_answer, web_frame_put
from cext.net.tls_context cimport tls_context_release
from cext.net.websocket cimport WS_BINARY, WS_CLOSED, WS_CONTROL_BYTES_MAX, WS_FAILED, WS_PONG, ws_decode

cdef extern from "<sys/socket.h>" nogil:
    ssize_t recv(int fd, void* p, size_t n, int flags)
    int shutdown(int fd, int how)
    int SHUT_RD

cdef enum:
    RAW_BYTES = READ_BYTES - 2 * HELD_OTHER_MAX     # decrypted, with what OpenSSL held, it fits in what a read may be
    SWITCHING = 101


cdef inline Doors* doors_of(const Load* g) noexcept nogil:
    return <Doors*>g.door


cdef Doors* doors_new(TlsContext* x, const char* host, const uint8_t* request, uint32_t request_n, const uint8_t* accept) noexcept nogil:
    cdef Doors* y = <Doors*>calloc(1, sizeof(Doors))
    if y == NULL:
        if x != NULL:
            tls_context_release(&x.base)
        return NULL
    y.ops.begin = door_begin
    y.ops.write = door_write
    y.ops.receive = door_receive
    y.ops.leave = door_leave
    y.ops.off = door_off
    y.dice = clock_monotonic_ns() | 1
    y.host = strdup(host)
    if x != NULL and secure_init(&y.secure, x, y.host) == 0:
        y.came = <uint8_t*>malloc(RAW_BYTES)
    if request != NULL:
        y.request = <uint8_t*>malloc(request_n)
        if y.request != NULL:
            memcpy(y.request, request, request_n)
            memcpy(y.accept, accept, WEB_ACCEPT_SIZE)
            y.request_n = request_n
    if y.host == NULL or (x != NULL and y.came == NULL) or (request != NULL and y.request == NULL):
        doors_free(y)
        return NULL
    return y


cdef void doors_free(Doors* y) noexcept nogil:
    if y == NULL:
        return
    if y.secure.x != NULL:
        secure_fini(&y.secure)
    free(y.host)
    free(y.request)
    free(y.frame)
    free(y.came)
    free(y)


# ---------------------------------------------------------------- begin and end

cdef void door_begin(Load* g, Client* c) noexcept nogil:
    cdef Doors* y = doors_of(g)
    cdef Door* d = <Door*>calloc(1, sizeof(Door))
    c.door = d
    if d == NULL:
        client_fail(g, c, FAIL_MEMORY, 0)
        return
    d.begun_ns = clock_monotonic_ns()
    d.ws.from_server = 1
    if y.secure.x == NULL:
        upgrade(g, c)
        return
    c.state = CLIENT_SECURING
    d.ssl = secure_begin(&y.secure)
    if d.ssl == NULL:
        client_fail(g, c, FAIL_MEMORY, 0)
        return
    y.secure.in_n = 0
    secure_step(g, c)


cdef void door_off(Client* c) noexcept nogil:
    cdef Door* d = <Door*>c.door
    c.door = NULL
    if d != NULL:
        secure_end(d.ssl)
        free(d.answer)
        free(d)


cdef void door_leave(Load* g, Client* c) noexcept nogil:
    cdef Doors* y = doors_of(g)
    cdef Door* d = <Door*>c.door
    if d.ssl != NULL:
        secure_bye(&y.secure, d.ssl)
        put_secured(g, c)


cdef void tls_failed(Load* g, Client* c) noexcept nogil:
    cdef Why why = secure_why(&doors_of(g).secure, (<Door*>c.door).ssl)
    put_secured(g, c)           # an alert, which says to the other side why
    if c.fd >= 0:
        client_fail_told(g, c, FAIL_CERTIFICATE if why.certificate else FAIL_TLS, <int>why.certificate, why.text)


cdef void put_secured(Load* g, Client* c) noexcept nogil:
    """What OpenSSL has to say."""
    cdef Doors* y = doors_of(g)
    cdef size_t n = y.secure.out_n
    y.secure.out_n = 0
    if n and c.fd >= 0:
        client_put(g, c, y.secure.out, n)


# ---------------------------------------------------------------- handshakes

cdef void secure_step(Load* g, Client* c) noexcept nogil:
    cdef int how = secure_handshake(&doors_of(g).secure, (<Door*>c.door).ssl)
    if how == SECURE_FAILED:
        tls_failed(g, c)
        return
    put_secured(g, c)
    if c.fd < 0 or how == SECURE_MORE:
        return
    if how == SECURE_CLOSED:
        client_fail(g, c, FAIL_CLOSED, 0)
    elif doors_of(g).request != NULL:
        upgrade(g, c)
    else:
        opened(g, c)


cdef void upgrade(Load* g, Client* c) noexcept nogil:
    cdef Doors* y = doors_of(g)
    cdef Door* d = <Door*>c.door
    c.state = CLIENT_UPGRADING
    d.answer = <uint8_t*>malloc(WEB_ANSWER_MAX)
    if d.answer == NULL:
        client_fail(g, c, FAIL_MEMORY, 0)
        return
    put(g, c, y.request, y.request_n)


cdef size_t answered(Load* g, Client* c, uint8_t* p, size_t n) noexcept nogil:
    """What comes behind the answer is moved to p: how many bytes."""
    cdef Door* d = <Door*>c.door
    cdef uint32_t before = d.answer_n, size = 0
    cdef size_t taken = n if n < WEB_ANSWER_MAX - before else WEB_ANSWER_MAX - before
    cdef int status
    memcpy(d.answer + before, p, taken)
    d.answer_n += <uint32_t>taken
    status = web_answer(d.answer, d.answer_n, doors_of(g).accept, &size)
    if status == WEB_MORE:
        return 0
    if status != SWITCHING:
        client_fail(g, c, FAIL_WEB, status)
        return 0
    free(d.answer)
    d.answer = NULL
    memmove(p, p + size - before, n - (size - before))
    opened(g, c)
    return n - (size - before)


cdef void opened(Load* g, Client* c) noexcept nogil:
    histogram_add(&g.handshake, clock_monotonic_ns() - (<Door*>c.door).begun_ns)
    client_greet(g, c)


# ---------------------------------------------------------------- bytes

cdef void put(Load* g, Client* c, const uint8_t* p, size_t n) noexcept nogil:
    """As it is, through TLS where there is some."""
    cdef Doors* y = doors_of(g)
    cdef Door* d = <Door*>c.door
    if d.ssl == NULL:
        client_put(g, c, p, n)
    elif secure_write(&y.secure, d.ssl, p, n):
        put_secured(g, c)
    else:
        tls_failed(g, c)


cdef uint8_t* framed(Doors* y, int opcode, const uint8_t* p, size_t n) noexcept nogil:
    """The end of y.frame; NULL: no memory"""
    cdef uint8_t* grown
    if n + WEB_EXTRA > y.frame_cap:
        grown = <uint8_t*>realloc(y.frame, 2 * (n + WEB_EXTRA))
        if grown == NULL:
            return NULL
        y.frame = grown
        y.frame_cap = 2 * (n + WEB_EXTRA)
    y.dice ^= y.dice << 13
    y.dice ^= y.dice >> 7
    y.dice ^= y.dice << 17
    return web_frame_put(y.frame, opcode, p, n, <uint32_t>(y.dice >> 32))


cdef void put_framed(Load* g, Client* c, int opcode, const uint8_t* p, size_t n) noexcept nogil:
    cdef Doors* y = doors_of(g)
    cdef uint8_t* end = framed(y, opcode, p, n)
    if end == NULL:
        client_fail(g, c, FAIL_MEMORY, 0)
    else:
        put(g, c, y.frame, <size_t>(end - y.frame))


cdef void door_write(Load* g, Client* c, const uint8_t* p, size_t n) noexcept nogil:
    if doors_of(g).request != NULL:
        put_framed(g, c, WS_BINARY, p, n)
    else:
        put(g, c, p, n)


cdef size_t decrypted(Load* g, Client* c, size_t came, uint8_t* p, size_t n) noexcept nogil:
    """y.came -> p. What follows the end of a handshake may be in there, too."""
    cdef Doors* y = doors_of(g)
    cdef Door* d = <Door*>c.door
    cdef size_t got = 0
    cdef int how
    y.secure.in_p = y.came
    y.secure.in_n = came
    if c.state == CLIENT_SECURING:
        secure_step(g, c)
        if c.fd < 0 or c.state == CLIENT_SECURING:
            return 0
    how = secure_read(&y.secure, d.ssl, p, n, &got)
    y.secure.in_n = 0
    if how == SECURE_FAILED:
        tls_failed(g, c)
        return 0
    put_secured(g, c)
    if how == SECURE_CLOSED:
        shutdown(c.fd, SHUT_RD)         # the next read says so, after what came before it was looked at
    return got


cdef size_t unframed(Load* g, Client* c, uint8_t* p, size_t n) noexcept nogil:
    cdef Door* d = <Door*>c.door
    cdef uint8_t[WS_CONTROL_BYTES_MAX] ping
    cdef uint16_t size
    n = ws_decode(&d.ws, p, n)
    if d.ws.state == WS_FAILED:
        client_fail(g, c, FAIL_WEB, d.ws.code)
        return 0
    if d.ws.ping_due:
        d.ws.ping_due = 0
        size = d.ws.control_n
        memcpy(ping, d.ws.control, size)
        put_framed(g, c, WS_PONG, ping, size)
    if c.fd >= 0 and d.ws.state == WS_CLOSED:
        shutdown(c.fd, SHUT_RD)
    return n


cdef size_t door_receive(Load* g, Client* c, uint8_t* p, size_t n) noexcept nogil:
    cdef Doors* y = doors_of(g)
    cdef bint secure = y.secure.x != NULL
    cdef ssize_t came = recv(c.fd, y.came if secure else p, RAW_BYTES if n > RAW_BYTES else n, 0)
    cdef size_t got
    if came <= 0:
        if came == 0 or (errno != EAGAIN and errno != EINTR):
            client_fail(g, c, FAIL_CLOSED, 0 if came == 0 else errno)
        return 0
    got = decrypted(g, c, <size_t>came, p, n) if secure else <size_t>came
    if got and c.fd >= 0 and c.state == CLIENT_UPGRADING:
        got = answered(g, c, p, got)
    if got and c.fd >= 0 and y.request != NULL and c.state != CLIENT_UPGRADING:
        got = unframed(g, c, p, got)
    return got if c.fd >= 0 else 0
