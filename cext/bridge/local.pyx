"""Manage the local side of a bridge. This module knows its session, queue and subscriptions, and its notifications. It does not know the
connection.

Invariant: from the start of the loop to its end a bridge has a session that no client can take over, and that never expires (except for a moment
after a reload that gives one bridge the id of another: the old one keeps it until it releases it). While the bridge is down, the session is an
offline session: deliveries wait in its queue, within the limits.

    session present 1: the queue continues in order, with the same packet ids (DUP), as after any lost connection
    session present 0: the same, as in Mosquitto: a remote broker that has forgotten the session takes a PUBLISH with DUP for a new message and
        answers PUBREL with PUBCOMP. Inbound QoS 2 messages that waited for PUBREL will not be sent again: this broker routes them now
"""

from libc.errno cimport EBUSY, ENOMEM
from libc.stdint cimport uint8_t, uint32_t
from libc.stdio cimport snprintf

from cext.base.view cimport View
from cext.base.wheel cimport wheel_remove
from cext.broker.auth.bridge cimport bridge_of_session
from cext.broker.arrivals.waits cimport replay_when_routed
from cext.broker.core.bridge_state cimport BRIDGE_UP, Bridge, NO_QOS, bridge_of
from cext.broker.core.broker cimport Broker
from cext.broker.core.client cimport log_line
from cext.broker.core.client_state cimport Client, TIMER_SESSION
from cext.broker.core.link_state cimport links_of
from cext.broker.core.log cimport LOG_DEBUG, LOG_LINE_MAX, LOG_WARNING, log_wanted
from cext.broker.core.publication_state cimport Publication, SCOPE_REMOTE
from cext.broker.core.session_refs cimport session_client
from cext.broker.lifecycle.session_lifecycle cimport client_end, session_end
from cext.broker.links.own cimport ROUTE_NONE, own_route
from cext.broker.persist.accounts cimport ACCOUNT_ACKNOWLEDGED, ACCOUNT_GONE, account_left, account_lowered
from cext.broker.persist.events cimport event_subscribed, event_unsubscribed
from cext.broker.persist.persist cimport (
    pending_delivery_done, persist_inbound_end, persist_session, persist_subscription, persist_subscription_end,
    persist_will_end,
)
from cext.broker.persist.publication cimport publication_fini, publication_of
from cext.broker.routing.delivery_rules cimport NO_LOCAL, RETAIN_AS_PUBLISHED
from cext.broker.routing.pump cimport delivery_done
from cext.broker.routing.retain cimport replay_begin, retain_put
from cext.broker.routing.route cimport route
from cext.codec.reason cimport RC_SESSION_TAKEN_OVER
from cext.link.links cimport link_identity_end
from cext.session.message cimport MESSAGE_LOCAL_DONE, Message, message_new, message_unref
from cext.session.queue cimport (
    D_DONE, D_RELEASED, D_WAITING, Delivery, Queue, delivery_message, delivery_release, inbox_fini, queue_at,
)
from cext.session.session cimport (
    EXPIRY_NEVER, SESSION_BRIDGE, SESSION_TRUSTED, Session, session_free, session_new, sessions_add, sessions_find,
)
from cext.topic.index cimport Entry, INDEX_REMOVED, SUBSCRIPTION_TEXT_BYTES, index_add, index_entry, index_remove, subscription_read
from cext.topic.lines cimport LINE_OUT, Line
from cext.topic.name cimport Filter, filter_parse
from cext.topic.retained cimport retained_count

cdef enum:
    LINE_QOS_BITS = 3


# ---------------------------------------------------------------- the session

