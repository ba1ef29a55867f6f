"""Use the connections to workers on other machines, and open those of relayed clients. This module knows descriptors of links whose handshake is over,
keys, and the description of a client that goes in front of its bytes. It does not know how a worker proves itself (mosq/cluster/reach.py).

    client_moves -> workers_pass -> wire_dial -> (connected) wire_opened: a ticket, the description, CONNECT -> both halves are a relay (passing.pyx)

The control plane gives a key for each direction between two processes. A client waits as a newcomer, with its deadline and its limits, until its
connection is open: for a key, for one of WIRES_DIALS places, or for the end of a pause after a failed connect. The other side is callers.pyx. If a
process has ended, or is silent, WIRE_CLOSE ends all that is connected with it: links at once, relays in slices; clients whose connection is not open
yet wait again.

Nodes may have different configurations, so a listener is named by its port and its protocol. A connection carries one client, and only MQTT: TLS and
WebSocket frames end at the accepting worker. Invariant: WireEnds.dials counts the halves with a client in newcomer_prev. Cost: nothing for a broker
whose workers are all on one machine.
"""

from libc.errno cimport EAGAIN, ECONNABORTED, ECONNREFUSED, ECONNRESET, EMFILE, EMSGSIZE, ENFILE, ENOMEM, ETIMEDOUT
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.string cimport memcpy, memset, strerror

from cext.base.slab cimport slab_at, slab_end, slab_get
from cext.base.view cimport View
from cext.base.wheel cimport Timer, wheel_add, wheel_left_ms, wheel_remove
from cext.broker.auth.tls_identity cimport TLS_NAME_MAX, tls_name, tls_names
from cext.broker.core.broker cimport Broker
from cext.broker.core.client cimport END_LOST, END_REFUSED, client_doom, client_give, client_take, log_line
from cext.broker.core.client_state cimport CF_DOOMED, C_ENDED, C_MOVING, C_RELAY, Client, TIMER_CLIENT, TIMER_DIAL
from cext.broker.core.log cimport LOG_LINE_MAX, LOG_WARNING
from cext.broker.core.pending_packet cimport names_take, owned_set, path_of, proxied_of
from cext.broker.core.workers cimport WIRES_DIALS, WIRE_DIAL, WireEnds, Workers, wire_line_due, workers_of
from cext.broker.lifecycle.accept cimport connections_room, no_descriptors
from cext.broker.lifecycle.callers cimport callers_close, callers_listen
from cext.broker.lifecycle.passing cimport move_waits, relay_flow, relay_join
from cext.broker.links.sockets cimport link_accepted, link_replace, links_of_close
from cext.broker.lifecycle.session_lifecycle cimport client_end
from cext.net.conn cimport conn_close
from cext.net.conn_output cimport conn_room, conn_wrote
from cext.net.conn_state cimport CONN_INNER, CONN_RELAY
from cext.net.outward cimport Outward, conn_connect
from cext.net.relay_head cimport RelayHead
from cext.net.system cimport c_close, c_write
from cext.net.ticket cimport TicketKey, ticket_key_forget, ticket_key_set, ticket_put, ticket_size

cdef extern from * nogil:
    """
    #include <stdint.h>
    static inline void mosq_wanted_set(uint64_t* p, uint64_t bits) { __atomic_fetch_or(p, bits, __ATOMIC_RELEASE); }
    static inline void mosq_wanted_clear(uint64_t* p, uint64_t bits) { __atomic_fetch_and(p, ~bits, __ATOMIC_RELEASE); }
    """
    void mosq_wanted_set(uint64_t* p, uint64_t bits)
    void mosq_wanted_clear(uint64_t* p, uint64_t bits)


cdef enum:
    RELAYS_LOOKS_PER_TURN = 4096
    RELAYS_ENDS_PER_TURN = 256
    DIAL_MS = 5000              # for a connect
    PAUSE_MS = 100              # after a connect that failed
    # a dead machine is noticed within 5 s where nothing is sent, as in prepare() of mosq/cluster/reach.py
    WIRE_IDLE_S = 2
    WIRE_PROBE_S = 1
    WIRE_PROBES = 3


# ---------------------------------------------------------------- the control plane

cdef void wire_wanted(Workers* w, uint32_t place) noexcept nogil:
    cdef uint64_t one = 1
    mosq_wanted_set(&w.links_wanted, <uint64_t>1 << place)
    c_write(w.wires_fd, &one, 8)


