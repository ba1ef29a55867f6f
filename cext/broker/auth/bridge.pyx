"""Serve bridges for the other rooms: names that change on the way, messages that may come in, events. This module knows the structs of a bridge. It
does not know how a connection is opened, used or kept alive (cext/bridge, above: BridgeOps).

A bridge is a client with the roles exchanged. Messages of the remote broker come in as messages of that session, and the session's deliveries go
out, through the same queue, window and packet ids as for any client. Only names change, and only in the bytes of one packet: nothing is allocated
or stored for it.

    remote PUBLISH -> handle_publish -> bridge_accepts -> (local name) -> retain, route
    route -> deliver -> queue -> write_single -> bridge_renames -> (remote name) -> remote

Loops: the session's subscriptions have No Local, so messages that came in through a bridge never go out through it. Retained messages from there
are not replayed to it either (Message.source_hash). Longer loops are found by a user property that each broker adds on its bridges with 5.0, in
both directions: a broker that finds its own property in a message acknowledges and drops the message. 3.x has no place for it.
"""

from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy

from cext.base.view cimport View
from cext.base.wheel cimport wheel_add
from cext.broker.auth.auth_requests cimport bridge_event_post
from cext.broker.core.bridge_state cimport (
    BRIDGE_DOWN, BRIDGE_EVENT_WANTED, BRIDGE_RETRY_MS, Bridge, BridgeSpec, Bridges, NO_EVENT_WAITING, QOS0_HELD_BYTES_MAX, QOS0_HELD_MAX,
    VIA_BYTES, bridge_of, bridges_of,
)
from cext.broker.core.broker cimport Broker
from cext.session.session cimport Session
from cext.topic.lines cimport Renaming, can_be, line_in, line_out, lines_send, renamed_n
from cext.topic.name cimport LEVELS_MAX, level_count

