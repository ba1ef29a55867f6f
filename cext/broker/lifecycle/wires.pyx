"""Use the connections to workers on other machines. This module knows descriptors whose handshake is over, and the description of a client that goes
in front of its bytes. It does not know how connections are opened (mosq/cluster/reach.py).

    accepting worker:  client_moves -> workers_pass -> wire_take -> wire_head -> both halves are a relay (passing.pyx)
    worker of the id:  wire_serve(WIRE_RELAY) waits for the description -> wire_input -> a client, as one that came through a passage

The control plane opens connections in advance, because its handshake takes Python: some always wait for clients, on both sides. wires_wake reports that some
were used, or that a link is missing. A connection carries one client, and only MQTT: TLS and WebSocket frames end at the accepting worker. If a process
has ended, or is silent, WIRE_CLOSE ends all that is connected with it: links at once, relays in slices.

The description is a head of cext/net/relay_head.pyx. Nodes may have different configurations, so a listener is named by its port and its protocol. Invariant: WireEnds.arrivals has a connection exactly
as long as it waits for a description; so a worker that opens too many takes no place of another one. Cost: nothing for a broker whose workers are all on one machine.
"""

from libc.errno cimport EAGAIN, EMSGSIZE, ENOMEM, errno
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.string cimport memcpy, memset

from cext.base.buffer cimport buffer_take
from cext.base.slab cimport slab_at, slab_end
from cext.base.view cimport View
from cext.base.wheel cimport wheel_add
from cext.broker.auth.tls_identity cimport TLS_NAME_MAX, tls_name, tls_names
from cext.broker.core.bounds cimport WORK_ACCEPT
from cext.broker.core.broker cimport Broker
from cext.broker.core.client cimport END_LOST, END_REFUSED, client_doom, line_allowed, log_line
from cext.broker.core.client_state cimport C_ENDED, Client
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
from cext.net.relay_head cimport RELAY_HEAD_DONE, RELAY_HEAD_MORE, RelayHead, relay_head_put, relay_head_read, relay_head_size
from cext.net.system cimport MSG_PEEK, c_close, c_write, recv

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
    RELAYS_LOOKS_PER_TURN = 4096
    RELAYS_ENDS_PER_TURN = 256


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
        arrival_add(b, place, fd)
    elif what == WIRE_CLOSE:
        links_of_close(b, place)
        ends_close(b, ends)
        ends.closes += 1
        w.relays_walk = 1
        w.relays_at = 0
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
    cdef RelayHead h
    cdef int tls_n = tls_name(c, room) if c.conn.transport != NULL and tls_names(c) else 0
    cdef uint32_t input_n = c.conn.in_len - c.conn.in_off, head_n
    cdef uint8_t* p
    memset(&h, 0, sizeof(RelayHead))
    h.name, h.path = proxied_of(c), path_of(c)
    if tls_n > 0:
        h.name.p, h.name.n = room, <uint32_t>tls_n
    h.listener_port, h.origin = c.listener.port, c.listener.origin
    h.websockets, h.tls = c.listener.websockets != 0, c.listener.tls_context != NULL
    h.login_ms = <uint32_t>left_ms
    h.family, h.by_proxy, h.port = c.conn.address.family, c.conn.address.by_proxy, c.conn.address.port
    memcpy(h.ip, c.conn.address.ip, sizeof(h.ip))
    head_n = relay_head_size(&h)
    if head_n == 0:
        return EMSGSIZE
    p = conn_room(&b.reactor, half, head_n + input_n)
    if p == NULL:
        return ENOMEM
    relay_head_put(p, &h)
    memcpy(p + head_n, c.conn.in_buf + c.conn.in_off, input_n)
    conn_wrote(&b.reactor, half, head_n + input_n)
    return 0


# ---------------------------------------------------------------- from another worker

cdef void log_too_many(Broker* b, uint32_t place) noexcept nogil:
    cdef Address nowhere
    memset(&nowhere, 0, sizeof(Address))
    if line_allowed(b, &nowhere, LINE_DENIED):
        log_line(b, LOG_ERROR, snprintf(b.log.line, LOG_LINE_MAX, "Error: worker %d has more than %d connections here that wait for clients. The others are "
                                        "closed.", <int>place + 1, <int>WIRES_ARRIVALS))


cdef void arrival_add(Broker* b, uint32_t place, int fd) noexcept nogil:
    cdef WireEnds* ends = &workers_of(b).wires[place]
    cdef LinkConn* c
    if ends.arrivals_n == WIRES_ARRIVALS:
        log_too_many(b, place)
        c_close(fd)
        return
    fd = descriptor_below_limit(b, fd)
    c = socket_take(b, NO_SLOT, LINK_IN, fd) if fd >= 0 else NULL
    if c != NULL:
        c.conn.flags |= CONN_RELAY
        c.proved = place
        ends.arrivals[ends.arrivals_n] = c
        ends.arrivals_n += 1


cdef void arrival_remove(WireEnds* ends, const Conn* conn) noexcept nogil:
    cdef uint32_t i
    for i in range(ends.arrivals_n):
        if <const Conn*>ends.arrivals[i] == conn:
            ends.arrivals_n -= 1
            ends.arrivals[i] = ends.arrivals[ends.arrivals_n]
            return