cdef void wire_serve(Broker* b, uint32_t place, const WireOrder* o) noexcept nogil:
    cdef Workers* w = workers_of(b)
    cdef WireEnds* ends
    if o.what == WIRE_LISTEN and w != NULL and w.wires != NULL:
        callers_listen(b, o.fd, o.strangers_fd)
        return
    if w == NULL or place >= w.n or not w.remote >> place & 1 or b.links == NULL:
        if o.fd >= 0:
            c_close(o.fd)
        if o.what == WIRE_LISTEN:
            c_close(o.strangers_fd)
        return
    ends = &w.wires[place]
    if o.what == WIRE_OUT:
        mosq_wanted_clear(&w.links_wanted, <uint64_t>1 << place)        # this is the link
        link_replace(b, place, o.fd)
    elif o.what == WIRE_IN:
        link_accepted(b, place, o.fd)
    elif o.what == WIRE_CLOSE:
        links_of_close(b, place)
        keys_forget(ends)
        ends.closes += 1
        w.relays_walk = 1
        w.relays_at = 0
    elif o.what == WIRE_TAKE:
        key_take(ends, o)
    elif o.what == WIRE_GIVE:
        key_give(ends, o)


cdef void keys_forget(WireEnds* ends) noexcept nogil:
    ticket_key_forget(&ends.out)
    ticket_key_forget(&ends.ins[0])
    ticket_key_forget(&ends.ins[1])


cdef void key_take(WireEnds* ends, const WireOrder* o) noexcept nogil:
    """Take tickets with another key. The other process uses it when it knows that this one has it, so tickets with the key before may be on their way."""
    ticket_key_forget(&ends.ins[1])
    ends.ins[1] = ends.ins[0]
    memset(&ends.ins[0], 0, sizeof(TicketKey))
    ticket_key_set(&ends.ins[0], &o.key, 1)        # without memory, its tickets are refused


cdef void key_give(WireEnds* ends, const WireOrder* o) noexcept nogil:
    ticket_key_forget(&ends.out)
    ends.pause_ms = 0
    if o.known:
        ticket_key_set(&ends.out, &o.key, 0)
        ends.remote, ends.scope = o.remote, o.scope


cdef void wires_close(Broker* b) noexcept nogil:
    cdef Workers* w = workers_of(b)
    cdef uint32_t i
    if w.wires != NULL:
        callers_close(b)
        for i in range(w.n):
            keys_forget(&w.wires[i])


# ---------------------------------------------------------------- to another worker

cdef int wire_dial(Broker* b, Client* c, uint32_t place) noexcept nogil:
    cdef Workers* w = workers_of(b)
    cdef WireEnds* ends = &w.wires[place]
    cdef Client* half
    cdef Outward o
    cdef int err
    if not ends.out.known or ends.dials >= WIRES_DIALS or b.reactor.now_ms < ends.pause_ms:
        return EAGAIN
    half = client_take(b)
    if half == NULL:
        return ENOMEM
    memset(&o, 0, sizeof(Outward))
    o.remote, o.remote_scope, o.nodelay = ends.remote, ends.scope, 1
    o.keepalive_idle_s, o.keepalive_interval_s, o.keepalive_count = WIRE_IDLE_S, WIRE_PROBE_S, WIRE_PROBES
    err = conn_connect(&b.reactor, &half.conn, &o)
    if err:
        client_give(b, half)
        dial_failed(b, place, err)
        return EAGAIN
    half.conn.flags |= CONN_RELAY | CONN_INNER
    half.listener = c.listener
    half.state = C_RELAY
    half.newcomer_prev = c.slab.index + 1
    half.newcomer_met = c.slab.generation
    wire_mark(b, half, place)
    ends.dials += 1
    w.halves += 1
    half.timer.kind = TIMER_DIAL
    wheel_add(&b.wheel, &half.timer, b.reactor.now_ms + DIAL_MS)
    if half.conn.fd >= b.fd_limit:
        connections_room(b)              # it reads the limit again
    if half.conn.fd >= b.fd_limit:
        half_end(b, half)
        dial_failed(b, place, EMFILE)
        return EAGAIN
    return 0


cdef void dial_failed(Broker* b, uint32_t place, int err) noexcept nogil:
    """Let the clients of this worker wait a little, and log why. Without descriptors the oldest newcomer ends, as when the loop cannot accept. What ends the
    process at the other end ends the connection for echoes, too: then the control plane logs it."""
    workers_of(b).wires[place].pause_ms = b.reactor.now_ms + PAUSE_MS
    if err == EMFILE or err == ENFILE:
        no_descriptors(b)
    elif err != ECONNREFUSED and err != ECONNRESET and err != ECONNABORTED and wire_line_due(b, place, WIRE_DIAL):
        log_line(b, LOG_WARNING, snprintf(b.log.line, LOG_LINE_MAX, "Warning: cannot connect to worker %d for a client: %s. It is tried again until the client's "
                                          "connect_timeout is over.", <int>place + 1, strerror(err)))


