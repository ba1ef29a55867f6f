"""Make the events of traces: packets in both directions, decisions about topics, queued and dropped messages, the end of a client. This module knows
packets and rules. It changes nothing.

A decision about a topic is made by fixed rules, so it is computed again for the trace, within the same turn; nothing on the way of a message records it.
Passwords, authentication data, payloads on `$CONTROL/` topics (they may be commands with passwords) and payloads beyond the bound never go into an
event.
"""

from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport malloc
from libc.string cimport memcmp, memcpy, memset, strlen

from cext.base.view cimport View
from cext.broker.core.broker cimport Broker
from cext.broker.core.client cimport client_id_of
from cext.broker.core.client_state cimport CF_BRIDGE, CF_TRUSTED, C_NEW, Client, PENDING_CONNECT
from cext.broker.core.listener cimport Security
from cext.broker.core.publication_state cimport Publication
from cext.broker.core.session_refs cimport session_client, session_security
from cext.broker.core.stats cimport DROP_ACL_READ
from cext.broker.core.trace_state cimport (
    TE_ACCESS, TE_CLOSED, TE_DROPPED, TE_QUEUED, TE_RECEIVED, TE_SENT, TRACE_ALLOWED, TRACE_BY_PLUGIN,
    TRACE_DENIED,
)
from cext.broker.core.workers cimport worker_of_id, workers_of
from cext.broker.rules.acl cimport ACL_READ, ACL_WRITE, topic_reserved
from cext.broker.rules.reasons cimport Reason, acl_reason, roles_reason
from cext.broker.trace.ring cimport TraceEvent, trace_put
from cext.broker.trace.slots cimport trace_has_room, trace_more, trace_owner_gone, trace_wanted, tracing_of
from cext.codec.decode cimport (
    Auth, Connect, Publish, Subscribe, SubscribeItem, decode_auth, decode_connect, decode_publish,
    decode_subscribe, decode_unsubscribe, subscribe_next, unsubscribe_next,
)
from cext.codec.frame cimport (
    Frame, T_AUTH, T_CONNACK, T_CONNECT, T_PUBLISH, T_SUBSCRIBE, T_UNSUBSCRIBE, V5, frame_next,
)
from cext.codec.properties cimport P_AUTH_DATA, P_TOPIC_ALIAS, Props, props_decode, props_has
from cext.session.session cimport Session

cdef enum:
    TRACED_SUBSCRIBE = 4
    TRACED_UNSUBSCRIBE = 8
    # bytes that are shown of a CONNECT that cannot be decoded, and of other packets with secrets: no field of a client
    CONNECT_HEAD_MAX = 12
    OTHER_HEAD_MAX = 4
    MOUNTED_MAX = 2 * 65536
    DECISIONS_MAX = 100         # of one packet: a SUBSCRIBE of 2 MB has room for half a million filters


# ---------------------------------------------------------------- parts of an event

cdef void event_of(TraceEvent* e, uint8_t kind, Client* c, View id) noexcept nogil:
    memset(e, 0, sizeof(TraceEvent))
    e.kind = kind
    e.client = c
    e.id = id
    if c != NULL:
        e.version = c.version
        if c.session != NULL:
            e.queue = c.session.queue.pending


cdef View id_of_connect(const uint8_t* p, uint32_t n) noexcept nogil:
    cdef Frame f
    cdef Connect k
    memset(&k, 0, sizeof(k))
    if frame_next(p, n, 0, &f) == 1:
        decode_connect(&f, &k)
    return k.client_id


cdef View id_of(Broker* b, Client* c) noexcept nogil:
    """Return the client id, also of a client whose CONNECT is being handled."""
    if c.session == NULL and c.pending_packet != NULL and c.pending_packet.kind == PENDING_CONNECT and c.pending_packet.frame != NULL:
        return id_of_connect(c.pending_packet.frame, c.pending_packet.frame_n)
    if c.session == NULL and b.log.client == c and b.log.connecting.p != NULL:
        return b.log.connecting
    return client_id_of(c)