cdef void wire_lost(Broker* b, Conn* conn) noexcept nogil:
    arrival_remove(&workers_of(b).wires[(<const LinkConn*>conn).proved], conn)
    conn_close(&b.reactor, conn)


cdef void ends_close(Broker* b, WireEnds* ends) noexcept nogil:
    while ends.arrivals_n:
        wire_lost(b, <Conn*>ends.arrivals[0])
    while ends.n:
        ready_drop(ends)


cdef void wires_close(Broker* b) noexcept nogil:
    cdef Workers* w = workers_of(b)
    cdef uint32_t i
    if w.wires != NULL:
        for i in range(w.n):
            ends_close(b, &w.wires[i])


cdef Listener* listener_named(Broker* b, const RelayHead* h) noexcept nogil:
    cdef Listener* d
    cdef uint32_t i
    for i in range(b.n_listeners):
        d = b.listeners[i]
        if d.port == h.listener_port and (d.websockets != 0) == h.websockets and (d.tls_context != NULL) == h.tls and (d.port or d.origin == h.origin):
            return d
    return NULL


cdef size_t wire_input(Broker* b, Conn* conn, const uint8_t* p, size_t n) noexcept nogil:
    cdef RelayHead h
    cdef int found = relay_head_read(p, n, &h)
    conn.in_need = 0
    if found == RELAY_HEAD_MORE:
        conn.in_need = h.size
        return 0
    if found == RELAY_HEAD_DONE:
        arrival_begin(b, conn, &h, p, n)
    else:
        log_line(b, LOG_ERROR, snprintf(b.log.line, LOG_LINE_MAX, "Error: worker %d has sent a wrong description of a client. Check that all nodes run versions "
                                        "of mosq that work together. The client is disconnected.", <int>(<const LinkConn*>conn).proved + 1))
    wire_lost(b, conn)
    return n


cdef void arrival_begin(Broker* b, Conn* conn, const RelayHead* h, const uint8_t* p, size_t n) noexcept nogil:
    """Make a client of the connection. `p`: its head, and the client's first bytes up to `n`."""
    cdef Listener* listener = listener_named(b, h)
    cdef Address a
    cdef int fd
    memset(&a, 0, sizeof(Address))
    a.family, a.by_proxy, a.port = h.family, h.by_proxy, h.port
    memcpy(a.ip, h.ip, sizeof(h.ip))
    b.stats.sockets += 1
    b.work += WORK_ACCEPT
    if listener == NULL:
        if line_allowed(b, &a, LINE_DENIED):
            log_line(b, LOG_ERROR, snprintf(
                b.log.line, LOG_LINE_MAX, "Error: a client came to another node through a listener on port %d%s%s that this node does not have. The client is "
                "refused. Give all nodes the same listeners.", <int>h.listener_port, b" with WebSockets" if h.websockets else b"", b" with TLS" if h.tls else b""))
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
        wire_client(b, client_open(b, listener, fd, &a), (<const LinkConn*>conn).proved, h, p, n)


cdef void wire_client(Broker* b, Client* c, uint32_t place, const RelayHead* h, const uint8_t* p, size_t n) noexcept nogil:
    cdef uint32_t login_ms = min(h.login_ms, b.settings.connect_timeout_ms)
    cdef uint32_t input_n = <uint32_t>(n - h.size)
    if c == NULL:
        return
    wheel_add(&b.wheel, &c.timer, b.reactor.now_ms + login_ms)
    c.conn.flags |= CONN_MOVED | CONN_INNER
    wire_mark(b, c, place)
    if names_fill(c, h.name, h.path) != 0:
        client_end(b, c, END_REFUSED)
        return
    if input_n == 0:
        return
    c.conn.in_buf = buffer_take(&b.reactor.buffers, input_n, &c.conn.in_cap)
    if c.conn.in_buf == NULL:
        client_end(b, c, END_REFUSED)
        return
    memcpy(c.conn.in_buf, p + h.size, input_n)
    c.conn.in_len = input_n
    newcomer_grew(b, &c.conn)
    conn_resume(&b.reactor, &c.conn)


cdef int names_fill(Client* c, View proxied, View path) noexcept nogil:
    if proxied.n and (names_take(c) == NULL or owned_set(&c.names.proxied, proxied) != 0):
        return -1
    if path.n and (names_take(c) == NULL or owned_set(&c.names.path, path) != 0):
        return -1
    return 0


# ---------------------------------------------------------------- relays that end

cdef void wire_mark(Broker* b, Client* c, uint32_t place) noexcept nogil:
    c.wire = <uint8_t>(place + 1)
    c.wire_closes = workers_of(b).wires[place].closes


cdef bint relays_slice(Broker* b) noexcept nogil:
    cdef Workers* w = workers_of(b)
    cdef uint32_t end = slab_end(&b.clients), looked = 0, doomed = 0
    cdef Client* c
    while w.relays_at < end and looked < RELAYS_LOOKS_PER_TURN and doomed < RELAYS_ENDS_PER_TURN:
        c = <Client*>slab_at(&b.clients, w.relays_at)
        w.relays_at += 1
        looked += 1
        if c == NULL or c.wire == 0 or c.wire_closes == w.wires[c.wire - 1].closes or c.state == C_ENDED:
            continue
        doomed += 1
        client_doom(b, c, END_LOST)
    w.relays_walk = w.relays_at < end
    return w.relays_walk