cdef void half_end(Broker* b, Client* half) noexcept nogil:
    client_end(b, half, END_LOST)
    conn_close(&b.reactor, &half.conn)


cdef void wire_late(Broker* b, Timer* t) noexcept nogil:
    cdef Client* half = <Client*>(<uint8_t*>t - <size_t>&(<Client*>NULL).timer)
    wire_opened(b, half, ETIMEDOUT)


cdef void wire_opened(Broker* b, Client* half, int err) noexcept nogil:
    cdef uint32_t place = half.wire - 1
    cdef WireEnds* ends = &workers_of(b).wires[place]
    cdef Client* c
    if half.state != C_RELAY:
        conn_close(&b.reactor, &half.conn)       # it has ended before
        return
    c = <Client*>slab_get(&b.clients, half.newcomer_prev - 1, half.newcomer_met)
    if c == NULL or c.state != C_MOVING or c.flags & CF_DOOMED:
        half_end(b, half)
        return
    if err == 0 and ends.out.known and half.wire_closes == ends.closes:
        if wire_head(b, c, half, place) == 0:
            wire_begin(b, c, half)
            return
        client_end(b, c, END_REFUSED)            # there is no memory, or a name is too long
    else:
        if err:
            dial_failed(b, place, err)
        if move_waits(b, c, place) != 0:
            client_end(b, c, END_REFUSED)
    half_end(b, half)


cdef void wire_begin(Broker* b, Client* c, Client* half) noexcept nogil:
    workers_of(b).wires[half.wire - 1].dials -= 1
    half.newcomer_prev = 0
    wheel_remove(&b.wheel, &half.timer)
    half.timer.kind = TIMER_CLIENT
    relay_join(b, c, half)
    relay_flow(b, c)


cdef int wire_head(Broker* b, Client* c, Client* half, uint32_t place) noexcept nogil:
    """Send the other worker a ticket, a description of the client, and its input. Return 0 or errno."""
    cdef uint8_t room[TLS_NAME_MAX]
    cdef RelayHead h
    cdef int tls_n = tls_name(c, room) if c.conn.transport != NULL and tls_names(c) else 0
    cdef uint32_t input_n = c.conn.in_len - c.conn.in_off, head_n
    cdef uint8_t* p
    memset(&h, 0, sizeof(RelayHead))
    h.name, h.path = proxied_of(c), path_of(c)
    if tls_n > 0:
        h.name.p, h.name.n = room, <uint32_t>tls_n
    h.listener_port, h.origin, h.kind = c.listener.port, c.listener.origin, c.listener.kind
    h.websockets, h.tls = c.listener.websockets != 0, c.listener.tls_context != NULL
    h.login_ms = <uint32_t>wheel_left_ms(&b.wheel, &c.timer)
    h.family, h.by_proxy, h.port = c.conn.address.family, c.conn.address.by_proxy & 1, c.conn.address.port
    memcpy(h.ip, c.conn.address.ip, sizeof(h.ip))
    head_n = ticket_size(&h)
    if head_n == 0:
        return EMSGSIZE
    p = conn_room(&b.reactor, &half.conn, head_n + input_n)
    if p == NULL:
        return ENOMEM
    ticket_put(p, &workers_of(b).wires[place].out, workers_of(b).place, &h)
    memcpy(p + head_n, c.conn.in_buf + c.conn.in_off, input_n)
    conn_wrote(&b.reactor, &half.conn, head_n + input_n)
    return 0


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
    cdef uint32_t end = slab_end(&b.clients), looked = 0, ended = 0
    cdef Client* c
    while w.relays_at < end and looked < RELAYS_LOOKS_PER_TURN and ended < RELAYS_ENDS_PER_TURN:
        c = <Client*>slab_at(&b.clients, w.relays_at)
        w.relays_at += 1
        looked += 1
        if c == NULL or c.wire == 0 or c.wire_closes == w.wires[c.wire - 1].closes or c.state == C_ENDED:
            continue
        ended += 1
        if c.state == C_RELAY and c.newcomer_prev:
            wire_opened(b, c, ECONNABORTED)      # its client waits again
        else:
            client_doom(b, c, END_LOST)
    w.relays_walk = w.relays_at < end
    return w.relays_walk
