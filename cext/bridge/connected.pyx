"""Begin to work after CONNACK 0. This module knows the agreed limits, the notification, and the subscriptions at the remote broker. It does not
know how the connection was made or how it ends.

The remote broker sends its retained messages again after every SUBSCRIBE, which would repeat earlier deliveries. If the remote broker has kept the
session, and with it the subscription and its queue, a 5.0 broker is asked for retained messages only if the subscription is new (Retain Handling
1), and a 3.x broker gets no second SUBSCRIBE. Lines of QoS 0 are an exception, because no side stores anything for them.

Packet ids: the notification, SUBSCRIBE and UNSUBSCRIBE take the next ids of the queue, as in Mosquitto: one sequence over all connections.
"""

from libc.stdint cimport uint8_t, uint16_t, uint32_t
from libc.stdio cimport snprintf
from libc.string cimport memcmp

from cext.base.view cimport View
from cext.base.wheel cimport wheel_add, wheel_remove
from cext.bridge.local cimport local_session_lost, local_lower, local_notice, local_replay, local_subscribe
from cext.broker.auth.bridge cimport bridge_notify
from cext.broker.core.bridge_state cimport BRIDGE_EVENT_UP, BRIDGE_UP, Bridge, BridgeSpec, bridge_of
from cext.broker.core.broker cimport Broker
from cext.broker.core.client cimport aliases_begin, client_room, client_wrote, log_line, log_packet
from cext.broker.core.client_state cimport C_CONNECTED, Client
from cext.broker.core.log cimport LOG_DEBUG, LOG_LINE_MAX, LOG_WARNING, log_wanted
from cext.broker.lifecycle.session_lifecycle cimport session_attach
from cext.broker.persist.events cimport event_connected
from cext.broker.persist.persist cimport persist_session
from cext.broker.routing.delivery_rules cimport NO_LOCAL, RETAIN_AS_PUBLISHED
from cext.broker.routing.pump cimport pump
from cext.codec.as_client cimport (
    ConnackIn, Suback, decode_suback, encode_subscribe, encode_unsubscribe, subscribe_size, unsubscribe_size,
)
from cext.codec.encode cimport PublishHead, publish_head_put, publish_head_size
from cext.codec.frame cimport Frame, T_SUBACK, V31, V5
from cext.codec.properties cimport (
    P_MAXIMUM_PACKET_SIZE, P_MAXIMUM_QOS, P_RECEIVE_MAXIMUM, P_RETAIN_AVAILABLE, P_SERVER_KEEP_ALIVE, P_TOPIC_ALIAS_MAXIMUM,
    props_has,
)
from cext.session.queue cimport queue_take_pid
from cext.session.session cimport SESSION_DROPPING, Session
from cext.topic.lines cimport LINE_IN, Line, NOT_GRANTED

cdef enum:
    ONLY_IF_NEW = 1 << 4        # Retain Handling 1 [v5 3.8.3.1]


cdef void bridge_up(Broker* b, Bridge* l, Client* c, const ConnackIn* k) noexcept nogil:
    cdef Session* s = l.session
    cdef bint present = k.session_present if c.version != V31 else not l.spec.clean_start
    cdef View detail
    connack_limits_apply(b, l, c, k)
    if not present:
        local_session_lost(b, l)
    if l.max_qos < 2:
        local_lower(b, l)
    session_attach(b, s, c)
    persist_session(b, s)
    c.state = C_CONNECTED
    event_connected(b, c, l.spec.clean_start, present)
    l.state = BRIDGE_UP
    l.active_ms = b.reactor.now_ms
    l.qos0_held = l.qos0_held_bytes = 0
    b.stats.clients_connected += 1
    if b.sessions.count > b.stats.clients_max:
        b.stats.clients_max = b.sessions.count
    if l.local_qos != l.max_qos:
        local_subscribe(b, l)
    remote_notice(b, l, c)
    local_notice(b, l, b"1")
    remote_subscribe(b, l, c, present)
    # a broker that has lost the session may have lost more; what a full queue dropped was never sent
    if not l.retained_sent or l.spec.local_clean or s.flags & SESSION_DROPPING or (l.was_up and not present and not l.spec.clean_start):
        l.replay_all = 1
    l.was_up = 1
    l.retained_sent = 1
    local_replay(b, l, c)
    bridge_watch(b, l, c)
    if l.spec.idle_ms:
        wheel_add(&b.wheel, &l.timer, b.reactor.now_ms + l.spec.idle_ms)
    detail.p = <const uint8_t*>b"session present" if present else <const uint8_t*>b""
    detail.n = 15 if present else 0
    bridge_notify(b, l, BRIDGE_EVENT_UP, detail)
    pump(b, s, NULL)


