"""Use the connections to workers on other machines. This module knows descriptors whose handshake is over, and the description of a client that goes
in front of its bytes. It does not know how connections are opened (mosq/cluster/reach.py).

    accepting worker:  client_moves -> workers_pass -> wire_take -> wire_head -> both halves are a relay (passing.pyx)
    worker of the id:  wire_serve(WIRE_RELAY) waits for the description -> wire_input -> a client, as one that came through a passage

The control plane opens connections in advance, because its handshake takes Python: some always wait for clients, on both sides. wires_wake reports that some
were used, or that a link is missing. A connection carries one client, and only MQTT: TLS and WebSocket frames end at the accepting worker.

The description is little-endian, in front of the client's bytes:

    0 u32 length of all of it   4 u8 version   5 u8 1: WebSocket, 2: TLS   6 u16 port of the listener   8 u32 origin, for a unix socket
    12 u32 ms left for the login   16 u8 family, u8 by_proxy, u16 port, 16 bytes: address of the client   36 u16 bytes of the proxied name
    38 u16 bytes of the socket's path   40 u16 bytes of this head; a later version may have more   48 both names

Nodes may have different configurations, so a listener is named by its port and its protocol. Invariant: Workers.arrivals has a connection exactly as
long as it waits for a description. Cost: nothing for a broker whose workers are all on one machine.
"""

from libc.errno cimport EAGAIN, ENOMEM, errno
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.string cimport memcpy, memset

from cext.base.buffer cimport buffer_take
from cext.base.view cimport View
from cext.base.wheel cimport wheel_add
from cext.base.words cimport load32, store32
from cext.broker.auth.tls_identity cimport TLS_NAME_MAX, tls_name, tls_names
from cext.broker.core.bounds cimport WORK_ACCEPT
from cext.broker.core.broker cimport Broker
from cext.broker.core.client cimport END_REFUSED, line_allowed, log_line
from cext.broker.core.client_state cimport Client
from cext.broker.core.link_state cimport LinkConn, NO_SLOT
from cext.broker.core.listener cimport Listener
from cext.broker.core.log cimport LOG_ERROR, LOG_LINE_MAX
from cext.broker.core.log_rate cimport LINE_DENIED
from cext.broker.core.pending_packet cimport names_take, owned_set, path_of, proxied_of
from cext.broker.core.stats cimport REFUSED_GLOBAL, REFUSED_LISTENER, REFUSED_MEMORY
from cext.broker.core.workers cimport WIRES_ARRIVALS, WIRES_READY, WireEnds, Workers, workers_of
from cext.broker.lifecycle.accept cimport all_full, client_open, descriptor_below_limit, listener_full, newcomer_grew, refuse_connection
from cext.broker.links.sockets cimport link_accepted, link_replace, links_of_close, socket_take
from cext.broker.lifecycle.session_lifecycle cimport client_end
from cext.broker.persist.publication cimport memory_short
from cext.link.state cimport LINK_IN
from cext.net.conn cimport conn_close, conn_resume
from cext.net.conn_output cimport conn_room, conn_wrote
from cext.net.conn_state cimport Address, CONN_INNER, CONN_MOVED, CONN_RELAY, Conn
from cext.net.system cimport AF_INET, AF_INET6, AF_UNIX, MSG_PEEK, c_close, c_write, recv

cdef extern from "<fcntl.h>" nogil:
    int fcntl(int fd, int command, int argument)
    int F_DUPFD_CLOEXEC

cdef extern from * nogil:
    """
    #include <stdint.h>
    static inline void mosq_wanted_set(uint64_t* p, uint64_t bits) { __atomic_fetch_or(p, bits, __ATOMIC_RELEASE); }
    static inline void mosq_wanted_clear(uint64_t* p, uint64_t bits) { __atomic_fetch_and(p, ~bits, __ATOMIC_RELEASE); }
    static inline void mosq_ready_put(uint32_t* p, uint32_t n) { __atomic_store_n(p, n, __ATOMIC_RELEASE); }
    """
    void mosq_wanted_set(uint64_t* p, uint64_t bits)
    void mosq_wanted_clear(uint64_t* p, uint64_t bits)
    void mosq_ready_put(uint32_t* p, uint32_t n)

cdef enum:
    HEAD_BYTES = 48
    HEAD_MAX = 256              # of a later version
    HEAD_VERSION = 1
    BY_WEB = 1
    BY_TLS = 2


# ---------------------------------------------------------------- the control plane

cdef void wires_wake(Workers* w) noexcept nogil:
    cdef uint64_t one = 1
    c_write(w.wires_fd, &one, 8)


cdef void wire_wanted(Workers* w, uint32_t place) noexcept nogil:
    mosq_wanted_set(&w.links_wanted, <uint64_t>1 << place)
    wires_wake(w)


