"""The plugin gate of a session, for securities in which a plugin decides about topics or changes messages. It remembers verdicts
and queues the deliveries that wait for one. This module knows sessions and auth requests, not how a delivery is sent
(deliver.pyx).

    delivery -> verdict known: denied -> dropped
             -> verdict known: allowed, unchanged, gate empty -> sent
             -> otherwise queued at the end of the gate -> one auth request per topic -> ready or dropped
             -> sent from the head, in order

Invariants: a session's deliveries keep their order, because a ready delivery waits for those before it. A gated delivery delays
only its own session. The gate is bounded in the same way as a queue. After a reload or for another client, the gate forgets all
verdicts and sends its open auth requests again.
Cost: a session of a security without plugins has no gate and pays one look at its security. A gate costs a keyed hash and four
comparisons.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy

from cext.base.hash cimport hash_bytes
from cext.base.view cimport View
from cext.broker.auth.auth_requests cimport (
    ASK_ACL, ASK_MESSAGE_OUT, AuthRequest, FOR_DELIVERY, NATIVE_ASK_OTHERS, NATIVE_BY_RULES, NativeAccess, auth_request_bytes,
    auth_request_end, auth_request_new, auth_request_send, is_native_at_once, native_access,
)
from cext.broker.core.access cimport access_allows, access_by_roles, access_may_subscribe
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport Client
from cext.broker.core.durable cimport durable_lacks_memory
from cext.broker.core.listener cimport Security
from cext.broker.core.publication_state cimport Publication
from cext.broker.core.session_refs cimport session_client, session_security
from cext.broker.core.settings cimport DURABILITY_NONE
from cext.broker.core.stats cimport DROP_ACL_READ, DROP_MEMORY, DROP_QUEUE_BYTES, DROP_QUEUE_MESSAGES, DROP_SESSION_ENDED
from cext.broker.persist.accounts cimport ACCOUNT_DROPPED, ACCOUNT_GONE, account_turned_away
from cext.broker.persist.persist cimport persist_gated, persist_gated_done
from cext.broker.persist.publication cimport drop, drop_unlogged, publication_message
from cext.broker.rules.acl cimport ACL_ANONYMOUS, ACL_READ, acl_allows
from cext.session.message cimport Message, message_ref, message_unref
from cext.session.session cimport Session

cdef enum:
    GATE_RING_MIN = 8
    SPAN_MAX = 1 << 24           # largest distance of positions that a restart accepts
    LOOK_MAX = 1000              # earlier deliveries that are looked at for the same request


# ---------------------------------------------------------------- verdicts

cdef PluginGate* plugin_gate_of(Broker* b, Session* s) noexcept nogil:
    """Return the session's gate, made if needed, with verdicts of the current epoch only; NULL = no memory."""
    cdef PluginGate* g = session_plugin_gate(s)
    if g == NULL:
        g = <PluginGate*>calloc(1, sizeof(PluginGate))
        if g == NULL:
            return NULL
        g.epoch = b.access_epoch
        s.plugin_gate = g
    if g.epoch != b.access_epoch:
        verdicts_forget(g)
        g.epoch = b.access_epoch
    return g


cdef void verdicts_forget(PluginGate* g) noexcept nogil:
    cdef uint32_t i
    for i in range(DECISIONS):
        free(g.decisions[i].topic)
        g.decisions[i].topic = NULL
        g.decisions[i].hash = 0


cdef inline uint64_t hash_of(Broker* b, View topic) noexcept nogil:
    return hash_bytes(&b.key, topic.p, topic.n) | 1      # 0 = free slot


