"""Manage the lifecycle of a bridge: requested, open, ended, changed. This module knows when something is due. It does not know the packets of
opening (opening.pyx, connected.pyx), or when and where a bridge is tried again: "connect" and "close" come from the control plane, "up", "down",
"refused", "wanted" and "idle" go there.

    keepalive: a PINGREQ every keepalive_s; if nothing arrives until the next one, the broker ends the connection
    a changed configuration: the new BridgeSpec waits in next_spec until there is no connection, then replaces the old one

Cost: nothing per message; one timer per open bridge.
"""

from libc.errno cimport EAGAIN, ENOENT
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free
from libc.string cimport memcmp, memcpy

from cext.base.hash cimport hash_bytes
from cext.base.view cimport View
from cext.base.wheel cimport timer_armed, wheel_add, wheel_remove
from cext.bridge.connected cimport bridge_watch, handle_suback
from cext.bridge.local cimport local_begin, local_clear, local_end, local_notice, local_subscribe, replay_now
from cext.bridge.opening cimport bridge_open, bridge_opened, handle_connack, text_view
from cext.broker.auth.bridge cimport bridge_find, bridge_notify, bridge_queued, past_specs_free, spec_free
from cext.broker.core.bridge_state cimport (
    BRIDGE_CONNECT, BRIDGE_DOWN, BRIDGE_EVENT_DOWN, BRIDGE_EVENT_IDLE, BRIDGE_EVENT_READY, BRIDGE_PAST_MAX, BRIDGE_RENEW, BRIDGE_STATES, BRIDGE_UP,
    Bridge, BridgeCommand, BridgeOps, BridgeSpec, Bridges, NO_EVENT_WAITING, VIA_BYTES, bridge_of, bridges_of,
)
from cext.broker.core.broker cimport Broker
from cext.broker.core.client cimport END_LOST, END_NORMAL, client_room, client_wrote, log_line, log_packet, reason_text
from cext.broker.core.client_state cimport C_OPENING, Client, TIMER_BRIDGE
from cext.broker.core.link_state cimport links_of
from cext.broker.core.log cimport LOG_DEBUG, LOG_LINE_MAX, LOG_NOTICE, log_wanted
from cext.broker.core.workers cimport workers_of
from cext.broker.lifecycle.session_lifecycle cimport client_end
from cext.broker.packets.handle_disconnect cimport handle_pingreq
from cext.codec.as_client cimport PINGREQ_SIZE, ServerDisconnect, decode_server_disconnect, encode_pingreq
from cext.codec.decode cimport decode_empty
from cext.codec.encode cimport DISCONNECT_SIZE_MAX, encode_disconnect
from cext.codec.frame cimport Frame, T_CONNACK, T_DISCONNECT, T_PINGREQ, T_PINGRESP, T_SUBACK, T_UNSUBACK, V5
from cext.codec.reason cimport (
    RC_DISCONNECT_WITH_WILL, RC_KEEP_ALIVE_TIMEOUT, RC_MALFORMED, RC_PACKET_TOO_LARGE, RC_PROTOCOL_ERROR, RC_QUOTA_EXCEEDED,
    RC_SUCCESS, RC_TOPIC_ALIAS_INVALID, RC_TOPIC_NAME_INVALID,
)
from cext.net.conn_state cimport CONN_PAUSED, TransportContext


cdef enum:
    VIA_DIGITS = 16             # at the end of Bridges.via

cdef const char* HEX_DIGITS = "0123456789abcdef"


# ---------------------------------------------------------------- packets

cdef int bridge_packet(Broker* b, Client* c, const Frame* f) noexcept nogil:
    cdef int kind = f.first >> 4
    if c.state == C_OPENING:     # [v5 3.1.4-6] [v3.1.1 3.2.0-1]
        return handle_connack(b, c, f) if kind == T_CONNACK else RC_PROTOCOL_ERROR
    if kind == T_PINGRESP:
        return handle_pingresp(b, c, f)
    if kind == T_PINGREQ:        # only clients send it, but a remote broker that does so wants an answer, as Mosquitto's bridges give it
        return handle_pingreq(b, c, f)
    if kind == T_SUBACK or kind == T_UNSUBACK:
        return handle_suback(b, c, f)
    if kind == T_DISCONNECT:
        return handle_remote_disconnect(b, c, f)
    return RC_PROTOCOL_ERROR     # a packet that only clients send; this side never offers AUTH [v5 4.12.0-7]