cdef void wire_serve(Broker* b, uint32_t place, int what, int fd) noexcept nogil:
    cdef Workers* w = workers_of(b)
    cdef WireEnds* ends
    if w == NULL or place >= w.n or not w.remote >> place & 1 or b.links == NULL or what < WIRE_OUT or what > WIRE_CLOSE:
        c_close(fd)
        return
    ends = &w.wires[place]
    if what == WIRE_OUT:
        mosq_wanted_clear(&w.links_wanted, <uint64_t>1 << place)        # this is the link
        link_replace(b, place, fd)
    elif what == WIRE_IN:
        link_accepted(b, place, fd)
    elif what == WIRE_RELAY:
        arrival_add(b, w, fd)
    elif what == WIRE_CLOSE:
        links_of_close(b, place)
        while ends.n:
            ready_drop(ends)
    elif ends.n < WIRES_READY:
        ends.fds[ends.n] = fd
        mosq_ready_put(&ends.n, ends.n + 1)
    else:
        c_close(fd)


cdef void ready_drop(WireEnds* ends) noexcept nogil:
    mosq_ready_put(&ends.n, ends.n - 1)
    c_close(ends.fds[ends.n])


# ---------------------------------------------------------------- to another worker

cdef int wire_take(Workers* w, uint32_t place) noexcept nogil:
    cdef WireEnds* ends = &w.wires[place]
    cdef uint8_t byte
    while ends.n and not (recv(ends.fds[ends.n - 1], &byte, 1, MSG_PEEK) < 0 and errno == EAGAIN):
        ready_drop(ends)                 # the other worker has closed it
    w.wires_used = 1
    if ends.n == 0:
        return -1
    mosq_ready_put(&ends.n, ends.n - 1)
    return ends.fds[ends.n]


cdef int wire_head(Broker* b, Client* c, Conn* half, uint64_t left_ms) noexcept nogil:
    cdef uint8_t room[TLS_NAME_MAX]
    cdef uint8_t head[HEAD_BYTES]
    cdef View name = proxied_of(c), path = path_of(c)
    cdef int tls_n = tls_name(c, room) if c.conn.transport != NULL and tls_names(c) else 0
    cdef uint32_t input_n = c.conn.in_len - c.conn.in_off, total
    cdef uint8_t* p
    if tls_n > 0:
        name.p = room
        name.n = <uint32_t>tls_n
    total = HEAD_BYTES + name.n + path.n
    memset(head, 0, HEAD_BYTES)
    store32(head, total)
    head[4] = HEAD_VERSION
    head[5] = (BY_WEB if c.listener.websockets else 0) | (BY_TLS if c.listener.tls_context != NULL else 0)
    store16(head + 6, c.listener.port)
    store32(head + 8, c.listener.origin)
    store32(head + 12, <uint32_t>left_ms)
    head[16] = c.conn.address.family
    head[17] = c.conn.address.by_proxy
    store16(head + 18, c.conn.address.port)
    memcpy(head + 20, c.conn.address.ip, 16)
    store16(head + 36, <uint16_t>name.n)
    store16(head + 38, <uint16_t>path.n)
    store16(head + 40, HEAD_BYTES)
    p = conn_room(&b.reactor, half, total + input_n)
    if p == NULL:
        return ENOMEM
    memcpy(p, head, HEAD_BYTES)
    if name.n:
        memcpy(p + HEAD_BYTES, name.p, name.n)
    if path.n:
        memcpy(p + HEAD_BYTES + name.n, path.p, path.n)
    memcpy(p + total, c.conn.in_buf + c.conn.in_off, input_n)
    conn_wrote(&b.reactor, half, total + input_n)
    return 0


cdef inline void store16(uint8_t* p, uint16_t v) noexcept nogil:
    memcpy(p, &v, 2)


cdef inline uint16_t load16(const uint8_t* p) noexcept nogil:
    cdef uint16_t v
    memcpy(&v, p, 2)
    return v


# ---------------------------------------------------------------- from another worker

cdef void arrival_add(Broker* b, Workers* w, int fd) noexcept nogil:
    cdef LinkConn* c
    if w.arrivals_n == WIRES_ARRIVALS:
        c_close(fd)
        return
    fd = descriptor_below_limit(b, fd)
    c = socket_take(b, NO_SLOT, LINK_IN, fd) if fd >= 0 else NULL
    if c != NULL:
        c.conn.flags |= CONN_RELAY
        w.arrivals[w.arrivals_n] = c
        w.arrivals_n += 1


cdef void arrival_remove(Workers* w, const Conn* conn) noexcept nogil:
    cdef uint32_t i
    for i in range(w.arrivals_n):
        if <const Conn*>w.arrivals[i] == conn:
            w.arrivals_n -= 1
            w.arrivals[i] = w.arrivals[w.arrivals_n]
            return


cdef void wire_lost(Broker* b, Conn* conn) noexcept nogil:
    arrival_remove(workers_of(b), conn)
    conn_close(&b.reactor, conn)