cdef Decision* verdict_find(PluginGate* g, uint64_t hash, View topic, uint8_t access) noexcept nogil:
    cdef Decision* d = &g.decisions[(hash >> 8) % (DECISIONS // DECISION_WAYS) * DECISION_WAYS]
    cdef int _
    for _ in range(DECISION_WAYS):
        if d.hash == hash and d.access == access and d.n == topic.n and memcmp(d.topic, topic.p, topic.n) == 0:
            return d
        d += 1
    return NULL


cdef int plugin_gate_verdict(Broker* b, Session* s, View topic, uint8_t access) noexcept nogil:
    cdef PluginGate* g = session_plugin_gate(s)
    cdef Decision* d
    if g == NULL or g.epoch != b.access_epoch:
        return -1
    d = verdict_find(g, hash_of(b, topic), topic, access)
    return d.allowed if d != NULL else -1


cdef int plugin_gate_known(Broker* b, Session* s, View topic, uint8_t access) noexcept nogil:
    return -1 if session_security(s).each else plugin_gate_verdict(b, s, topic, access)


cdef int plugin_gate_may_read(Broker* b, Session* s, View topic) noexcept nogil:
    if s.security != NULL and session_security(s).authorize:
        return plugin_gate_known(b, s, topic, ACL_READ)
    return access_allows(b, s, topic, ACL_READ)


cdef void plugin_gate_learn(Broker* b, Session* s, View topic, uint8_t access, bint allowed) noexcept nogil:
    cdef PluginGate* g = plugin_gate_of(b, s)
    cdef uint64_t hash
    cdef Decision* d
    cdef uint8_t* copy
    if g == NULL or topic.n > DECISION_TOPIC_MAX:
        return                   # the verdict is requested again
    hash = hash_of(b, topic)
    d = verdict_find(g, hash, topic, access)
    if d != NULL:
        d.allowed = allowed
        return
    copy = <uint8_t*>malloc(topic.n + <size_t>1)
    if copy == NULL:
        return
    memcpy(copy, topic.p, topic.n)
    d = &g.decisions[(hash >> 8) % (DECISIONS // DECISION_WAYS) * DECISION_WAYS + g.next_way]
    g.next_way = (g.next_way + 1) % DECISION_WAYS
    free(d.topic)
    d.topic = copy
    d.n = topic.n
    d.hash = hash
    d.access = access
    d.allowed = allowed


cdef bint plugin_gate_settled(Broker* b, Session* s, View topic, uint8_t access, int verdict) noexcept nogil:
    cdef Security* security = session_security(s)
    if verdict >= 0:
        return verdict
    if security == NULL or (security.acl == NULL and security.roles == NULL):
        # a plugin was asked and had no opinion: denied, as in Mosquitto; after a reload there may be no plugin
        return security != NULL and not security.authorize
    if access == ACL_SUBSCRIBE:
        return access_may_subscribe(b, s, topic) and access_by_roles(b, s, topic, access)
    if access == ACL_UNSUBSCRIBE:
        return access_by_roles(b, s, topic, access)
    return access_allows(b, s, topic, access)


cdef int plugin_gate_at_once(Broker* b, Client* c, Session* s, NativeAccess* asked) noexcept nogil:
    cdef int verdict = native_access(c, s, asked)
    return plugin_gate_settled(b, s, asked.topic, asked.access, verdict) if verdict == NATIVE_BY_RULES else verdict


cdef int delivery_at_once(Broker* b, Session* s, const Publication* p) noexcept nogil:
    cdef NativeAccess asked
    asked.access = ACL_READ
    asked.qos = p.qos
    asked.retain = p.retain
    asked.topic = p.topic
    asked.payload = p.payload
    asked.props = p.props
    return plugin_gate_at_once(b, session_client(s), s, &asked)


# ---------------------------------------------------------------- the ring of gated deliveries

cdef int gate_ring_grow(PluginGate* g) noexcept nogil:
    cdef uint32_t capacity = (g.mask + 1) * 2 if g.ring != NULL else GATE_RING_MIN
    cdef uint32_t i = g.head
    cdef GatedDelivery* ring = <GatedDelivery*>malloc(capacity * sizeof(GatedDelivery))
    if ring == NULL:
        return -1
    while i != g.tail:
        ring[i & (capacity - 1)] = g.ring[i & g.mask]
        i += 1
    free(g.ring)
    g.ring = ring
    g.mask = capacity - 1
    return 0


cdef int gate_has_room(Broker* b, PluginGate* g) noexcept nogil:
    """Return the reason why the gate has no room for one more delivery; -1 = it has room."""
    cdef uint32_t most = b.settings.max_queued_messages or GATED_MAX
    if g.tail - g.head >= most:
        return DROP_QUEUE_MESSAGES
    if b.settings.max_queued_bytes and g.bytes >= b.settings.max_queued_bytes:
        return DROP_QUEUE_BYTES
    if (g.ring == NULL or g.tail - g.head > g.mask) and gate_ring_grow(g) != 0:
        return DROP_MEMORY
    return -1


cdef bint is_transformed(Security* security, View topic) noexcept nogil:
    cdef View no_name
    no_name.p = NULL
    no_name.n = 0
    return security != NULL and security.transform_out != NULL and acl_allows(
        security.transform_out, ACL_ANONYMOUS, no_name, no_name, topic, ACL_READ)


cdef bint plugin_gate_takes(Broker* b, Session* s, Publication* p, uint8_t qos, uint8_t retain, const uint32_t* sub_ids,
                            uint32_t n_sub_ids) noexcept nogil:
    cdef Security* security = session_security(s)
    cdef PluginGate* g
    cdef int verdict, why
    if s.client == NULL and not qos and not b.settings.queue_qos0:
        return 1                 # no client and nothing to queue
    verdict = plugin_gate_may_read(b, s, p.topic)
    if verdict < 0 and is_native_at_once(security):
        verdict = delivery_at_once(b, s, p)
    if verdict == 0:
        drop(b, s, DROP_ACL_READ, p.topic)
        return 1
    g = plugin_gate_of(b, s)
    if g == NULL:
        gate_failed(b, s, p, qos)
        return 1
    if verdict == 1 and g.head == g.tail and not is_transformed(security, p.topic):
        return 0
    why = gate_has_room(b, g)
    if why < 0 and not gate_push(b, s, p, qos, retain, sub_ids, n_sub_ids):
        gate_failed(b, s, p, qos)
        return 1
    if why >= 0:
        drop(b, s, why, p.topic)
        account_turned_away(b, s, qos, ACCOUNT_DROPPED)
        return 1
    gate_advance(b, s, g, g.tail - 1, verdict)
    return 1


cdef void gate_failed(Broker* b, Session* s, Publication* p, uint8_t qos) noexcept nogil:
    cdef bint recorded = qos and s.store_session_id != 0 and p.durability != DURABILITY_NONE
    if recorded and p.patient:
        p.lacks = 1
        return
    drop(b, s, DROP_MEMORY, p.topic)
    account_turned_away(b, s, qos, ACCOUNT_DROPPED)
    if recorded:
        durable_lacks_memory(b)          # the publisher gets no acknowledgement


cdef bint gate_push(Broker* b, Session* s, Publication* p, uint8_t qos, uint8_t retain, const uint32_t* sub_ids,
                    uint32_t n_sub_ids) noexcept nogil:
    """Append a delivery to the session's gate. Returns 0 if there is no memory."""
    cdef PluginGate* g = session_plugin_gate(s)
    cdef GatedDelivery* h
    cdef Message* m = publication_message(b, p, sub_ids, n_sub_ids)
    cdef uint32_t sub_id = sub_ids[0] if n_sub_ids == 1 else 0
    if m == NULL:
        return 0
    if qos and p.durability != DURABILITY_NONE and persist_gated(b, s, m, g.tail, qos, retain, sub_id) != 0:
        message_unref(&b.messages, &b.reactor.buffers, m)
        return 0
    h = gated_at(g, g.tail)
    h.message = m
    h.hash = hash_of(b, m.topic)
    h.qos = qos
    h.retain = retain
    h.sub_id = sub_id
    h.shared = p.share != 0
    h.group = s.shares[p.share - 1].group if p.share else 0
    h.state = GATED_ASKED
    g.tail += 1
    g.bytes += m.payload.n
    return 1


cdef bint verdict_requested(PluginGate* g, uint32_t position) noexcept nogil:
    """Return whether an earlier gated delivery waits for the same verdict. If it is too far away, the plugin is asked once more."""
    cdef GatedDelivery* h = gated_at(g, position)
    cdef GatedDelivery* other
    cdef uint32_t i = position
    while i != g.head and position - i < LOOK_MAX:
        i -= 1
        other = gated_at(g, i)
        if other.state == GATED_ASKED and other.hash == h.hash and same_topic(other.message.topic, h.message.topic):
            return 1
    return 0


cdef inline bint same_topic(View a, View b) noexcept nogil:
    return a.n == b.n and memcmp(a.p, b.p, a.n) == 0


cdef void gate_advance(Broker* b, Session* s, PluginGate* g, uint32_t position, int verdict) noexcept nogil:
    """Take the next step for the gated delivery at this position: drop it, mark it ready, or send an auth request. If the auth
    request cannot be sent, the delivery is dropped."""
    cdef GatedDelivery* h = gated_at(g, position)
    cdef AuthRequest* q
    if verdict == 0:
        h.state = GATED_DROPPED
        drop(b, s, DROP_ACL_READ, h.message.topic)
        return
    if verdict == 1 and not is_transformed(session_security(s), h.message.topic):
        h.state = GATED_READY
        return
    h.state = GATED_TRANSFORMING if verdict == 1 else GATED_ASKED
    if verdict < 0 and not session_security(s).each and verdict_requested(g, position):
        return
    q = auth_request_new(b, ASK_MESSAGE_OUT if verdict == 1 else ASK_ACL, NULL, s, h.message)
    if q == NULL or auth_request_bytes(q, h.message.topic) != 0:
        if q != NULL:
            auth_request_end(b, q)
        h.state = GATED_DROPPED
        drop(b, s, DROP_MEMORY, h.message.topic)
        account_turned_away(b, s, h.qos, ACCOUNT_DROPPED)
        return
    q.purpose = FOR_DELIVERY
    q.access = ACL_READ
    q.natives_asked = verdict == NATIVE_ASK_OTHERS
    q.qos = h.message.qos if verdict < 0 and session_security(s).each else h.qos
    q.retain = h.message.retain if verdict < 0 and session_security(s).each else h.retain
    q.item = position
    auth_request_send(b, q)


cdef PluginGate* gate_of_request(AuthRequest* q) noexcept nogil:
    """Return the gate that an auth request is about; NULL = the request is no longer valid."""
    cdef PluginGate* g = session_plugin_gate(q.session)
    return g if g != NULL and q.turn == q.session.access_turn and q.session.security != NULL else NULL


cdef void plugin_gate_answered(Broker* b, AuthRequest* q, int allowed) noexcept nogil:
    cdef Session* s = q.session
    cdef PluginGate* g = gate_of_request(q)
    cdef GatedDelivery* h
    cdef uint64_t hash = hash_of(b, q.message.topic)
    cdef uint32_t i
    if g == NULL:
        return
    if session_security(s).each:
        h = gated_at(g, q.item)
        if q.item - g.head < g.tail - g.head and h.state == GATED_ASKED and h.message == q.message:
            gate_advance(b, s, g, q.item, allowed)
        return
    i = g.head
    while i != g.tail:
        h = gated_at(g, i)
        if h.state == GATED_ASKED and h.hash == hash and same_topic(h.message.topic, q.message.topic):
            gate_advance(b, s, g, i, allowed)
        i += 1


cdef GatedDelivery* transforming(AuthRequest* q) noexcept nogil:
    """Return the gated delivery that a plugin is asked to change; NULL = the request is no longer valid."""
    cdef PluginGate* g = gate_of_request(q)
    cdef GatedDelivery* h
    if g == NULL or q.item - g.head >= g.tail - g.head:
        return NULL
    h = gated_at(g, q.item)
    return h if h.state == GATED_TRANSFORMING and h.message == q.message else NULL


cdef void plugin_gate_again(Broker* b, AuthRequest* q) noexcept nogil:
    if transforming(q) != NULL:
        gate_advance(b, q.session, session_plugin_gate(q.session), q.item, plugin_gate_may_read(b, q.session, q.message.topic))


cdef void plugin_gate_changed(Broker* b, AuthRequest* q, Message* m, bint keep) noexcept nogil:
    cdef PluginGate* g = session_plugin_gate(q.session)
    cdef GatedDelivery* h = transforming(q)
    if h == NULL:
        return
    if not keep or m == NULL:
        h.state = GATED_DROPPED
        drop(b, q.session, DROP_MEMORY if keep else DROP_ACL_READ, h.message.topic)
        if keep:
            account_turned_away(b, q.session, h.qos, ACCOUNT_DROPPED)
        return
    g.bytes += m.payload.n
    g.bytes -= h.message.payload.n
    message_unref(&b.messages, &b.reactor.buffers, h.message)
    h.message = message_ref(m)
    h.qos = m.qos
    h.retain = m.retain
    h.state = GATED_READY


cdef bint plugin_gate_next(Broker* b, Session* s, GatedDelivery* out) noexcept nogil:
    cdef PluginGate* g = session_plugin_gate(s)
    if g == NULL or g.head == g.tail or gated_at(g, g.head).state < GATED_READY:
        return 0
    out[0] = gated_at(g, g.head)[0]
    gate_leave(g)
    if <int>(g.head - g.logged) <= 0:
        persist_gated_done(b, s, g.head)
    return 1


cdef inline void gate_leave(PluginGate* g) noexcept nogil:
    if gated_at(g, g.head).message != NULL:
        g.bytes -= gated_at(g, g.head).message.payload.n
    g.head += 1


# ---------------------------------------------------------------- the store

cdef bint plugin_gate_needs(const Session* s, uint32_t position) noexcept nogil:
    cdef PluginGate* g = session_plugin_gate(s)
    return g != NULL and position - g.head < g.tail - g.head and gated_at(g, position).state != GATED_DROPPED


cdef void plugin_gate_logged(Session* s, uint32_t position) noexcept nogil:
    cdef PluginGate* g = session_plugin_gate(s)
    if <int>(position + 1 - g.logged) > 0:
        g.logged = position + 1


cdef void plugin_gate_record(Broker* b, Session* s) noexcept nogil:
    cdef PluginGate* g = session_plugin_gate(s)
    cdef GatedDelivery* h
    cdef uint32_t i
    if g == NULL:
        return
    i = g.head
    while i != g.tail:
        h = gated_at(g, i)
        if h.state != GATED_DROPPED and h.qos and persist_gated(b, s, h.message, i, h.qos, h.retain, h.sub_id) != 0:
            durable_lacks_memory(b)
        i += 1


cdef inline void gap_make(PluginGate* g, uint32_t position) noexcept nogil:
    cdef GatedDelivery* h = gated_at(g, position)
    h.message = NULL
    h.state = GATED_DROPPED


cdef int gate_extend(PluginGate* g, uint32_t position) noexcept nogil:
    """Extend the ring to this position, by gaps. Cleaning may have copied the record of an earlier delivery behind later ones."""
    if g.head == g.tail:
        g.head = g.tail = position
    if position - g.head > SPAN_MAX and g.tail - position > SPAN_MAX:
        return 1
    while <int>(position - g.head) < 0 or <int>(position - g.tail) >= 0:
        if (g.ring == NULL or g.tail - g.head > g.mask) and gate_ring_grow(g) != 0:
            return -1
        if <int>(position - g.head) < 0:
            g.head -= 1
            gap_make(g, g.head)
        else:
            gap_make(g, g.tail)
            g.tail += 1
    return 0


cdef int plugin_gate_restore(Broker* b, Session* s, uint32_t position, Message* m,     # parameters: a recorded delivery
                             uint8_t qos, uint8_t retain, uint32_t sub_id) noexcept nogil:
    cdef PluginGate* g = plugin_gate_of(b, s)
    cdef GatedDelivery* h
    cdef int rc = gate_extend(g, position) if g != NULL else -1
    if rc != 0:
        return rc
    h = gated_at(g, position)
    if h.message != NULL:
        g.bytes -= h.message.payload.n
        message_unref(&b.messages, &b.reactor.buffers, h.message)
    h.message = message_ref(m)
    h.hash = hash_of(b, m.topic)
    h.qos = qos
    h.retain = retain
    h.sub_id = sub_id
    h.shared = 0                 # ids of groups are valid in one process only
    h.group = 0
    h.state = GATED_ASKED
    g.bytes += m.payload.n
    plugin_gate_logged(s, position)
    return 0


cdef void plugin_gate_left(Broker* b, Session* s, uint32_t position) noexcept nogil:
    cdef PluginGate* g = session_plugin_gate(s)
    cdef Message* m
    if g == NULL:
        return
    while g.head != g.tail and <int>(g.head - position) < 0:
        m = gated_at(g, g.head).message
        gate_leave(g)
        if m != NULL:
            message_unref(&b.messages, &b.reactor.buffers, m)


# ---------------------------------------------------------------- renewal and end

cdef void plugin_gate_renew(Broker* b, Session* s) noexcept nogil:
    cdef PluginGate* g = session_plugin_gate(s)
    cdef GatedDelivery* h
    cdef uint32_t i
    if g == NULL:
        return
    verdicts_forget(g)
    i = g.head
    while i != g.tail:
        h = gated_at(g, i)
        if h.state != GATED_DROPPED:
            gate_advance(b, s, g, i, plugin_gate_may_read(b, s, h.message.topic))
        i += 1


cdef void plugin_gate_clear(Broker* b, Session* s) noexcept nogil:
    cdef PluginGate* g = session_plugin_gate(s)
    cdef GatedDelivery* h
    if g == NULL:
        return
    while g.head != g.tail:
        h = gated_at(g, g.head)
        if h.message == NULL:
            g.head += 1
            continue
        if h.state != GATED_DROPPED:
            drop_unlogged(b, s, DROP_SESSION_ENDED, h.message.topic)
            account_turned_away(b, s, h.qos, ACCOUNT_GONE)
        message_unref(&b.messages, &b.reactor.buffers, h.message)
        g.head += 1
    g.bytes = 0


cdef void plugin_gate_free(Broker* b, Session* s) noexcept nogil:
    cdef PluginGate* g = session_plugin_gate(s)
    if g == NULL:
        return
    plugin_gate_clear(b, s)
    verdicts_forget(g)
    free(g.ring)
    free(g)
    s.plugin_gate = NULL