cdef View mounted(Broker* b, const Client* c, View topic) noexcept nogil:
    """Return the topic with the listener's mount point."""
    cdef View out = topic
    cdef uint8_t* room
    if c.listener == NULL or c.listener.mount_point.n == 0 or topic.n == 0:
        return topic
    if tracing_of(b).mounted == NULL:
        tracing_of(b).mounted = <uint8_t*>malloc(MOUNTED_MAX)
    room = tracing_of(b).mounted
    out.n = c.listener.mount_point.n + topic.n
    if room == NULL or out.n > MOUNTED_MAX:
        return topic
    memcpy(room, c.listener.mount_point.p, c.listener.mount_point.n)
    memcpy(room + c.listener.mount_point.n, topic.p, topic.n)
    out.p = room
    return out


cdef bint is_control(View topic) noexcept nogil:
    return topic.n >= 9 and memcmp(topic.p, <const char*>b"$CONTROL/", 9) == 0


cdef View aliased(const Client* c, const Publish* p) noexcept nogil:
    """Return the topic of a received PUBLISH, also if it is only named by an alias."""
    if p.topic.n or c.aliases == NULL or c.aliases.taken == NULL or not props_has(&p.props, P_TOPIC_ALIAS):
        return p.topic
    if p.props.alias == 0 or p.props.alias > c.alias_max_in or c.aliases.taken[p.props.alias - 1].topic == NULL:
        return p.topic
    cdef View v
    v.p = c.aliases.taken[p.props.alias - 1].topic
    v.n = c.aliases.taken[p.props.alias - 1].n
    return v


# ---------------------------------------------------------------- secrets

cdef void head_only(TraceEvent* e, const Frame* f, uint32_t most) noexcept nogil:
    e.head.n = f.total_len if f.total_len < most else most


cdef void hide_connect(TraceEvent* e, const Frame* f) noexcept nogil:
    cdef Connect k
    memset(&k, 0, sizeof(k))
    if decode_connect(f, &k) != 0:
        head_only(e, f, CONNECT_HEAD_MAX)
        return
    e.secrets[0] = k.password
    e.secrets[1] = k.will_payload
    if props_has(&k.props, P_AUTH_DATA):
        e.secrets[2] = k.props.auth_data


cdef void hide_auth(TraceEvent* e, const Frame* f, int version) noexcept nogil:
    cdef Auth a
    if decode_auth(f, version, &a) != 0:
        head_only(e, f, OTHER_HEAD_MAX)
    elif props_has(&a.props, P_AUTH_DATA):
        e.secrets[0] = a.props.auth_data


cdef void hide_connack(TraceEvent* e, const Frame* f, int version) noexcept nogil:
    cdef Props props
    cdef const uint8_t* p = f.body + 2
    if version != V5 or f.body_len <= 2:
        return
    if props_decode(&p, f.body + f.body_len, T_CONNACK, &props) != 0:
        head_only(e, f, OTHER_HEAD_MAX)
    elif props_has(&props, P_AUTH_DATA):
        e.secrets[0] = props.auth_data


cdef void hide_publish(TraceEvent* e, const Frame* f) noexcept nogil:
    """Leave only the topic of a PUBLISH that cannot be decoded: where its payload begins is not known."""
    cdef uint32_t head = <uint32_t>(f.body - f.start)
    cdef uint32_t n = 0
    if f.body_len >= 2:
        n = 2 + (<uint32_t>f.body[0] << 8 | f.body[1])
    head_only(e, f, head + n if n <= f.body_len else head)


cdef void hide_secrets(TraceEvent* e, const Frame* f, int version) noexcept nogil:
    cdef int kind = f.first >> 4
    if kind == T_CONNECT:
        hide_connect(e, f)
    elif kind == T_AUTH:
        hide_auth(e, f, version)
    elif kind == T_CONNACK:
        hide_connack(e, f, version)
    elif kind == T_PUBLISH and e.topic.n == 0 and e.payload.n == 0:
        hide_publish(e, f)


