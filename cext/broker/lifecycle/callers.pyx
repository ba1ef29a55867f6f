"""Accept the connections of workers on other machines. This module knows tickets (cext/net/ticket.pyx) and makes clients of the connections that begin
with a right one. It passes those that begin otherwise to the control plane, for a handshake (mosq/cluster/reach.py), with the bytes that were read.

    accept -> a ticket, a description, CONNECT   -> a client, as one that came through a passage
           -> other bytes                        -> the control plane
           -> nothing yet, or a part of a ticket -> a Caller, which has CALLER_MS for the rest

A ticket usually comes with the first bytes, so no Caller is made. A connection whose ticket is wrong is closed: the node at the other end closes the
client's, which comes again. Each reason is logged once in LINE_MS for each worker. Callers are strangers: with more than WIRES_CALLERS the oldest one
ends, which has had the most time. Invariant: Workers.callers has exactly the connections without a proof. Cost: for each client a read and two hashes.
"""

from libc.errno cimport EAGAIN, errno
from libc.stdint cimport uint8_t, uint32_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from cext.base.buffer cimport buffer_take
from cext.base.wheel cimport wheel_add, wheel_remove
from cext.broker.core.bounds cimport WORK_ACCEPT
from cext.broker.core.broker cimport Broker
from cext.broker.core.client cimport END_REFUSED, address_text, line_allowed, log_line
from cext.broker.core.client_state cimport Client, TIMER_CALLERS
from cext.broker.core.listener cimport Listener
from cext.broker.core.log cimport LOG_ERROR, LOG_LINE_MAX, LOG_WARNING
from cext.broker.core.log_rate cimport LINE_DENIED
from cext.broker.core.stats cimport REFUSED_GLOBAL, REFUSED_LISTENER, REFUSED_MEMORY
from cext.broker.core.workers cimport (
    Caller, WIRES_CALLERS, WIRE_BAD, WIRE_FORGED, WIRE_FULL, WIRE_LATE, WIRE_USED, WireEnds, Workers, wire_line_due, workers_of,
)
from cext.broker.lifecycle.accept cimport all_full, client_open, descriptor_below_limit, listener_full, newcomer_grew, refuse_connection
from cext.broker.lifecycle.passing cimport descriptor_pass
from cext.broker.lifecycle.session_lifecycle cimport client_end
from cext.broker.lifecycle.wires cimport names_fill, wire_mark
from cext.broker.persist.publication cimport memory_short
from cext.net.conn cimport conn_close, conn_open, conn_resume
from cext.net.conn_state cimport ARENA_BYTES, Address, CONN_INNER, CONN_MOVED, CONN_PEER, CONN_RELAY, Conn
from cext.net.reactor cimport reactor_listen, reactor_unlisten
from cext.net.relay_head cimport RelayHead
from cext.net.system cimport c_close, recv
from cext.net.ticket cimport (
    TICKET_AGAIN, TICKET_BAD, TICKET_FORGED, TICKET_LATE, TICKET_MORE, TICKET_OTHER, TICKET_TAKEN, Ticket, ticket_read, ticket_take,
)

cdef extern from "<fcntl.h>" nogil:
    int fcntl(int fd, int command, int argument)
    int F_DUPFD_CLOEXEC

cdef enum:
    CALLER_MS = 5000
    STRANGER_BYTES = 1024       # at most these of the first bytes go to the control plane: a handshake begins with fewer


# ---------------------------------------------------------------- connections

cdef void callers_listen(Broker* b, int fd, int strangers_fd) noexcept nogil:
    cdef Workers* w = workers_of(b)
    callers_close(b)
    w.callers_timer.kind = TIMER_CALLERS
    w.strangers_fd = strangers_fd
    w.calls.fd = fd
    reactor_listen(&b.reactor, &w.calls)


cdef void callers_close(Broker* b) noexcept nogil:
    cdef Workers* w = workers_of(b)
    cdef int fd = w.calls.fd
    while w.callers != NULL:
        caller_lost(b, &w.callers.conn)
    if w.strangers_fd < 0:
        return
    reactor_unlisten(&b.reactor, &w.calls)
    c_close(fd)
    c_close(w.strangers_fd)
    w.strangers_fd = -1


cdef void caller_accept(Broker* b, int fd, const Address* a) noexcept nogil:
    cdef const uint8_t* p = b.reactor.arena
    cdef ssize_t got
    cdef Ticket t
    cdef int found
    b.work += WORK_ACCEPT
    fd = descriptor_below_limit(b, fd)
    if fd < 0:
        return
    got = recv(fd, b.reactor.arena, ARENA_BYTES, 0)
    if got == 0 or (got < 0 and errno != EAGAIN):
        c_close(fd)
        return
    got = got if got > 0 else 0
    found = ticket_read(p, <size_t>got, &t)
    if found == TICKET_MORE:
        caller_wait(b, fd, a, p, <uint32_t>got)
    else:
        caller_settle(b, fd, a, found, &t, p, <size_t>got)


