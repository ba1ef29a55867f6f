# The path of a client's bytes with TLS, WebSockets, or both:
#
#     client_write -> web_frame_put -> load_tls_write -> client_put        client_read <- ws_decode <- load_tls_read <- recv
#
#     OPENING -> SECURING (TLS) -> UPGRADING (HTTP) -> GREETING          each only if it is used
#
# This module knows the order of the two and their failures. It does not know the meaning of the bytes. A load without them has no
# Transports, and pays one check of a pointer for each read and each write.
# Invariants: everything that was read is decrypted and taken out of its frames at once, so no event is missing for it. Bytes that
# wait to be sent (Client.out) are already encrypted. A write is one frame and one send.
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport uint8_t, uint16_t, uint32_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memmove, strdup

from cext.base.clock cimport clock_monotonic_ns
from cext.bench.client cimport client_fail, client_fail_reported, client_greet, client_put
from cext.bench.histogram cimport histogram_add
from cext.bench.load cimport (
    CLIENT_SECURING, CLIENT_UPGRADING, Client, FAIL_CERTIFICATE, FAIL_CLOSED, FAIL_MEMORY, FAIL_TLS, FAIL_WEB, HELD_OTHER_MAX,
    Load, READ_BYTES,
)
from cext.bench.tls cimport (
    LOAD_TLS_CLOSED, LOAD_TLS_FAILED, LOAD_TLS_MORE, LoadTlsError, load_tls_begin, load_tls_close, load_tls_end,
    load_tls_error, load_tls_fini, load_tls_handshake, load_tls_init, load_tls_read, load_tls_write,
)
from cext.bench.web cimport WEB_ANSWER_MAX, WEB_CLIENT_MORE, WEB_EXTRA, web_answer, web_frame_put
from cext.net.tls_context cimport tls_context_release
from cext.net.websocket cimport WS_BINARY, WS_CLOSED, WS_CONTROL_BYTES_MAX, WS_FAILED, WS_PONG, ws_decode

cdef extern from "<sys/socket.h>" nogil:
    ssize_t recv(int fd, void* p, size_t n, int flags)
    int shutdown(int fd, int how)
    int SHUT_RD

cdef enum:
    RAW_BYTES = READ_BYTES - 2 * HELD_OTHER_MAX     # decrypted, with the bytes that OpenSSL held, it fits one read
    SWITCHING = 101


cdef inline Transports* transports_of(const Load* g) noexcept nogil:
    return <Transports*>g.transport


cdef Transports* transports_new(TlsContext* x, const char* host, const uint8_t* request, uint32_t request_n, const uint8_t* accept) noexcept nogil:
    cdef Transports* layers = <Transports*>calloc(1, sizeof(Transports))
    if layers == NULL:
        if x != NULL:
            tls_context_release(&x.base)
        return NULL
    layers.ops.begin = transport_begin
    layers.ops.write = transport_write
    layers.ops.receive = transport_receive
    layers.ops.leave = transport_leave
    layers.ops.fini = transport_fini
    layers.dice = clock_monotonic_ns() | 1
    layers.host = strdup(host)
    if x != NULL and load_tls_init(&layers.load_tls, x, layers.host) == 0:
        layers.received = <uint8_t*>malloc(RAW_BYTES)
    if request != NULL:
        layers.request = <uint8_t*>malloc(request_n)
        if layers.request != NULL:
            memcpy(layers.request, request, request_n)
            memcpy(layers.accept, accept, WEB_ACCEPT_SIZE)
            layers.request_n = request_n
    if layers.host == NULL or (x != NULL and layers.received == NULL) or (request != NULL and layers.request == NULL):
        transports_free(layers)
        return NULL
    return layers


cdef void transports_free(Transports* layers) noexcept nogil:
    if layers == NULL:
        return
    if layers.load_tls.x != NULL:
        load_tls_fini(&layers.load_tls)
    free(layers.host)
    free(layers.request)
    free(layers.frame)
    free(layers.received)
    free(layers)


# ---------------------------------------------------------------- begin and end