cdef Session* session_free_for(Broker* b, Bridge* l) noexcept nogil:
    """Find the session that this bridge left here; NULL: none. The session of a client with the same id cannot be used: it ends."""
    cdef Session* s = sessions_find(&b.sessions, l.spec.local_id)
    if s == NULL or s.flags & SESSION_BRIDGE:
        return s
    if log_wanted(&b.log, LOG_WARNING):
        log_line(b, LOG_WARNING, snprintf(
            b.log.line, LOG_LINE_MAX, "Warning: Bridge %.*s takes the client id %.*s: the session of the client that had it ends, with %u messages.",
            <int>l.spec.name.n, <const char*>l.spec.name.p, <int>l.spec.local_id.n, <const char*>l.spec.local_id.p, s.queue.pending))
    if s.client != NULL:
        client_end(b, session_client(s), RC_SESSION_TAKEN_OVER)
        s = sessions_find(&b.sessions, l.spec.local_id)      # it may have ended with the client
    if s != NULL:
        session_end(b, s)
    return NULL


cdef int local_begin(Broker* b, Bridge* l) noexcept nogil:
    cdef Session* s = session_free_for(b, l)
    if s != NULL and bridge_of_session(b, s) != NULL:
        return EBUSY             # session of another bridge, until that has taken its new id
    if s == NULL:
        s = session_new(&b.sessions, l.spec.local_id)
        if s == NULL:
            return ENOMEM
        s.timer.kind = TIMER_SESSION
        if sessions_add(&b.sessions, s) != 0:
            session_free(&b.sessions, s)
            return ENOMEM
    wheel_remove(&b.wheel, &s.timer)
    if s.will != NULL:
        message_unref(&b.messages, &b.reactor.buffers, s.will)
        s.will = NULL
        s.will_due_ms = 0
        persist_will_end(b, s)
    s.ends_ms = 0
    s.expiry_s = EXPIRY_NEVER
    s.security = NULL
    s.flags |= SESSION_BRIDGE | SESSION_TRUSTED
    l.session = s
    l.max_qos = 2
    l.local_qos = NO_QOS
    l.was_up = 0
    l.retained_sent = retained_count(b.retained) == 0 or s.owner.head != NULL      # restored: retained messages were sent then, or wait
    persist_session(b, s)
    l.unsure_upto = s.queue.tail         # by another process
    if not l.spec.local_clean:
        local_subscribe(b, l)
    else:
        local_clear(b, l)
    local_notice(b, l, b"0")
    return 0


cdef void local_end(Broker* b, Bridge* l) noexcept nogil:
    """Remove the session. Its deliveries belong to no other session."""
    cdef Session* s = l.session
    l.session = NULL
    if s != NULL:
        if s.queue.pending and log_wanted(&b.log, LOG_WARNING):
            log_line(b, LOG_WARNING, snprintf(
                b.log.line, LOG_LINE_MAX, "Warning: Bridge %.*s has no longer the client id %.*s: %u messages that waited for it are lost.",
                <int>l.spec.name.n, <const char*>l.spec.name.p, <int>s.id_len, <const char*>s.client_id, s.queue.pending))
        s.flags &= ~<uint32_t>(SESSION_BRIDGE | SESSION_TRUSTED)
        session_end(b, s)


cdef void local_clear(Broker* b, Bridge* l) noexcept nogil:
    queue_drop(b, l.session)
    l.qos0_held = l.qos0_held_bytes = 0
    subscriptions_remove(b, l)


cdef void queue_drop(Broker* b, Session* s) noexcept nogil:
    """Drop all deliveries. Packet ids continue, because the remote broker may still hold some of them."""
    cdef Queue* q = &s.queue
    cdef Delivery* d
    while q.floor != q.tail:
        d = queue_at(q, q.floor)
        if d.state != D_DONE:
            account_left(b, s, d.qos, ACCOUNT_GONE)
            if s.store_session_id:
                pending_delivery_done(b, s, delivery_message(d), q.floor)
        delivery_release(&b.messages, &b.reactor.buffers, d)
        q.floor += 1
    q.next = q.floor
    q.pending = q.inflight = 0
    q.waiting_bytes = q.inflight_bytes = q.room_bytes = 0