cdef void caller_wait(Broker* b, int fd, const Address* a, const uint8_t* p, uint32_t n) noexcept nogil:
    """Let a connection wait for the rest of its ticket."""
    cdef Workers* w = workers_of(b)
    cdef Caller* c
    if w.callers_n == WIRES_CALLERS:
        log_full(b, &w.callers.conn.address)
        caller_lost(b, &w.callers.conn)
    c = <Caller*>calloc(1, sizeof(Caller))
    if c == NULL or conn_open(&b.reactor, &c.conn, fd, a) != 0:
        free(c)
        c_close(fd)
        return
    c.conn.flags |= CONN_PEER | CONN_RELAY | CONN_INNER
    c.due_ms = b.reactor.now_ms + CALLER_MS
    c.previous = w.callers_last
    if w.callers == NULL:
        w.callers = c
        wheel_add(&b.wheel, &w.callers_timer, c.due_ms)
    else:
        w.callers_last.next = c
    w.callers_last = c
    w.callers_n += 1
    if n == 0:
        return
    c.conn.in_buf = buffer_take(&b.reactor.buffers, n, &c.conn.in_cap)
    if c.conn.in_buf == NULL:
        caller_lost(b, &c.conn)
        return
    memcpy(c.conn.in_buf, p, n)
    c.conn.in_len = n


cdef void caller_lost(Broker* b, Conn* conn) noexcept nogil:
    cdef Workers* w = workers_of(b)
    cdef Caller* c = <Caller*>conn
    if c.previous != NULL:
        c.previous.next = c.next
    else:
        w.callers = c.next
    if c.next != NULL:
        c.next.previous = c.previous
    else:
        w.callers_last = c.previous
    w.callers_n -= 1
    if w.callers == NULL:
        wheel_remove(&b.wheel, &w.callers_timer)
    conn_close(&b.reactor, conn)


cdef void callers_late(Broker* b) noexcept nogil:
    cdef Workers* w = workers_of(b)
    while w.callers != NULL and w.callers.due_ms <= b.reactor.now_ms:
        caller_lost(b, &w.callers.conn)
    if w.callers != NULL:
        wheel_add(&b.wheel, &w.callers_timer, w.callers.due_ms)


cdef size_t caller_input(Broker* b, Conn* conn, const uint8_t* p, size_t n) noexcept nogil:
    cdef Address a = conn.address
    cdef Ticket t
    cdef int found = ticket_read(p, n, &t)
    cdef int fd
    conn.in_need = 0
    if found == TICKET_MORE:
        conn.in_need = t.size
        return 0
    fd = fcntl(conn.fd, F_DUPFD_CLOEXEC, 0)
    fd = descriptor_below_limit(b, fd) if fd >= 0 else fd
    if fd >= 0:
        caller_settle(b, fd, &a, found, &t, p, n)
    caller_lost(b, conn)
    return n


# ---------------------------------------------------------------- judgement

cdef void log_full(Broker* b, const Address* a) noexcept nogil:
    cdef char where[64]
    if wire_line_due(b, workers_of(b).place, WIRE_FULL):
        address_text(a, where, sizeof(where))
        log_line(b, LOG_WARNING, snprintf(
            b.log.line, LOG_LINE_MAX, "Warning: too many connections from other machines have not proved themselves, and some of them are closed. One is from %s. Check "
            "which hosts reach the cluster_listener.", where))


cdef const char* why_text(int reason) noexcept nogil:
    if reason == WIRE_BAD:
        return "the description of its client is wrong. Check that all nodes run versions of mosq that work together"
    if reason == WIRE_USED:
        return "its ticket was used before. Check which hosts reach the cluster_listener"
    if reason == WIRE_LATE:
        return "its ticket is too old, because many later ones have come before. Check the network between the nodes"
    return "its ticket is wrong. If this line returns, check which hosts reach the cluster_listener"


cdef void caller_refused(Broker* b, const Address* a, uint32_t slot, int reason) noexcept nogil:
    cdef Workers* w = workers_of(b)
    cdef char where[64]
    cdef bint known = slot < w.n and w.remote >> slot & 1
    if wire_line_due(b, slot if known else w.place, reason):
        address_text(a, where, sizeof(where))
        log_line(b, LOG_WARNING, snprintf(b.log.line, LOG_LINE_MAX, "Warning: a connection from %s for a client that worker %d relays is closed: %s.", where,
                                          <int>slot + 1, why_text(reason)))