cdef void transport_begin(Load* g, Client* c) noexcept nogil:
    cdef Transports* layers = transports_of(g)
    cdef TransportState* state = <TransportState*>calloc(1, sizeof(TransportState))
    c.transport = state
    if state == NULL:
        client_fail(g, c, FAIL_MEMORY, 0)
        return
    state.begun_ns = clock_monotonic_ns()
    state.ws.from_server = 1
    if layers.load_tls.x == NULL:
        upgrade_begin(g, c)
        return
    c.state = CLIENT_SECURING
    state.ssl = load_tls_begin(&layers.load_tls)
    if state.ssl == NULL:
        client_fail(g, c, FAIL_MEMORY, 0)
        return
    layers.load_tls.in_n = 0
    tls_step(g, c)


cdef void transport_fini(Client* c) noexcept nogil:
    cdef TransportState* state = <TransportState*>c.transport
    c.transport = NULL
    if state != NULL:
        load_tls_end(state.ssl)
        free(state.answer)
        free(state)


cdef void transport_leave(Load* g, Client* c) noexcept nogil:
    cdef Transports* layers = transports_of(g)
    cdef TransportState* state = <TransportState*>c.transport
    if state.ssl != NULL:
        load_tls_close(&layers.load_tls, state.ssl)
        tls_output_send(g, c)


cdef void tls_failed(Load* g, Client* c) noexcept nogil:
    cdef LoadTlsError why = load_tls_error(&transports_of(g).load_tls, (<TransportState*>c.transport).ssl)
    tls_output_send(g, c)           # an alert, which names the reason to the peer
    if c.fd >= 0:
        client_fail_reported(g, c, FAIL_CERTIFICATE if why.certificate else FAIL_TLS, <int>why.certificate, why.text)


cdef void tls_output_send(Load* g, Client* c) noexcept nogil:
    """Send the output of OpenSSL."""
    cdef Transports* layers = transports_of(g)
    cdef size_t n = layers.load_tls.out_n
    layers.load_tls.out_n = 0
    if n and c.fd >= 0:
        client_put(g, c, layers.load_tls.out, n)


# ---------------------------------------------------------------- handshakes

cdef void tls_step(Load* g, Client* c) noexcept nogil:
    cdef int status = load_tls_handshake(&transports_of(g).load_tls, (<TransportState*>c.transport).ssl)
    if status == LOAD_TLS_FAILED:
        tls_failed(g, c)
        return
    tls_output_send(g, c)
    if c.fd < 0 or status == LOAD_TLS_MORE:
        return
    if status == LOAD_TLS_CLOSED:
        client_fail(g, c, FAIL_CLOSED, 0)
    elif transports_of(g).request != NULL:
        upgrade_begin(g, c)
    else:
        transport_opened(g, c)


cdef void upgrade_begin(Load* g, Client* c) noexcept nogil:
    cdef Transports* layers = transports_of(g)
    cdef TransportState* state = <TransportState*>c.transport
    c.state = CLIENT_UPGRADING
    state.answer = <uint8_t*>malloc(WEB_ANSWER_MAX)
    if state.answer == NULL:
        client_fail(g, c, FAIL_MEMORY, 0)
        return
    transport_put(g, c, layers.request, layers.request_n)


cdef size_t upgrade_answer_read(Load* g, Client* c, uint8_t* p, size_t n) noexcept nogil:
    """Read the answer to the upgrade. Move the bytes behind it to p, and return their number."""
    cdef TransportState* state = <TransportState*>c.transport
    cdef uint32_t before = state.answer_n, size = 0
    cdef size_t taken = n if n < WEB_ANSWER_MAX - before else WEB_ANSWER_MAX - before
    cdef int status
    memcpy(state.answer + before, p, taken)
    state.answer_n += <uint32_t>taken
    status = web_answer(state.answer, state.answer_n, transports_of(g).accept, &size)
    if status == WEB_CLIENT_MORE:
        return 0
    if status != SWITCHING:
        client_fail(g, c, FAIL_WEB, status)
        return 0
    free(state.answer)
    state.answer = NULL
    memmove(p, p + size - before, n - (size - before))
    transport_opened(g, c)
    return n - (size - before)


cdef void transport_opened(Load* g, Client* c) noexcept nogil:
    histogram_add(&g.handshake, clock_monotonic_ns() - (<TransportState*>c.transport).begun_ns)
    client_greet(g, c)


# ---------------------------------------------------------------- bytes

cdef void transport_put(Load* g, Client* c, const uint8_t* p, size_t n) noexcept nogil:
    """Send bytes, through TLS if there is TLS."""
    cdef Transports* layers = transports_of(g)
    cdef TransportState* state = <TransportState*>c.transport
    if state.ssl == NULL:
        client_put(g, c, p, n)
    elif load_tls_write(&layers.load_tls, state.ssl, p, n):
        tls_output_send(g, c)
    else:
        tls_failed(g, c)


