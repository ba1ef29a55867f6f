"""Carry the bytes of links: stream sockets of the parent as connections of the reactor. This module knows sockets and the length of a frame. It does
not know what a frame means.

    input  -> link_accept (until HELLO), then link_read -> LinkOps
    LinkOps.send -> the output of a connection -> flushed at the end of the turn -> link_drained

A socket that fails is noted and closed in links_turn, because a flush may report it while the links write. The parent gives new ones when a process
has started; a link that ends while both processes run is opened again by the worker that sends on it (links_life.pyx).
Invariant: PeerLog.conns has a connection exactly as long as the links may use it.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from cext.base.clock cimport clock_monotonic_us
from cext.base.view cimport View
from cext.base.wheel cimport wheel_add
from cext.base.words cimport load32
from cext.broker.core.bounds cimport LEND_MIN_BYTES
from cext.broker.core.broker cimport Broker
from cext.broker.core.client cimport log_line
from cext.broker.core.link_state cimport BrokerLinks, FANOUT_PLACES, LinkConn, LinkProbe, NO_SLOT, PeerLog, links_of
from cext.broker.core.log cimport LOG_ERROR, LOG_LINE_MAX
from cext.broker.core.turn cimport turn_input_limit
from cext.broker.links.outward cimport paused_resume
from cext.link.frame cimport LINK_HEAD, link_error_text
from cext.link.links cimport (
    link_accept, link_broken, link_connected, link_down, link_drained, link_eased, link_read, link_turn,
)
from cext.link.state cimport LINK_IN, LINK_OUT, LinkOut
from cext.net.conn cimport conn_close, conn_open, conn_resume
from cext.net.conn_output cimport conn_flush, conn_lend, conn_room, conn_wrote
from cext.net.conn_state cimport Address, CONN_CLOSED, CONN_HUNGRY, CONN_INNER, CONN_PAUSED, CONN_PEER, Conn, FLUSH_EARLY_BYTES
from cext.net.system cimport c_close
from cext.session.message cimport Message, message_ref

cdef enum:
    LENGTH_BYTES = 4            # of a frame's length, which does not count itself
    LINK_REOPEN_MS = 100        # from the end of a link to the next one; within that time the parent reports the end of a process
    REFUSED_PAUSE_MS = 60000    # without that error, until it is logged again; a link with an error is opened again at once


# ---------------------------------------------------------------- connections

cdef LinkConn* socket_take(Broker* b, uint32_t slot, int way, int fd) noexcept nogil:
    cdef LinkConn* c = <LinkConn*>calloc(1, sizeof(LinkConn))
    cdef Address nowhere
    memset(&nowhere, 0, sizeof(nowhere))
    if c == NULL or conn_open(&b.reactor, &c.conn, fd, &nowhere) != 0:
        free(c)
        c_close(fd)
        return NULL
    c.conn.flags |= CONN_PEER | CONN_INNER
    c.slot = slot
    c.proved = NO_SLOT
    c.way = <uint8_t>way
    return c


cdef void link_sockets(Broker* b, uint32_t slot, int out_fd, int in_fd) noexcept nogil:
    cdef BrokerLinks* l = links_of(b)
    if l == NULL or slot >= l.n or slot == l.links.self:
        c_close(out_fd)
        c_close(in_fd)
        return
    links_of_close(b, slot)
    # the parent gives new sockets, or -1, after the end of a process: of the one that is known now, if it is known
    link_down(&l.links, slot, 0)
    l.closed &= ~(<uint64_t>1 << slot)
    l.due = 1
    if out_fd >= 0:
        link_begin(b, slot, out_fd)
        link_accepted(b, NO_SLOT, in_fd)


cdef void links_of_close(Broker* b, uint32_t slot) noexcept nogil:
    link_close(b, slot, LINK_OUT)
    link_close(b, slot, LINK_IN)


cdef void link_close(Broker* b, uint32_t slot, int way) noexcept nogil:
    if links_of(b).peers[slot].conns[way] != NULL:
        link_broken(&links_of(b).links, slot, way)
        socket_close(b, slot, way)


cdef void link_replace(Broker* b, uint32_t slot, int fd) noexcept nogil:
    link_close(b, slot, LINK_OUT)
    links_of(b).closed &= ~(<uint64_t>1 << slot)
    link_begin(b, slot, fd)


cdef void link_begin(Broker* b, uint32_t slot, int fd) noexcept nogil:
    cdef LinkConn* c = socket_take(b, slot, LINK_OUT, fd)
    if c != NULL:
        links_of(b).peers[slot].conns[LINK_OUT] = c
        link_connected(&links_of(b).links, slot)
        links_of(b).due = 1


cdef void link_accepted(Broker* b, uint32_t proved, int fd) noexcept nogil:
    cdef LinkConn* c = socket_take(b, NO_SLOT, LINK_IN, fd)         # HELLO reports the slot: socket_bind
    if c != NULL:
        c.proved = proved


cdef void socket_close(void* broker, uint32_t slot, int way) noexcept nogil:
    cdef Broker* b = <Broker*>broker
    cdef LinkConn* c = links_of(b).peers[slot].conns[way]
    links_of(b).peers[slot].conns[way] = NULL
    if way == LINK_OUT:
        links_of(b).peers[slot].probe.number = 0         # it is sent again, at another time
    if c == NULL:
        return
    conn_close(&b.reactor, &c.conn)
    if way == LINK_OUT and not b.stopping:
        links_of(b).closed |= <uint64_t>1 << slot
        wheel_add(&b.wheel, &links_of(b).reopen, b.reactor.now_ms + LINK_REOPEN_MS)


cdef void socket_bind(void* broker, uint32_t slot, void* connection) noexcept nogil:
    cdef LinkConn* c = <LinkConn*>connection
    socket_close(broker, slot, LINK_IN)
    c.slot = slot
    links_of(<Broker*>broker).peers[slot].conns[LINK_IN] = c


cdef void link_lost(Broker* b, Conn* conn) noexcept nogil:
    (<LinkConn*>conn).gone = 1
    if (<LinkConn*>conn).slot == NO_SLOT:
        conn_close(&b.reactor, conn)
    links_of(b).gone = 1


cdef void link_freed(Conn* conn) noexcept nogil:
    free(conn)


cdef void gone_close(Broker* b, BrokerLinks* l) noexcept nogil:
    cdef uint32_t slot
    cdef int way
    l.gone = 0
    for slot in range(l.n):
        for way in range(2):
            if l.peers[slot].conns[way] != NULL and l.peers[slot].conns[way].gone:
                link_broken(&l.links, slot, way)
                socket_close(b, slot, way)


cdef inline void probe_look(LinkProbe* probe, const LinkOut* o) noexcept nogil:
    """Take the time of an acknowledgement, or begin with the message that was sent last."""
    cdef uint64_t us
    if probe.number and o.first > probe.number:
        us = clock_monotonic_us() - probe.sent_us
        probe.number = 0
        probe.last_us = us
        probe.most_us = us if us > probe.most_us else probe.most_us
        probe.sum_us += us
        probe.n += 1
    if probe.number == 0 and o.sent >= o.first and o.n:
        probe.number = o.sent
        probe.sent_us = clock_monotonic_us()


cdef bint links_turn(Broker* b) noexcept nogil:
    cdef BrokerLinks* l = links_of(b)
    cdef uint32_t slot
    if l.gone:
        gone_close(b, l)
    l.due = link_turn(&l.links)
    for slot in range(l.n):
        probe_look(&l.peers[slot].probe, &l.links.peers[slot].out)
    if l.paused_n and link_eased(&l.links):
        paused_resume(b)
    return l.due


cdef void links_read_on(Broker* b) noexcept nogil:
    cdef BrokerLinks* l = links_of(b)
    cdef LinkConn* c
    cdef uint32_t slot
    for slot in range(l.n):
        c = l.peers[slot].conns[LINK_IN]
        if c != NULL and c.conn.flags & CONN_PAUSED:
            conn_resume(&b.reactor, &c.conn)


cdef void links_close(Broker* b) noexcept nogil:
    cdef BrokerLinks* l = links_of(b)
    cdef uint32_t slot
    for slot in range(l.n):
        socket_close(b, slot, LINK_OUT)
        socket_close(b, slot, LINK_IN)


# ---------------------------------------------------------------- input

cdef void log_refused(Broker* b, uint32_t slot) noexcept nogil:
    cdef BrokerLinks* l = links_of(b)
    cdef PeerLog* peer = &l.peers[slot if slot < l.n else l.links.self]
    cdef bint again = peer.refused == l.links.error and b.reactor.now_ms - peer.refused_ms < REFUSED_PAUSE_MS
    peer.refused, peer.refused_ms = l.links.error, b.reactor.now_ms
    if again:
        return
    log_line(b, LOG_ERROR, snprintf(b.log.line, LOG_LINE_MAX, "Error: worker %d has sent a frame with a wrong %s. The link is closed.",
                                    <int>slot + 1, link_error_text(l.links.error)))


cdef size_t first_frame(Broker* b, LinkConn* c, const uint8_t* p, size_t n) noexcept nogil:
    """Read HELLO. Return the bytes used."""
    cdef uint32_t slot
    cdef int64_t used = link_accept(&links_of(b).links, p, n, c, c.proved, &slot)
    if used < 0:
        log_refused(b, c.proved)
        if c.slot != NO_SLOT:
            socket_close(b, c.slot, LINK_IN)
        conn_close(&b.reactor, &c.conn)
        return n
    return <size_t>used


cdef size_t link_input(Broker* b, Conn* conn, const uint8_t* p, size_t n) noexcept nogil:
    """Read whole frames, one after the other, as far as the turn allows."""
    cdef BrokerLinks* l = links_of(b)
    cdef LinkConn* c = <LinkConn*>conn
    cdef uint64_t limit = turn_input_limit(b)
    cdef size_t used = 0, total
    cdef int64_t taken
    conn.in_need = 0
    l.due = 1                                # answers, and room that they make, are sent at the end of the turn
    if c.way == LINK_IN and c.slot == NO_SLOT:
        used = first_frame(b, c, p, n)
        if used == 0:
            return 0
    while n - used >= LINK_HEAD and not conn.flags & CONN_CLOSED:
        total = <size_t>load32(p + used) + LENGTH_BYTES
        if total > n - used and load32(p + used) <= l.links.limits.frame_max:
            conn.in_need = <uint32_t>total
            return used
        if b.work >= limit or c.way == LINK_IN and l.fanout_places[c.slot] >= FANOUT_PLACES:
            conn_resume(&b.reactor, conn)    # the rest next turn: clients and fan-outs come first
            return used
        taken = link_read(&l.links, c.slot, c.way, p + used, total if total < n - used else n - used)
        if taken < 0:
            log_refused(b, c.slot)
            return n
        if taken == 0 and not conn.flags & CONN_CLOSED:
            conn.flags |= CONN_PAUSED            # no memory: links_read_on
            return used
        b.work += 1
        used += total
    return used if not conn.flags & CONN_CLOSED else n


# ---------------------------------------------------------------- output

cdef int64_t socket_send(void* broker, uint32_t slot, int way, const uint8_t* head, uint32_t n, void* message, View payload) noexcept nogil:
    cdef Broker* b = <Broker*>broker
    cdef LinkConn* c = links_of(b).peers[slot].conns[way]
    cdef bint lent = message != NULL and payload.n >= LEND_MIN_BYTES
    cdef uint32_t size = n if lent else n + payload.n
    cdef uint8_t* p
    if c == NULL or c.gone:
        return -1
    p = conn_room(&b.reactor, &c.conn, size)
    if p == NULL:
        return -1
    memcpy(p, head, n)
    if not lent and payload.n:
        memcpy(p + n, payload.p, payload.n)
    conn_wrote(&b.reactor, &c.conn, size)
    if lent:
        if conn_lend(&b.reactor, &c.conn, payload.p, payload.n, message) != 0:
            return -1
        message_ref(<Message*>message)
    if c.conn.out_bytes > FLUSH_EARLY_BYTES:
        conn_flush(&b.reactor, &c.conn)
    c.conn.flags |= CONN_HUNGRY
    return c.conn.out_bytes


cdef void link_empty(Broker* b, Conn* conn) noexcept nogil:
    cdef LinkConn* c = <LinkConn*>conn
    if c.slot == NO_SLOT or links_of(b).peers[c.slot].conns[c.way] != c:
        return
    link_drained(&links_of(b).links, c.slot, c.way, 0)
    links_of(b).due = 1