cdef void subscriptions_remove(Broker* b, Bridge* l) noexcept nogil:
    cdef Session* s = l.session
    cdef uint8_t text[SUBSCRIPTION_TEXT_BYTES]
    cdef Filter f
    cdef uint32_t n, sub_id
    cdef uint8_t options
    l.local_qos = NO_QOS
    while s.owner.head != NULL:
        subscription_read(s.owner.head, text, &n, &options, &sub_id)
        if filter_parse(text, n, &f) != 0 or index_remove(b.index, &s.owner, &f) != INDEX_REMOVED:
            return               # cannot happen: it was added
        route_changes(b, s, f.whole, ROUTE_NONE, options & LINE_QOS_BITS)
        persist_subscription_end(b, s, f.whole)
        event_unsubscribed(b, s, f.whole)


cdef void local_subscribe(Broker* b, Bridge* l) noexcept nogil:
    cdef const Line* line
    cdef Filter f
    cdef uint32_t i
    cdef uint8_t options
    lines_announce(b, l, 1)              # before they are removed: routes that stay must not end for a moment
    subscriptions_remove(b, l)
    l.local_qos = l.max_qos
    for i in range(l.spec.lines.n):
        line = &l.spec.lines.at[i]
        if not line.ways & LINE_OUT:
            continue
        options = (line.qos if line.qos < l.max_qos else l.max_qos) | NO_LOCAL | RETAIN_AS_PUBLISHED
        if log_wanted(&b.log, LOG_DEBUG):
            log_line(b, LOG_DEBUG, snprintf(b.log.line, LOG_LINE_MAX, "Bridge %.*s doing local SUBSCRIBE on topic %.*s",
                                            <int>l.spec.local_id.n, <const char*>l.spec.local_id.p, <int>line.local.n,
                                            <const char*>line.local.p))
        if filter_parse(line.local.p, line.local.n, &f) == 0 and subscription_add(b, l.session, &f, options):
            persist_subscription(b, l.session, line.local, options, 0)
            event_subscribed(b, l.session, line.local, options, 0)
        else:
            if log_wanted(&b.log, LOG_WARNING):
                log_line(b, LOG_WARNING, snprintf(b.log.line, LOG_LINE_MAX, "Warning: Bridge %.*s could not subscribe to %.*s here.",
                                                  <int>l.spec.name.n, <const char*>l.spec.name.p, <int>line.local.n,
                                                  <const char*>line.local.p))
    lines_announce(b, l, 0)


cdef inline void route_changes(Broker* b, Session* s, View filter, int now, int old) noexcept nogil:
    """Count a subscription among those that other workers know; before the links start, own_routes_restored counts it."""
    if b.links != NULL and links_of(b).links.run:
        own_route(b, s, filter, now, old)


cdef void lines_announce(Broker* b, Bridge* l, bint begins) noexcept nogil:
    """Count each line once more, or no longer, while the subscriptions are exchanged."""
    cdef const Line* line
    cdef uint32_t i
    cdef int qos
    for i in range(l.spec.lines.n if b.links != NULL else 0):
        line = &l.spec.lines.at[i]
        qos = line.qos if line.qos < l.max_qos else l.max_qos
        if line.ways & LINE_OUT:
            route_changes(b, l.session, line.local, qos if begins else ROUTE_NONE, ROUTE_NONE if begins else qos)


cdef bint subscription_add(Broker* b, Session* s, const Filter* f, uint8_t options) noexcept nogil:
    cdef Entry* before = index_entry(b.index, &s.owner, f) if b.links != NULL else NULL
    cdef int old = before.options & LINE_QOS_BITS if before != NULL else ROUTE_NONE
    if index_add(b.index, &s.owner, s, f, options, 0) < 0:
        return 0
    route_changes(b, s, f.whole, options & LINE_QOS_BITS, old)
    return 1


cdef void local_replay(Broker* b, Bridge* l, Client* c) noexcept nogil:
    """Send retained messages; with several workers, when the others know the subscriptions, so that none comes neither live nor as retained."""
    cdef uint32_t i
    cdef bint wanted = 0
    if b.links == NULL:
        replay_now(b, c)
        return
    for i in range(l.spec.lines.n):
        if l.spec.lines.at[i].ways & LINE_OUT and (l.replay_all or l.spec.lines.at[i].qos == 0):
            wanted = 1
    if wanted:
        replay_when_routed(b, c)