cdef void packet_put(Broker* b, TraceEvent* e, const Frame* f, View payload) noexcept nogil:
    """Write the event of a packet; payload: the end of the frame, or n 0."""
    e.head.p = f.start
    e.head.n = e.total = f.total_len
    if payload.n:
        e.head.n -= payload.n
        e.payload = payload
        if is_control(e.topic):
            e.payload.n = 0
    hide_secrets(e, f, e.version)
    trace_put(b, e)


# ---------------------------------------------------------------- decisions

cdef bint decide(Broker* b, const Session* s, Reason* r, uint8_t* code) noexcept nogil:
    """Write the decision about r.topic into r and code. Return 0 if no rules count for the session."""
    cdef Security* security = session_security(s)
    cdef int verdict = -1
    r.n = 0
    r.client_id.p = <const uint8_t*>s.client_id
    r.client_id.n = s.id_len
    r.username.p = <const uint8_t*>s.username
    r.username.n = <uint32_t>strlen(s.username) if s.username != NULL else 0
    if r.access == ACL_WRITE and topic_reserved(r.topic) and not is_control(r.topic):
        memcpy(r.text, <const char*>b"no client may publish to this topic", 35)
        r.n = 35
        code[0] = TRACE_DENIED
        return 1
    if security == NULL or not (security.acl != NULL or security.roles != NULL or security.authorize):
        return 0
    code[0] = TRACE_BY_PLUGIN
    if security.authorize:
        memcpy(r.text, <const char*>b"a plugin decides", 16)
        r.n = 16
        return 1
    if security.roles != NULL:
        verdict = roles_reason(security.roles, r)
    if verdict < 0 and security.acl != NULL:
        if r.access > ACL_WRITE:
            return 0             # an acl_file has no rules for subscriptions
        r.n = 0
        verdict = acl_reason(security.acl, r)
    code[0] = TRACE_ALLOWED if verdict == 1 else TRACE_DENIED
    return 1


cdef void access_put(Broker* b, TraceEvent* packet, const Session* s, View topic, uint8_t access) noexcept nogil:
    """Write the event of a decision for the traces of the packet that it is about."""
    cdef TraceEvent e
    cdef Reason r
    r.topic = topic
    r.access = access
    event_of(&e, TE_ACCESS, packet.client, packet.id)
    # a SUBSCRIBE may have a million filters: above the rate no decision is computed
    if s == NULL or topic.n == 0 or not trace_has_room(b, packet.slots) or not decide(b, s, &r, &e.code):
        return
    e.slots = trace_more(b, packet.slots)
    e.topic = topic
    e.text.p = r.text
    e.text.n = r.n
    e.qos = access
    if e.slots:
        trace_put(b, &e)


cdef void filters_put(Broker* b, Client* c, TraceEvent* packet, const Frame* f) noexcept nogil:
    """Write a decision for each of the first filters of SUBSCRIBE and UNSUBSCRIBE."""
    cdef Subscribe items
    cdef SubscribeItem item
    cdef View filter
    cdef int left = DECISIONS_MAX
    filter.p = NULL
    filter.n = 0
    if f.first >> 4 == T_SUBSCRIBE:
        if decode_subscribe(f, c.version, &items) == 0:
            while left and subscribe_next(&items, &item):
                left -= 1
                access_put(b, packet, c.session, mounted(b, c, item.filter), TRACED_SUBSCRIBE)
    elif decode_unsubscribe(f, c.version, &items) == 0:
        while left and unsubscribe_next(&items, &filter):
            left -= 1
            access_put(b, packet, c.session, mounted(b, c, filter), TRACED_UNSUBSCRIBE)


# ---------------------------------------------------------------- packets