cdef int handle_pingresp(Broker* b, Client* c, const Frame* f) noexcept nogil:
    cdef int rc = decode_empty(f)
    if rc:
        return rc
    if log_wanted(&b.log, LOG_DEBUG):
        log_packet(b, c, "Received", T_PINGRESP, -1, -1)
    bridge_of(c).pinged_ms = 0
    return 0


cdef int handle_remote_disconnect(Broker* b, Client* c, const Frame* f) noexcept nogil:
    cdef ServerDisconnect g
    cdef int rc = decode_server_disconnect(f, c.version, &g)
    if rc:
        return rc
    if log_wanted(&b.log, LOG_NOTICE):
        log_line(b, LOG_NOTICE, snprintf(b.log.line, LOG_LINE_MAX, "Bridge %.*s: the remote broker ended the connection (reason code %d).",
                                         <int>bridge_of(c).spec.name.n, <const char*>bridge_of(c).spec.name.p, <int>g.rc))
    return END_LOST


cdef uint8_t disconnect_code_of(const Bridge* l, int reason) noexcept nogil:
    """Return a reason code that a client may send [v5 3.14.2.1]. With 0x04 the remote broker publishes the will, which reports state 0."""
    if (reason == RC_PROTOCOL_ERROR or reason == RC_TOPIC_ALIAS_INVALID or reason == RC_PACKET_TOO_LARGE
            or reason == RC_QUOTA_EXCEEDED):
        return <uint8_t>reason
    return RC_DISCONNECT_WITH_WILL if l.spec.notifications and not l.spec.notify_local_only else RC_SUCCESS


cdef void bridge_disconnect_send(Broker* b, Client* c, int reason) noexcept nogil:
    """Send DISCONNECT. A 3.x DISCONNECT cancels the will, so if there is a will, the broker closes the connection without DISCONNECT.
    A malformed packet ends the connection without DISCONNECT, as in Mosquitto [v5 4.13.1 makes it optional]."""
    cdef Bridge* l = bridge_of(c)
    cdef uint8_t code = disconnect_code_of(l, reason)
    cdef uint8_t* p
    if (c.version != V5 and code != RC_SUCCESS) or reason == RC_MALFORMED or reason == RC_TOPIC_NAME_INVALID:
        return
    p = client_room(b, c, DISCONNECT_SIZE_MAX)
    if p == NULL:
        return
    client_wrote(b, c, encode_disconnect(p, code), p)
    if log_wanted(&b.log, LOG_DEBUG):
        log_line(b, LOG_DEBUG, snprintf(b.log.line, LOG_LINE_MAX, "Bridge %.*s sending DISCONNECT", <int>l.spec.local_id.n,
                                        <const char*>l.spec.local_id.p))


# ---------------------------------------------------------------- ends

cdef void bridge_client_ended(Broker* b, Client* c, int reason) noexcept nogil:
    cdef Bridge* l = bridge_of(c)
    cdef uint8_t was = l.state
    cdef const char* why = reason_text(reason)
    if l.client != c:
        return
    l.client = NULL
    l.state = BRIDGE_DOWN
    l.pinged_ms = 0
    l.wanted = 0
    l.idle_notified = 0
    l.attempted = 1
    if b.stopping:
        return
    if was == BRIDGE_UP:
        local_notice(b, l, b"0")
    if l.spec.local_clean:
        local_clear(b, l)
    if l.next_spec != NULL:
        spec_take(b, l)
        ids_claim(b)
    if was != BRIDGE_DOWN:         # otherwise a refusal was reported
        bridge_notify(b, l, BRIDGE_EVENT_DOWN, text_view(why if why != NULL else <const char*>b"closed"))
    bridge_queued(b, l)            # the waiting deliveries may be enough for the next connection


# ---------------------------------------------------------------- timers