cdef void replay_now(Broker* b, Client* c) noexcept nogil:
    """Send retained messages as for a new subscription [v5 3.8.4]. What the queue has kept is not sent twice: if the session exists at both ends,
    only lines of QoS 0, whose messages no side stored, get them again."""
    cdef Bridge* l = bridge_of(c)
    cdef bint all = l.replay_all
    cdef const Line* line
    cdef Filter f
    cdef uint32_t i
    if l.client != c or l.state != BRIDGE_UP:
        return                   # replay_all stays for the next connection
    l.replay_all = 0
    for i in range(l.spec.lines.n):
        line = &l.spec.lines.at[i]
        if line.ways & LINE_OUT and (all or line.qos == 0) and filter_parse(line.local.p, line.local.n, &f) == 0:
            replay_begin(b, l.session, &f)


# ---------------------------------------------------------------- publications

cdef void local_publish(Broker* b, Session* source, Message* m) noexcept nogil:
    cdef Publication p
    publication_of(&p, m)
    p.source = source
    if m.flags & MESSAGE_LOCAL_DONE:
        p.scope = SCOPE_REMOTE
        p.journalled = 1
    if p.retain and b.settings.retain_available:
        retain_put(b, &p)
    route(b, &p, NULL)
    publication_fini(b, &p)


cdef void local_released(Broker* b, Session* s, Message* m, uint64_t identity) noexcept nogil:
    """Publish a QoS 2 message. Other workers that have it already know it by its identity, which ends here, because no PUBREL will come."""
    if b.links == NULL or identity == 0:
        local_publish(b, s, m)
        return
    links_of(b).identity = identity
    local_publish(b, s, m)
    links_of(b).identity = 0
    link_identity_end(&links_of(b).links, identity)


cdef void local_notice(Broker* b, Bridge* l, const char* state) noexcept nogil:
    cdef View none, payload
    cdef Message* m
    if not l.spec.notifications or not l.ready:
        return
    none.p = NULL
    none.n = 0
    payload.p = <const uint8_t*>state
    payload.n = 1
    m = message_new(&b.messages, l.spec.notice, none, payload)
    if m == NULL:
        return
    m.qos = 1
    m.retain = 1
    local_publish(b, NULL, m)
    message_unref(&b.messages, &b.reactor.buffers, m)


# ---------------------------------------------------------------- lost sessions and lower QoS

cdef void local_session_lost(Broker* b, Bridge* l) noexcept nogil:
    """Route the inbound messages in the order of their packet ids, which is the order of their arrival, except where the ids begin again."""
    cdef Session* s = l.session
    cdef uint32_t i
    cdef Message* m
    if s.inbox.slots == NULL:
        return
    s.jobs += 1
    for i in range(s.inbox.mask + 1):
        if s.inbox.slots[i].pid:
            persist_inbound_end(b, s, s.inbox.slots[i].pid)
        m = s.inbox.slots[i].message if s.inbox.slots[i].pid else NULL
        if m == NULL:
            continue
        s.inbox.slots[i].message = NULL
        if m.expires_ms == 0 or m.expires_ms > b.reactor.now_ms:
            local_released(b, s, m, s.inbox.slots[i].identity)
        message_unref(&b.messages, &b.reactor.buffers, m)
    s.jobs -= 1
    inbox_fini(&s.inbox)


cdef void local_lower(Broker* b, Bridge* l) noexcept nogil:
    """Lower queued deliveries [v5 3.2.2-11]. O(queue), once per connection to a broker with a Maximum QoS below 2."""
    cdef Session* s = l.session
    cdef uint32_t at = s.queue.floor
    cdef Delivery* d
    while at != s.queue.tail:
        d = queue_at(&s.queue, at)
        at += 1
        if d.state == D_DONE or (d.qos & 3) <= l.max_qos:
            continue
        if d.state == D_RELEASED:
            delivery_done(b, s, d, ACCOUNT_ACKNOWLEDGED)
            continue
        if l.max_qos == 0:
            account_lowered(b, s)
        d.state = D_WAITING
        d.qos = (d.qos & ~<uint8_t>3) | l.max_qos