cdef int ticket_judge(Workers* w, const uint8_t* p, const Ticket* t) noexcept nogil:
    """Return TICKET_TAKEN or the reason against a ticket."""
    cdef WireEnds* ends
    cdef int found
    if t.slot >= w.n or not w.remote >> t.slot & 1:
        return TICKET_FORGED
    ends = &w.wires[t.slot]
    found = ticket_take(&ends.ins[0], p, t)
    return ticket_take(&ends.ins[1], p, t) if found == TICKET_FORGED and ends.ins[1].known else found


cdef void caller_settle(Broker* b, int fd, const Address* a, int found, const Ticket* t, const uint8_t* p, size_t n) noexcept nogil:     # parameters: of one connection
    """Decide about a connection, whose descriptor belongs to this function. p: its first n bytes; found: a TICKET_... of ticket_read."""
    cdef Workers* w = workers_of(b)
    cdef int judged
    if found == TICKET_OTHER:
        if descriptor_pass(w.strangers_fd, p, n if n < STRANGER_BYTES else STRANGER_BYTES, fd) != 0:
            log_full(b, a)
        c_close(fd)
        return
    if found == TICKET_BAD:
        caller_refused(b, a, t.slot, WIRE_BAD)
        c_close(fd)
        return
    judged = ticket_judge(w, p, t)
    if judged == TICKET_TAKEN:
        b.reactor.inner_in += n
        arrival_begin(b, fd, t.slot, &t.head, p + t.size, <uint32_t>(n - t.size))
        return
    caller_refused(b, a, t.slot, WIRE_USED if judged == TICKET_AGAIN else WIRE_LATE if judged == TICKET_LATE else WIRE_FORGED)
    c_close(fd)


# ---------------------------------------------------------------- clients

cdef Listener* listener_named(Broker* b, const RelayHead* h) noexcept nogil:
    """Return the listener that counts for a relayed client; NULL: none. Nodes have other addresses, so the port names it. Of several listeners
    with that port, only one that decides the same about its clients counts."""
    cdef Listener* d
    cdef Listener* found = NULL
    cdef uint32_t i, n = 0
    for i in range(b.n_listeners):
        d = b.listeners[i]
        if d.port == h.listener_port and (d.websockets != 0) == h.websockets and (d.tls_context != NULL) == h.tls and (d.port or d.origin == h.origin):
            n += 1
            if found == NULL or (found.kind != h.kind and d.kind == h.kind):
                found = d
    return found if n == 1 or (n > 1 and h.kind and found.kind == h.kind) else NULL


cdef void arrival_begin(Broker* b, int fd, uint32_t place, const RelayHead* h, const uint8_t* p, uint32_t n) noexcept nogil:
    """Make a client of a connection. p: the client's first n bytes."""
    cdef Listener* listener = listener_named(b, h)
    cdef Address a
    memset(&a, 0, sizeof(Address))
    a.family, a.by_proxy, a.port = h.family, h.by_proxy, h.port
    memcpy(a.ip, h.ip, sizeof(h.ip))
    b.stats.sockets += 1
    if listener == NULL:
        c_close(fd)
        if line_allowed(b, &a, LINE_DENIED):
            log_line(b, LOG_ERROR, snprintf(
                b.log.line, LOG_LINE_MAX, "Error: a client came to another node through a listener on port %d%s%s that this node does not have. The client is "
                "refused. Give all nodes the same listeners, with the same options.", <int>h.listener_port, b" with WebSockets" if h.websockets else b"", b" with TLS" if h.tls else b""))
    elif listener_full(b, listener):
        refuse_connection(b, fd, &a, REFUSED_LISTENER, "max_connections exceeded")
    elif all_full(b):
        refuse_connection(b, fd, &a, REFUSED_GLOBAL, "global_max_connections exceeded")
    elif memory_short(b, b.settings.memory_limit // 8):
        refuse_connection(b, fd, &a, REFUSED_MEMORY, "memory_limit reached")
    else:
        arrival_client(b, client_open(b, listener, fd, &a), place, h, p, n)


cdef void arrival_client(Broker* b, Client* c, uint32_t place, const RelayHead* h, const uint8_t* p, uint32_t n) noexcept nogil:
    cdef uint32_t login_ms = min(h.login_ms, b.settings.connect_timeout_ms)
    if c == NULL:
        return
    wheel_add(&b.wheel, &c.timer, b.reactor.now_ms + login_ms)
    c.conn.flags |= CONN_MOVED | CONN_INNER
    wire_mark(b, c, place)
    if names_fill(c, h.name, h.path) != 0:
        client_end(b, c, END_REFUSED)
        return
    if n == 0:
        return
    c.conn.in_buf = buffer_take(&b.reactor.buffers, n, &c.conn.in_cap)
    if c.conn.in_buf == NULL:
        client_end(b, c, END_REFUSED)
        return
    memcpy(c.conn.in_buf, p, n)
    c.conn.in_len = n
    newcomer_grew(b, &c.conn)
    conn_resume(&b.reactor, &c.conn)