cdef uint8_t* frame_encode(Transports* layers, int opcode, const uint8_t* p, size_t n) noexcept nogil:
    """Make a frame in y.frame and return its end; NULL = no memory."""
    cdef uint8_t* grown
    if n + WEB_EXTRA > layers.frame_cap:
        grown = <uint8_t*>realloc(layers.frame, 2 * (n + WEB_EXTRA))
        if grown == NULL:
            return NULL
        layers.frame = grown
        layers.frame_cap = 2 * (n + WEB_EXTRA)
    layers.dice ^= layers.dice << 13
    layers.dice ^= layers.dice >> 7
    layers.dice ^= layers.dice << 17
    return web_frame_put(layers.frame, opcode, p, n, <uint32_t>(layers.dice >> 32))


cdef void frame_send(Load* g, Client* c, int opcode, const uint8_t* p, size_t n) noexcept nogil:
    cdef Transports* layers = transports_of(g)
    cdef uint8_t* end = frame_encode(layers, opcode, p, n)
    if end == NULL:
        client_fail(g, c, FAIL_MEMORY, 0)
    else:
        transport_put(g, c, layers.frame, <size_t>(end - layers.frame))


cdef void transport_write(Load* g, Client* c, const uint8_t* p, size_t n) noexcept nogil:
    if transports_of(g).request != NULL:
        frame_send(g, c, WS_BINARY, p, n)
    else:
        transport_put(g, c, p, n)


cdef size_t tls_decrypt(Load* g, Client* c, size_t received, uint8_t* p, size_t n) noexcept nogil:
    """Decrypt y.received to p. It may also contain bytes after the end of a handshake."""
    cdef Transports* layers = transports_of(g)
    cdef TransportState* state = <TransportState*>c.transport
    cdef size_t got = 0
    cdef int status
    layers.load_tls.in_p = layers.received
    layers.load_tls.in_n = received
    if c.state == CLIENT_SECURING:
        tls_step(g, c)
        if c.fd < 0 or c.state == CLIENT_SECURING:
            return 0
    status = load_tls_read(&layers.load_tls, state.ssl, p, n, &got)
    layers.load_tls.in_n = 0
    if status == LOAD_TLS_FAILED:
        tls_failed(g, c)
        return 0
    tls_output_send(g, c)
    if status == LOAD_TLS_CLOSED:
        shutdown(c.fd, SHUT_RD)         # the next read returns the end, after the input before it was handled
    return got


cdef size_t frames_decode(Load* g, Client* c, uint8_t* p, size_t n) noexcept nogil:
    cdef TransportState* state = <TransportState*>c.transport
    cdef uint8_t[WS_CONTROL_BYTES_MAX] ping
    cdef uint16_t size
    n = ws_decode(&state.ws, p, n)
    if state.ws.state == WS_FAILED:
        client_fail(g, c, FAIL_WEB, state.ws.code)
        return 0
    if state.ws.ping_due:
        state.ws.ping_due = 0
        size = state.ws.control_n
        memcpy(ping, state.ws.control, size)
        frame_send(g, c, WS_PONG, ping, size)
    if c.fd >= 0 and state.ws.state == WS_CLOSED:
        shutdown(c.fd, SHUT_RD)
    return n


cdef size_t transport_receive(Load* g, Client* c, uint8_t* p, size_t n) noexcept nogil:
    cdef Transports* layers = transports_of(g)
    cdef bint load_tls = layers.load_tls.x != NULL
    cdef ssize_t received = recv(c.fd, layers.received if load_tls else p, RAW_BYTES if n > RAW_BYTES else n, 0)
    cdef size_t got
    if received <= 0:
        if received == 0 or (errno != EAGAIN and errno != EINTR):
            client_fail(g, c, FAIL_CLOSED, 0 if received == 0 else errno)
        return 0
    got = tls_decrypt(g, c, <size_t>received, p, n) if load_tls else <size_t>received
    if got and c.fd >= 0 and c.state == CLIENT_UPGRADING:
        got = upgrade_answer_read(g, c, p, got)
    if got and c.fd >= 0 and layers.request != NULL and c.state != CLIENT_UPGRADING:
        got = frames_decode(g, c, p, got)
    return got if c.fd >= 0 else 0