cdef void bridge_client_timer(Broker* b, Client* c) noexcept nogil:
    cdef Bridge* l = bridge_of(c)
    cdef uint8_t* p
    if c.state == C_OPENING:
        client_end(b, c, RC_KEEP_ALIVE_TIMEOUT)
        return
    if c.conn.flags & CONN_PAUSED:
        c.conn.rx_ms = b.reactor.now_ms          # this broker stopped reading
    if l.pinged_ms and c.conn.rx_ms < l.pinged_ms:
        client_end(b, c, RC_KEEP_ALIVE_TIMEOUT)
        return
    p = client_room(b, c, PINGREQ_SIZE)
    if p == NULL:
        return
    client_wrote(b, c, encode_pingreq(p), p)
    l.pinged_ms = b.reactor.now_ms
    if log_wanted(&b.log, LOG_DEBUG):
        log_packet(b, c, "Sending", T_PINGREQ, -1, -1)
    bridge_watch(b, l, c)


cdef void bridge_timer(Broker* b, Bridge* l) noexcept nogil:
    cdef View none
    cdef uint64_t due_ms
    none.p = NULL
    none.n = 0
    if l.event_waiting != NO_EVENT_WAITING:
        bridge_notify(b, l, l.event_waiting, none)
        bridge_queued(b, l)
    elif not l.ready and links_of(b).ready:
        bridge_ready(b, l)
        local_notice(b, l, b"0")
        bridge_queued(b, l)
    if l.state != BRIDGE_UP or l.spec.idle_ms == 0 or l.idle_notified:
        return
    due_ms = l.active_ms + l.spec.idle_ms
    if l.session.queue.pending:
        due_ms = b.reactor.now_ms + l.spec.idle_ms
    if due_ms <= b.reactor.now_ms:
        l.idle_notified = 1
        bridge_notify(b, l, BRIDGE_EVENT_IDLE, none)
    elif not timer_armed(&l.timer):
        wheel_add(&b.wheel, &l.timer, due_ms)


# ---------------------------------------------------------------- commands of the control plane

cdef void bridges_begin_all(Broker* b) noexcept nogil:
    cdef Bridges* bridges = bridges_of(b)
    cdef uint32_t i
    via_share(b)
    for i in range(bridges.n):
        bridge_begin(b, bridges.at[i])


cdef void bridges_know_workers(Broker* b) noexcept nogil:
    """Let the bridges connect. Their timers do it, because this call comes from the middle of a link's input."""
    cdef Bridges* bridges = bridges_of(b)
    cdef uint32_t i
    for i in range(bridges.n):
        if not bridges.at[i].ready and bridges.at[i].listener.bridge != NULL:
            wheel_add(&b.wheel, &bridges.at[i].timer, b.reactor.now_ms)


cdef void bridge_ready(Broker* b, Bridge* l) noexcept nogil:
    cdef View none
    none.p = NULL
    none.n = 0
    l.ready = 1
    bridge_notify(b, l, BRIDGE_EVENT_READY, none)


cdef void via_share(Broker* b) noexcept nogil:
    """Give all workers the same random number: a message that has passed one of them has passed this broker."""
    cdef uint64_t number
    cdef uint32_t i
    if b.workers == NULL:
        return
    number = hash_bytes(&workers_of(b).key, b"mosq-via", 8)
    for i in range(VIA_DIGITS):
        bridges_of(b).via[VIA_BYTES - 1 - i] = HEX_DIGITS[number >> 4 * i & 15]


cdef void bridge_begin(Broker* b, Bridge* l) noexcept nogil:
    l.listener.bridge = l
    l.naming = &l.spec.lines
    l.listener.security = b.adopted.security
    l.timer.kind = TIMER_BRIDGE
    l.event_waiting = NO_EVENT_WAITING
    l.version = l.spec.version
    l.begun_ms = b.reactor.now_ms
    l.will_qos = 1
    l.will_retain = l.spec.outgoing_retain
    l.ready = b.links == NULL or links_of(b).ready
    local_begin(b, l)            # if it failed, it is tried again before the next connection, which reports why
    if b.links != NULL and l.ready:
        bridge_ready(b, l)
    bridge_queued(b, l)


cdef int bridge_command_run(Broker* b, BridgeCommand* a) noexcept nogil:
    cdef Bridge* l
    cdef int err
    if a.kind == BRIDGE_RENEW:
        return bridges_renew(b, a)
    if a.kind == BRIDGE_STATES:
        bridge_states_fill(b, a)
        return 0
    l = bridge_find(b, a.name)
    if l == NULL:
        return ENOENT
    if a.kind == BRIDGE_CONNECT and not l.ready:
        return EAGAIN            # a reload while this worker starts; tried again after a pause
    if a.kind == BRIDGE_CONNECT:
        err = local_begin(b, l) if l.session == NULL else 0
        return err if err else bridge_open(b, l, a)
    if l.client != NULL:
        bridge_close(b, l)
    return 0