cdef void wires_close(Broker* b) noexcept nogil:
    cdef Workers* w = workers_of(b)
    cdef uint32_t i
    while w.arrivals_n:
        wire_lost(b, <Conn*>w.arrivals[0])
    for i in range(w.n):
        while w.wires != NULL and w.wires[i].n:
            ready_drop(&w.wires[i])


cdef bint head_fits(const uint8_t* p) noexcept nogil:
    """Return whether the lengths and the address of a description agree."""
    cdef uint32_t head_n = load16(p + 40)
    return (p[4] >= HEAD_VERSION and HEAD_BYTES <= head_n <= HEAD_MAX and load32(p) == head_n + load16(p + 36) + load16(p + 38)
            and (p[16] == 0 or p[16] == AF_UNIX or p[16] == AF_INET or p[16] == AF_INET6))


cdef Listener* listener_named(Broker* b, const uint8_t* p) noexcept nogil:
    cdef Listener* d
    cdef uint32_t i
    for i in range(b.n_listeners):
        d = b.listeners[i]
        if d.port == load16(p + 6) and (d.websockets != 0) == (p[5] & BY_WEB != 0) and (d.tls_context != NULL) == (p[5] & BY_TLS != 0) \
                and (d.port or d.origin == load32(p + 8)):
            return d
    return NULL


cdef size_t wire_input(Broker* b, Conn* conn, const uint8_t* p, size_t n) noexcept nogil:
    cdef size_t total
    conn.in_need = 0
    if n < HEAD_BYTES:
        return 0
    total = load32(p)
    if not head_fits(p):
        log_line(b, LOG_ERROR, snprintf(b.log.line, LOG_LINE_MAX, "Error: another worker has sent a wrong description of a client. Check that all nodes "
                                        "run versions of mosq that work together. The client is disconnected."))
    elif n < total:
        conn.in_need = <uint32_t>total
        return 0
    else:
        arrival_begin(b, conn, p, total, n)
    wire_lost(b, conn)
    return n


cdef void arrival_begin(Broker* b, Conn* conn, const uint8_t* p, size_t total, size_t n) noexcept nogil:
    """Make a client of the connection. `p`: its description, `total` bytes, and the client's first bytes up to `n`."""
    cdef Listener* listener = listener_named(b, p)
    cdef Address a
    cdef int fd
    memset(&a, 0, sizeof(Address))
    a.family, a.by_proxy, a.port = p[16], p[17], load16(p + 18)
    memcpy(a.ip, p + 20, 16)
    b.stats.sockets += 1
    b.work += WORK_ACCEPT
    if listener == NULL:
        if line_allowed(b, &a, LINE_DENIED):
            log_line(b, LOG_ERROR, snprintf(
                b.log.line, LOG_LINE_MAX, "Error: a client came to another node through a listener on port %d%s%s that this node does not have. The client is "
                "refused. Give all nodes the same listeners.", <int>load16(p + 6), b" with WebSockets" if p[5] & BY_WEB else b"",
                b" with TLS" if p[5] & BY_TLS else b""))
        return
    fd = fcntl(conn.fd, F_DUPFD_CLOEXEC, 0)
    fd = descriptor_below_limit(b, fd) if fd >= 0 else fd
    if fd < 0:
        return
    if listener_full(b, listener):
        refuse_connection(b, fd, &a, REFUSED_LISTENER, "max_connections exceeded")
    elif all_full(b):
        refuse_connection(b, fd, &a, REFUSED_GLOBAL, "global_max_connections exceeded")
    elif memory_short(b, b.settings.memory_limit // 8):
        refuse_connection(b, fd, &a, REFUSED_MEMORY, "memory_limit reached")
    else:
        wire_client(b, client_open(b, listener, fd, &a), p, total, n)


cdef void wire_client(Broker* b, Client* c, const uint8_t* p, size_t total, size_t n) noexcept nogil:
    cdef View proxied, path
    if c == NULL:
        return
    wheel_add(&b.wheel, &c.timer, b.reactor.now_ms + load32(p + 12))
    c.conn.flags |= CONN_MOVED | CONN_INNER
    proxied.p, proxied.n = p + load16(p + 40), load16(p + 36)
    path.p, path.n = proxied.p + proxied.n, load16(p + 38)
    if names_fill(c, proxied, path) != 0:
        client_end(b, c, END_REFUSED)
        return
    if n == total:
        return
    c.conn.in_buf = buffer_take(&b.reactor.buffers, <uint32_t>(n - total), &c.conn.in_cap)
    if c.conn.in_buf == NULL:
        client_end(b, c, END_REFUSED)
        return
    memcpy(c.conn.in_buf, p + total, n - total)
    c.conn.in_len = <uint32_t>(n - total)
    newcomer_grew(b, &c.conn)
    conn_resume(&b.reactor, &c.conn)


cdef int names_fill(Client* c, View proxied, View path) noexcept nogil:
    if proxied.n and (names_take(c) == NULL or owned_set(&c.names.proxied, proxied) != 0):
        return -1
    if path.n and (names_take(c) == NULL or owned_set(&c.names.path, path) != 0):
        return -1
    return 0