cdef void connack_limits_apply(Broker* b, Bridge* l, Client* c, const ConnackIn* k) noexcept nogil:
    """Apply the limits of CONNACK [v5 3.2.2.3]."""
    cdef const BridgeSpec* spec = l.spec
    c.window = <uint16_t>b.settings.max_inflight_messages
    c.keepalive_s = spec.keepalive_s
    c.packet_max = spec.packet_max
    l.max_qos = 2
    l.retain_ok = spec.outgoing_retain
    if c.version == V5:
        c.alias_max_in = spec.alias_max
        c.receive_max = spec.receive_max
        if props_has(&k.props, P_RECEIVE_MAXIMUM) and k.props.receive_max < c.window:
            c.window = k.props.receive_max
        if props_has(&k.props, P_MAXIMUM_PACKET_SIZE) and (c.packet_max == 0 or k.props.packet_max < c.packet_max):
            c.packet_max = k.props.packet_max
        if props_has(&k.props, P_SERVER_KEEP_ALIVE):
            c.keepalive_s = k.props.server_keep_alive
        if props_has(&k.props, P_MAXIMUM_QOS):
            l.max_qos = k.props.max_qos
        if props_has(&k.props, P_RETAIN_AVAILABLE) and not k.props.retain_available:
            l.retain_ok = 0
        if props_has(&k.props, P_TOPIC_ALIAS_MAXIMUM):
            aliases_begin(c, k.props.alias_max if k.props.alias_max < spec.alias_max else spec.alias_max)
    l.listener.renames = l.spec.lines.maps_out or not l.retain_ok or spec.threshold != 0 or spec.loop_guard


cdef void bridge_watch(Broker* b, Bridge* l, Client* c) noexcept nogil:
    if c.keepalive_s:
        wheel_add(&b.wheel, &c.timer, b.reactor.now_ms + <uint32_t>c.keepalive_s * 1000)
    else:
        wheel_remove(&b.wheel, &c.timer)


# ---------------------------------------------------------------- packets to the remote broker

cdef bint fits(Broker* b, const Bridge* l, const Client* c, uint32_t size, const char* what, View topic) noexcept nogil:
    """Return whether the remote broker takes a packet of this size [v5 3.2.2-15]; log a warning if it does not."""
    if c.packet_max == 0 or size <= c.packet_max:
        return 1
    if log_wanted(&b.log, LOG_WARNING):
        log_line(b, LOG_WARNING, snprintf(
            b.log.line, LOG_LINE_MAX, "Warning: Bridge %.*s does not send %s %.*s: it has %u bytes, and the remote broker takes packets of %u.",
            <int>l.spec.name.n, <const char*>l.spec.name.p, what, <int>topic.n, <const char*>topic.p, size, c.packet_max))
    return 0


cdef void remote_notice(Broker* b, Bridge* l, Client* c) noexcept nogil:
    """Publish the notification beside the queue, so that no limit drops it and nothing waits before it. A place in the window is reserved for it."""
    cdef PublishHead h
    cdef uint32_t size, remaining
    cdef uint8_t* p
    cdef const BridgeSpec* spec = l.spec
    if not spec.notifications or spec.notify_local_only:
        return
    h.version = c.version
    h.qos = 1 if l.max_qos and c.window > 1 else 0
    h.retain = l.retain_ok
    h.dup = 0
    h.pid = queue_take_pid(&l.session.queue) if h.qos else 0
    h.alias = 0
    h.has_expiry = 0
    h.topic = spec.notice
    h.props.p = NULL
    h.props.n = 0
    h.n_sub_ids = 0
    h.sub_ids = NULL
    h.payload_len = 1
    size = publish_head_size(&h, &remaining)
    if not fits(b, l, c, size + 1, "its notification", spec.notice):
        return
    if h.qos:
        c.window -= 1
    p = client_room(b, c, size + 1)
    if p == NULL:
        return
    publish_head_put(p, &h, remaining, NULL)
    p[size] = c'1'
    client_wrote(b, c, p + size + 1, p)


cdef bint spec_has_filter(const BridgeSpec* spec, View filter) noexcept nogil:
    cdef uint32_t i
    for i in range(spec.lines.n):
        if spec.lines.at[i].ways & LINE_IN and spec.lines.at[i].remote_whole.n == filter.n and memcmp(
                spec.lines.at[i].remote_whole.p, filter.p, filter.n) == 0:
            return 1
    return 0