cdef void bridge_close(Broker* b, Bridge* l) noexcept nogil:
    cdef Client* c = l.client
    if l.state == BRIDGE_UP:
        bridge_disconnect_send(b, c, END_NORMAL)
    client_end(b, c, END_NORMAL)


cdef void bridge_states_fill(Broker* b, BridgeCommand* a) noexcept nogil:
    cdef Bridges* bridges = bridges_of(b)
    cdef uint32_t i, n
    cdef Bridge* l
    for i in range(bridges.n if bridges.n < a.n else a.n):
        l = bridges.at[i]
        n = l.spec.name.n if l.spec.name.n < 255 else 255
        memcpy(a.out[i].name, l.spec.name.p, n)
        a.out[i].name[n] = 0
        a.out[i].state = l.state
        a.out[i].pending = l.session.queue.pending if l.session != NULL else 0
        a.out[i].waiting_bytes = l.session.queue.waiting_bytes + l.session.queue.inflight_bytes if l.session != NULL else 0
    a.n = bridges.n


# ---------------------------------------------------------------- a new configuration

cdef inline bint same_view(View x, View y) noexcept nogil:
    return x.n == y.n and memcmp(x.p, y.p, x.n) == 0


cdef void spec_take(Broker* b, Bridge* l) noexcept nogil:
    """Apply the new configuration while there is no connection. The queue for the remote broker stays; the local subscriptions change at once."""
    cdef BridgeSpec* old = l.spec
    if l.session != NULL and not same_view(old.local_id, l.next_spec.local_id):
        local_end(b, l)
    l.spec = l.next_spec
    l.next_spec = NULL
    past_spec_add(l, old)
    if l.was_up or l.old_spec == NULL:
        spec_free(l.old_spec)
        l.old_spec = old
    else:
        spec_free(old)           # it never subscribed there
    l.version = l.spec.version
    l.will_qos = 1
    l.will_retain = l.spec.outgoing_retain
    l.was_up = l.retained_sent = l.wanted = 0
    if l.session != NULL and l.session.queue.floor == l.session.queue.tail:
        l.session.queue.last_pid = 0         # packet ids begin again, unless deliveries have theirs already
    if l.session == NULL:
        local_begin(b, l)
    elif l.spec.local_clean:
        local_clear(b, l)
    else:
        l.max_qos = 2
        local_subscribe(b, l)


cdef void past_spec_add(Bridge* l, BridgeSpec* old) noexcept nogil:
    """Remember the old configuration: queued deliveries belong to its lines, or to older ones."""
    cdef BridgeSpec* s = l.past
    cdef uint32_t n = 1
    l.naming = &l.spec.lines
    if l.session == NULL or l.session.queue.pending == 0 or l.spec.local_clean:
        past_specs_free(&l.past)
        return
    old.others += 1
    old.older = l.past
    old.upto = l.session.queue.tail
    l.past = old
    while s != NULL and n < BRIDGE_PAST_MAX - 1:
        s = s.older
        n += 1
    if s != NULL and s.older != NULL:
        l.unsure_upto = s.older.upto
        past_specs_free(&s.older)


cdef void ids_claim(Broker* b) noexcept nogil:
    """Give client ids that became free to the bridges that wait for them."""
    cdef Bridges* bridges = bridges_of(b)
    cdef uint32_t i
    for i in range(bridges.n):
        if bridges.at[i].session == NULL and bridges.at[i].listener.bridge != NULL and bridges.at[i].client == NULL:
            local_begin(b, bridges.at[i])


cdef void bridge_end(Broker* b, Bridge* l) noexcept nogil:
    if l.client != NULL:
        disconnect_and_end(b, l)
    wheel_remove(&b.wheel, &l.timer)
    local_end(b, l)


cdef void disconnect_and_end(Broker* b, Bridge* l) noexcept nogil:
    cdef Client* c = l.client
    if l.state == BRIDGE_UP:
        bridge_disconnect_send(b, c, END_NORMAL)
        local_notice(b, l, b"0")
    l.client = NULL              # the end of this client is not reported
    client_end(b, c, END_NORMAL)