cdef void trace_received(Broker* b, Client* c, const Frame* f) noexcept nogil:
    cdef TraceEvent e
    cdef Publish p
    cdef View payload
    cdef int kind = f.first >> 4
    payload.p = NULL
    payload.n = 0
    event_of(&e, TE_RECEIVED, c, id_of(b, c))
    if c.state == C_NEW and kind == T_CONNECT:
        e.id = id_of_connect(f.start, f.total_len)
        e.version = 0            # of the packet, which is not decoded yet
        if b.workers != NULL and e.id.n and worker_of_id(workers_of(b), e.id) != workers_of(b).place:
            return               # the worker of the client id gets the packet too, and traces it
    if kind == T_PUBLISH and c.session != NULL:
        if decode_publish(f, c.version, &p) == 0:
            e.topic = mounted(b, c, aliased(c, &p))
            payload = p.payload
    e.slots = trace_wanted(b, c, e.id, e.topic)
    if not e.slots:
        return
    packet_put(b, &e, f, payload)
    if c.session == NULL or c.flags & (CF_TRUSTED | CF_BRIDGE):
        return
    if kind == T_PUBLISH:
        access_put(b, &e, c.session, e.topic, ACL_WRITE)
    elif kind == T_SUBSCRIBE or kind == T_UNSUBSCRIBE:
        filters_put(b, c, &e, f)


cdef void trace_sent(Broker* b, Client* c, const uint8_t* p, uint32_t n) noexcept nogil:
    cdef TraceEvent e
    cdef Frame f
    cdef Publish publish
    cdef View payload
    payload.p = NULL
    payload.n = 0
    if frame_next(p, n, 0, &f) != 1:
        return
    event_of(&e, TE_SENT, c, id_of(b, c))
    if f.first >> 4 == T_PUBLISH:
        if decode_publish(&f, c.version, &publish) == 0:
            e.topic = mounted(b, c, publish.topic)
            payload = publish.payload
    elif f.first >> 4 == T_CONNECT and c.flags & CF_BRIDGE:
        e.version = 0
    e.slots = trace_wanted(b, c, e.id, e.topic)
    if e.slots:
        packet_put(b, &e, &f, payload)


cdef void trace_published(Broker* b, Client* c, const Publication* p, const uint8_t* head, uint32_t n) noexcept nogil:
    cdef TraceEvent e
    event_of(&e, TE_SENT, c, id_of(b, c))
    e.topic = p.topic
    e.slots = trace_wanted(b, c, e.id, e.topic)
    if not e.slots:
        return
    if c.session != NULL and not c.flags & (CF_TRUSTED | CF_BRIDGE):
        access_put(b, &e, c.session, p.topic, ACL_READ)
    e.head.p = head
    e.head.n = n
    e.payload = p.payload
    e.total = n + p.payload.n
    if is_control(e.topic):
        e.payload.n = 0
    trace_put(b, &e)


# ---------------------------------------------------------------- queues and drops

cdef void session_event(TraceEvent* e, uint8_t kind, const Session* s) noexcept nogil:
    cdef View id
    id.p = NULL
    id.n = 0
    if s != NULL:
        id.p = <const uint8_t*>s.client_id
        id.n = s.id_len
    event_of(e, kind, session_client(s) if s != NULL else NULL, id)
    if s != NULL:
        e.queue = s.queue.pending


cdef void trace_queued(Broker* b, const Session* s, View topic, int qos) noexcept nogil:
    cdef TraceEvent e
    session_event(&e, TE_QUEUED, s)
    e.topic = topic
    e.qos = <uint8_t>qos
    e.slots = trace_wanted(b, e.client, e.id, topic)
    if e.slots:
        trace_put(b, &e)


cdef void trace_dropped(Broker* b, const Session* s, int reason, View topic) noexcept nogil:
    cdef TraceEvent e
    session_event(&e, TE_DROPPED, s)
    e.topic = topic
    e.code = <uint8_t>reason
    e.slots = trace_wanted(b, e.client, e.id, topic)
    if not e.slots:
        return
    if reason == DROP_ACL_READ and s != NULL:
        access_put(b, &e, s, topic, ACL_READ)
    trace_put(b, &e)


cdef void trace_closed(Broker* b, Client* c, const char* reason) noexcept nogil:
    cdef TraceEvent e
    cdef View none
    none.p = NULL
    none.n = 0
    event_of(&e, TE_CLOSED, c, id_of(b, c))
    e.text.p = <const uint8_t*>reason if reason != NULL else <const uint8_t*>b"disconnected"
    e.text.n = <uint32_t>strlen(<const char*>e.text.p)
    e.slots = trace_wanted(b, c, e.id, none)
    if e.slots:
        trace_put(b, &e)
    trace_owner_gone(b, c)