cdef extern from * nogil:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <string.h>
    extern void explicit_bzero(void *, size_t);
    extern void *memmem(const void *, size_t, const void *, size_t);
    """
    void explicit_bzero(void* p, size_t n)
    void* memmem(const void* p, size_t n, const void* what, size_t what_n)


cdef inline bint remote_topic_starts(View topic, const char* text, uint32_t n) noexcept nogil:
    return topic.n >= n and memcmp(topic.p, text, n) == 0


cdef bint bridge_accepts(Broker* b, Client* c, View topic, Renaming* out) noexcept nogil:
    cdef Bridge* l = bridge_of(c)
    cdef const BridgeSpec* spec = l.spec
    cdef uint32_t n
    l.active_ms = b.reactor.now_ms
    if line_in(&spec.lines, topic, out) == NULL:
        return 0
    if not can_be(out, topic):
        return 0
    n = renamed_n(out, topic)
    if out.prefix.n == 0:
        topic.p += out.cut
        topic.n -= out.cut
        return not is_reserved_topic(topic)
    # `a` + `b` may be `$CONTROL/`: only longer prefixes matter, and prefixes are few
    if out.prefix.p[0] == c'$' and forbidden_joined(out.prefix, topic, out.cut):
        return 0
    return n < LEVELS_MAX or level_count(out.prefix.p, out.prefix.n) + level_count(topic.p + out.cut, topic.n - out.cut) - 1 <= LEVELS_MAX


cdef inline bint is_reserved_topic(View topic) noexcept nogil:
    """Is this a topic that a remote broker may not write? It cannot command this broker. It may write to $SYS if a line of the configuration allows
    it, as in Mosquitto."""
    return topic.p[0] == c'$' and (remote_topic_starts(topic, b"$CONTROL/", 9) or remote_topic_starts(topic, b"$share/", 7))


cdef bint forbidden_joined(View prefix, View topic, uint32_t cut) noexcept nogil:
    cdef unsigned char start[9]
    cdef View joined
    cdef uint32_t i, n = 0
    for i in range(prefix.n if prefix.n < 9 else 9):
        start[n] = prefix.p[i]
        n += 1
    i = cut
    while n < 9 and i < topic.n:
        start[n] = topic.p[i]
        n += 1
        i += 1
    joined.p = start
    joined.n = n
    return is_reserved_topic(joined)


cdef bint bridge_renames(Broker* b, Client* c, View topic, Renaming* out, int* retain) noexcept nogil:
    cdef Bridge* l = bridge_of(c)
    l.active_ms = b.reactor.now_ms
    if not l.retain_ok:
        retain[0] = 0
    line_out(l.naming, topic, out)
    return can_be(out, topic)


cdef bint bridge_choose_lines(Client* c, uint32_t position, uint32_t floor, View topic) noexcept nogil:
    """Choose the lines under which the delivery was queued, over any number of reloads. For deliveries that another process queued, or that are
    older than BRIDGE_PAST_MAX reloads, choose the oldest known lines, if these send the topic out at all."""
    cdef Bridge* l = bridge_of(c)
    cdef BridgeSpec* s
    if l.past != NULL:
        if <int>(floor - l.past.upto) >= 0:
            past_specs_free(&l.past)
        s = l.past
        while s != NULL and <int>(position - s.upto) < 0:
            l.naming = &s.lines
            s = s.older
    if <int>(position - l.unsure_upto) >= 0 or lines_send(l.naming, topic):
        return 1
    bridge_default_lines(c)
    return 0


cdef uint32_t bridge_settled(Broker* b, Session* s) noexcept nogil:
    cdef Bridge* l = bridge_of_session(b, s)
    cdef uint32_t at = s.queue.next
    if l != NULL and l.past != NULL and <int>(l.past.upto - at) > 0:
        at = l.past.upto
    if l != NULL and <int>(l.unsure_upto - at) > 0 and <int>(s.queue.tail - l.unsure_upto) >= 0:
        at = l.unsure_upto
    return at


cdef void past_specs_free(BridgeSpec** past) noexcept nogil:
    cdef BridgeSpec* s
    while past[0] != NULL:
        s = past[0]
        past[0] = s.older
        spec_free(s)


cdef void spec_free(BridgeSpec* s) noexcept nogil:
    if s == NULL:
        return
    if s.others:
        s.others -= 1
        return
    if s.tls_context != NULL:
        s.tls_context.release(s.tls_context)
    explicit_bzero(s, s.bytes_n)         # it contains a password
    free(s)


cdef View bridge_via(Broker* b, const Client* c) noexcept nogil:
    cdef View v
    v.p = bridges_of(b).via
    v.n = VIA_BYTES if bridge_of(c).spec.loop_guard else 0
    return v


cdef bint bridge_props(Broker* b, View* props, View via) noexcept nogil:
    cdef Bridges* bridges = bridges_of(b)
    cdef uint8_t* bytes
    if bridges.props_cap < props.n + via.n:
        bytes = <uint8_t*>realloc(bridges.props_room, <size_t>props.n + via.n)
        if bytes == NULL:
            return 0
        bridges.props_room = bytes
        bridges.props_cap = props.n + via.n
    if props.n:
        memcpy(bridges.props_room, props.p, props.n)
    memcpy(bridges.props_room + props.n, via.p, via.n)
    props.p = bridges.props_room
    props.n += via.n
    return 1


cdef bint bridge_seen(Broker* b, View props) noexcept nogil:
    """Did this message pass this broker? `props` are valid (props_decode): a walk over them takes linear time, but a search for the bytes is
    faster."""
    return b.bridges != NULL and memmem(props.p, props.n, bridges_of(b).via, VIA_BYTES) != NULL


cdef Bridge* bridge_of_session(Broker* b, const Session* s) noexcept nogil:
    cdef Bridges* bridges = bridges_of(b)
    cdef uint32_t i
    for i in range(bridges.n if bridges != NULL else 0):
        if bridges.at[i].session == s:
            return bridges.at[i]
    return NULL


cdef Bridge* bridge_find(Broker* b, View name) noexcept nogil:
    cdef Bridges* bridges = bridges_of(b)
    cdef View v
    cdef uint32_t i
    for i in range(bridges.n if bridges != NULL else 0):
        v = bridges.at[i].spec.name
        if v.n == name.n and memcmp(v.p, name.p, v.n) == 0:
            return bridges.at[i]
    return NULL


cdef void session_queued(Broker* b, Session* s) noexcept nogil:
    cdef Bridge* l = bridge_of_session(b, s)
    if l != NULL:
        bridge_queued(b, l)


cdef void bridge_queued(Broker* b, Bridge* l) noexcept nogil:
    """Request a connection for a lazy bridge once `threshold` deliveries wait. The request is reported once, until the bridge was connected or has
    another configuration, and not before an earlier event is reported."""
    cdef View none
    if (l.spec.threshold == 0 or l.wanted or not l.ready or l.client != NULL or l.session == NULL or l.event_waiting != NO_EVENT_WAITING
            or l.session.queue.pending < l.spec.threshold):
        return
    l.wanted = 1
    none.p = NULL
    none.n = 0
    bridge_notify(b, l, BRIDGE_EVENT_WANTED, none)


cdef bint bridge_queues_qos0(Broker* b, Session* s, uint32_t payload_n) noexcept nogil:
    """Does the session queue this QoS 0 message? As in Mosquitto it does while a lazy bridge is down, because otherwise it would never connect, and
    during an attempt to connect. The first attempt begins with the bridge, because names are looked up first. Of these messages few may wait, so that
    QoS 1 and 2 have room."""
    cdef Bridge* l = bridge_of_session(b, s)
    if l == NULL or l.spec.threshold != 0:
        return l != NULL
    if l.state == BRIDGE_DOWN and (l.attempted or b.reactor.now_ms >= l.begun_ms + l.spec.connect_timeout_ms):
        return 0
    if l.qos0_held >= QOS0_HELD_MAX or payload_n > QOS0_HELD_BYTES_MAX - l.qos0_held_bytes:
        return 0
    l.qos0_held += 1
    l.qos0_held_bytes += payload_n
    return 1


cdef void bridge_notify(Broker* b, Bridge* l, int event, View detail) noexcept nogil:
    if bridge_event_post(b, l.spec.name, event, detail):
        l.event_waiting = NO_EVENT_WAITING
        return
    l.event_waiting = <unsigned char>event
    wheel_add(&b.wheel, &l.timer, b.reactor.now_ms + BRIDGE_RETRY_MS)