cdef int bridges_renew(Broker* b, BridgeCommand* a) noexcept nogil:
    """Put the new bridges into their places, by name. Missing bridges end, changed bridges pass their configuration on, new bridges begin, in this
    order, because client ids may move from one to another."""
    cdef Bridges* bridges = bridges_of(b)
    cdef Bridge** before = bridges.at
    cdef uint32_t n_before = bridges.n, i
    cdef Bridge** place
    cdef Bridge* l
    via_share(b)
    for i in range(n_before):
        if bridge_slot_of(a.fresh, a.n, before[i].spec.name) == NULL:
            bridge_end(b, before[i])
    for i in range(n_before):
        l = before[i]
        place = bridge_slot_of(a.fresh, a.n, l.spec.name)
        if place != NULL:
            before[i] = place[0]         # with the configuration that it takes over
            place[0] = l
        else:
            before[i] = NULL
            l.gone_next = bridges.gone
            bridges.gone = l
    bridges.at = a.fresh
    bridges.n = a.n
    for i in range(n_before):
        if before[i] != NULL:
            l = bridge_find(b, before[i].spec.name)
            l.listener.security = b.adopted.security
            spec_renew(b, l, before[i].spec)
            free(before[i])
            before[i] = NULL
    for i in range(a.n):
        if a.fresh[i].listener.bridge == NULL:
            bridge_begin(b, a.fresh[i])
    ids_claim(b)
    for i in range(a.n):
        bridge_queued(b, a.fresh[i])
    a.fresh = before             # removed from the broker: the requesting thread frees them
    gone_bridges_free(bridges)
    return 0


cdef Bridge** bridge_slot_of(Bridge** at, uint32_t n, View name) noexcept nogil:
    cdef uint32_t i
    for i in range(n):
        if same_view(at[i].spec.name, name):
            return at + i
    return NULL


cdef void spec_renew(Broker* b, Bridge* l, BridgeSpec* fresh) noexcept nogil:
    spec_free(l.next_spec)
    l.next_spec = NULL
    if fresh.bytes_n == l.spec.bytes_n and fresh.key == l.spec.key:
        if fresh.tls_context != NULL:         # the configuration is the same, but its files may have changed: for the next connection
            tls_context_swap(l.spec, fresh)
        spec_free(fresh)
        return
    l.next_spec = fresh
    if l.client == NULL:
        spec_take(b, l)
    elif not fresh.reload_lazy:
        bridge_close(b, l)


cdef void tls_context_swap(BridgeSpec* s, BridgeSpec* fresh) noexcept nogil:
    cdef TransportContext* tls_context = s.tls_context
    s.tls_context = fresh.tls_context
    fresh.tls_context = tls_context


cdef void gone_bridges_free(Bridges* bridges) noexcept nogil:
    cdef Bridge** at = &bridges.gone
    cdef Bridge* l
    while at[0] != NULL:
        l = at[0]
        if l.listener.n_connections:
            at = &l.gone_next
            continue
        at[0] = l.gone_next
        bridge_free(l)


cdef void bridge_free(Bridge* l) noexcept nogil:
    spec_free(l.spec)
    spec_free(l.next_spec)
    spec_free(l.old_spec)
    past_specs_free(&l.past)
    free(l)


cdef void bridges_free(Bridges* bridges) noexcept nogil:
    cdef uint32_t i
    cdef Bridge* l
    if bridges == NULL:
        return
    for i in range(bridges.n):
        bridge_free(bridges.at[i])
    while bridges.gone != NULL:
        l = bridges.gone
        bridges.gone = l.gone_next
        bridge_free(l)
    free(bridges.at)
    free(bridges.room)
    free(bridges.props_room)
    free(bridges)


cdef void bridges_prepare(Bridges* bridges) noexcept nogil:
    cdef BridgeOps* ops = &bridges.ops
    ops.packet = bridge_packet
    ops.disconnect = bridge_disconnect_send
    ops.ended = bridge_client_ended
    ops.client_timer = bridge_client_timer
    ops.bridge_timer = bridge_timer
    ops.begin = bridges_begin_all
    ops.command = bridge_command_run
    ops.opened = bridge_opened
    ops.ready = bridges_know_workers
    ops.replay = replay_now
    ops.free = bridges_free