cdef void remote_subscribe(Broker* b, Bridge* l, Client* c, bint present) noexcept nogil:
    cdef uint32_t i
    cdef Line* line
    for i in range(l.spec.lines.n):
        line = &l.spec.lines.at[i]
        line.pid = 0
        if line.ways & LINE_IN:
            subscribe_send(b, l, c, line, present)
        elif l.spec.attempt_unsubscribe and not spec_has_filter(l.spec, line.remote_whole):
            unsubscribe_send(b, l, c, line.remote_whole)
    if l.old_spec == NULL:
        return
    for i in range(l.old_spec.lines.n):
        line = &l.old_spec.lines.at[i]
        if line.ways & LINE_IN and not spec_has_filter(l.spec, line.remote_whole):
            unsubscribe_send(b, l, c, line.remote_whole)


cdef void subscribe_send(Broker* b, Bridge* l, Client* c, Line* line, bint present) noexcept nogil:
    cdef uint8_t options = line.qos if line.qos < l.max_qos else l.max_qos
    cdef uint8_t* p
    cdef bint kept = present and line.qos != 0
    if c.version == V5:
        options |= RETAIN_AS_PUBLISHED
        if line.remote.n == line.remote_whole.n:
            options |= NO_LOCAL          # [v5 3.8.3-4] not with $share
        if kept and line.granted <= 2:
            options |= ONLY_IF_NEW       # retained messages came after the first grant; otherwise the local state is new
    elif kept and line.granted <= 2:
        return
    line.granted = NOT_GRANTED
    if not fits(b, l, c, subscribe_size(c.version, line.remote_whole), "SUBSCRIBE to", line.remote_whole):
        return
    p = client_room(b, c, subscribe_size(c.version, line.remote_whole))
    if p == NULL:
        return
    line.pid = queue_take_pid(&l.session.queue)
    client_wrote(b, c, encode_subscribe(p, c.version, line.pid, line.remote_whole, options), p)
    if log_wanted(&b.log, LOG_DEBUG):
        log_line(b, LOG_DEBUG, snprintf(
            b.log.line, LOG_LINE_MAX, "Bridge %.*s sending SUBSCRIBE (Mid: %d, Topic: %.*s, QoS: %d, Options: 0x%02x)", <int>l.spec.local_id.n,
            <const char*>l.spec.local_id.p, <int>line.pid, <int>line.remote_whole.n, <const char*>line.remote_whole.p, <int>(options & 3),
            <int>(options & 0xFC)))


cdef void unsubscribe_send(Broker* b, Bridge* l, Client* c, View filter) noexcept nogil:
    """Unsubscribe from a filter that another configuration may have subscribed to."""
    cdef uint8_t* p
    cdef uint16_t pid
    if not fits(b, l, c, unsubscribe_size(c.version, filter), "UNSUBSCRIBE from", filter):
        return
    p = client_room(b, c, unsubscribe_size(c.version, filter))
    if p == NULL:
        return
    pid = queue_take_pid(&l.session.queue)
    client_wrote(b, c, encode_unsubscribe(p, c.version, pid, filter), p)
    if log_wanted(&b.log, LOG_DEBUG):
        log_line(b, LOG_DEBUG, snprintf(b.log.line, LOG_LINE_MAX, "Bridge %.*s sending UNSUBSCRIBE (Mid: %d, Topic: %.*s)",
                                        <int>l.spec.local_id.n, <const char*>l.spec.local_id.p, <int>pid, <int>filter.n,
                                        <const char*>filter.p))


cdef Line* line_of_suback(Bridge* l, uint16_t pid) noexcept nogil:
    """Return the line that a SUBACK answers; NULL: none. Answers come in the order of the lines, so the search begins behind the last one."""
    cdef uint32_t n = l.spec.lines.n
    cdef uint32_t i = l.granted_line if l.granted_line < n else 0
    cdef uint32_t _
    for _ in range(n):
        if l.spec.lines.at[i].pid == pid:
            l.granted_line = i + 1
            return &l.spec.lines.at[i]
        i = i + 1 if i + 1 < n else 0
    return NULL


cdef int handle_suback(Broker* b, Client* c, const Frame* f) noexcept nogil:
    cdef Suback s
    cdef Bridge* l = bridge_of(c)
    cdef Line* line
    cdef int rc = decode_suback(f, c.version, &s)
    if rc:
        return rc
    if log_wanted(&b.log, LOG_DEBUG):
        log_packet(b, c, "Received", f.first >> 4, -1, -1)
    line = line_of_suback(l, s.pid) if f.first >> 4 == T_SUBACK else NULL
    if line == NULL:
        return 0
    line.pid = 0
    line.granted = s.codes.p[0]
    if line.granted > 2 and log_wanted(&b.log, LOG_WARNING):
        log_line(b, LOG_WARNING, snprintf(
            b.log.line, LOG_LINE_MAX, "Warning: Bridge %.*s: the remote broker refused the subscription to %.*s (%d).", <int>l.spec.name.n,
            <const char*>l.spec.name.p, <int>line.remote_whole.n, <const char*>line.remote_whole.p, <int>line.granted))
    return 0
