"""Rebuild the state of a broker from the memory file of the process before. This module knows what save.pyx writes. It trusts no byte of it:
each number is checked before it is used, and the first wrong one ends the handover with one reason.

With a store, durable_recover has run before, and has made what the store has. Here its sessions get the exact progress of their queues: a
recovered delivery counts as sent, because after a crash nothing else is known. Deliveries that the file does not name are done.
Nothing is sent and nothing is recorded before the loop begins.
"""

from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memset

from cext.base.clock cimport clock_monotonic_us
from cext.base.slab cimport slab_at, slab_end
from cext.base.view cimport View
from cext.broker.auth.tls_identity cimport recheck_begin
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport CF_DOOMED, C_CONNECTED, Client
from cext.broker.core.durable cimport durable_of
from cext.broker.core.handover_state cimport HandoverCounts
from cext.broker.core.publication_state cimport Publication
from cext.broker.handover.image cimport (
    ITEM_ALIAS, ITEM_BROKER, ITEM_CLIENT, ITEM_CURSOR, ITEM_CURSOR_PART, ITEM_DELIVERY, ITEM_END, ITEM_FILTER, ITEM_GATED, ITEM_INBOX, ITEM_MESSAGE, ITEM_RETAINED, ITEM_SECRETS, ITEM_SESSION,
    ITEM_SOURCE, ImageBroker, ImageMessage, ImageRetained, ImageSource, image_close, image_head, image_next, image_open, image_part,
)
from cext.broker.handover.restore_clients cimport alias_arrives, client_arrives, secrets_arrive
from cext.broker.handover.restore_sessions cimport cursor_arrives, cursor_part_arrives, delivery_arrives, filter_arrives, gated_arrives, inbox_arrives, session_arrives, session_complete
from cext.broker.handover.restoring cimport Restoring, message_known, refused
from cext.broker.lifecycle.session_lifecycle cimport client_watch, end_doomed_clients
from cext.broker.packets.handle_connect cimport arrived_notify
from cext.broker.persist.accounts cimport subscriptions_report
from cext.broker.persist.publication cimport publication_fini, publication_of
from cext.broker.persist.streams cimport streams_want_events
from cext.broker.routing.deliver cimport deliver_gated
from cext.broker.routing.plugin_gate cimport plugin_gate_renew, plugin_gate_waiting
from cext.broker.routing.pump cimport pump
from cext.broker.routing.retain cimport retain_store, retained_from
from cext.session.message cimport MESSAGE_AGAIN, MESSAGE_JOURNALLED, Message, message_new, message_unref
from cext.session.record cimport RecordFrom
from cext.store.state cimport pthread_t
from cext.topic.name cimport name_check

cdef extern from "<pthread.h>" nogil:
    int pthread_create(pthread_t* t, void* attributes, void* (*main)(void*) noexcept nogil, void* arg)
    int pthread_join(pthread_t t, void** result)


# ---------------------------------------------------------------- broker, messages

cdef int broker_arrives(Restoring* l, View body) noexcept nogil:
    cdef ImageBroker r
    cdef uint8_t nothing[16]
    if l.begun or not image_head(&body, &r, sizeof(r)) or body.n:
        return refused(l, "it does not begin with the broker")
    l.begun = 1
    if r.stored and l.b.durable == NULL:
        return refused(l, "the broker before had a store, and this configuration has none")
    if not r.stored and l.b.durable != NULL:
        return refused(l, "the broker before had no store, and this configuration has one")
    memset(nothing, 0, sizeof(nothing))
    if not r.stored or memcmp(r.store_id, nothing, sizeof(nothing)) == 0:
        if l.b.sessions.count:
            return refused(l, "there are sessions already")
    elif memcmp(r.store_id, durable_of(l.b).store.store_id, sizeof(r.store_id)) != 0:
        return refused(l, "the store of this configuration is not that of the broker before")
    if r.n_clients != l.n_fds:
        return refused(l, "the number of descriptors is not that of the connections")
    if not r.stored:
        l.b.names_key = r.names_key
    l.b.arrived_us = max(<uint64_t>1, min(r.frozen_us, clock_monotonic_us()))
    l.b.handovers = r.totals
    l.b.handovers.upgrades += 1
    l.b.handovers.moved += r.n_clients
    l.b.handovers.closed += r.closed
    return 0


cdef int message_arrives(Restoring* l, View body) noexcept nogil:
    cdef ImageMessage r
    cdef View topic, props, payload
    cdef Message** messages
    cdef Message* m
    cdef uint32_t cap = l.cap_messages * 2 if l.cap_messages else 1024
    if not image_head(&body, &r, sizeof(r)) or not image_part(&body, r.topic_n, &topic) or not image_part(&body, r.props_n, &props):
        return refused(l, "a message is too short")
    if not image_part(&body, r.payload_n, &payload) or body.n or r.qos > 2 or r.retain > 1 or name_check(topic.p, topic.n) != 0:
        return refused(l, "a message has an impossible value")
    if l.n_messages == l.cap_messages:
        messages = <Message**>realloc(l.messages, <size_t>cap * sizeof(Message*))
        if messages == NULL:
            return refused(l, "no memory")
        l.messages = messages
        l.cap_messages = cap
    m = message_new(&l.b.messages, topic, props, payload)
    if m == NULL:
        return refused(l, "no memory")
    m.qos = r.qos
    m.retain = r.retain
    m.flags = r.flags & <uint8_t>(MESSAGE_AGAIN | MESSAGE_JOURNALLED)        # the others describe a record
    m.expires_ms = r.expires_ms
    m.source_hash = r.source_hash
    m.arrived_ms = r.arrived_ms
    l.messages[l.n_messages] = m
    l.n_messages += 1
    return 0


cdef int retained_arrives(Restoring* l, View body) noexcept nogil:
    cdef ImageRetained r
    cdef Publication p
    cdef Message* m
    if not image_head(&body, &r, sizeof(r)) or body.n or r.message == 0 or not message_known(l, r.message) or l.b.durable != NULL:
        return refused(l, "a retained message has an impossible value")
    m = l.messages[r.message - 1]
    publication_of(&p, m)
    retain_store(l.b, &p)
    publication_fini(l.b, &p)
    l.retained = m.topic
    return 0


cdef int source_arrives(Restoring* l, View body) noexcept nogil:
    cdef ImageSource r
    cdef RecordFrom publisher
    memset(&publisher, 0, sizeof(publisher))
    if not image_head(&body, &r, sizeof(r)) or not image_part(&body, r.id_n, &publisher.id) or l.retained.p == NULL:
        return refused(l, "a publisher is too short")
    if not image_part(&body, r.user_n, &publisher.user) or body.n:
        return refused(l, "a publisher is too short")
    publisher.topic = l.retained
    publisher.security = r.origin
    retained_from(l.b, &publisher)
    return 0


# ---------------------------------------------------------------- all of it

cdef int item_arrives(Restoring* l, int kind, View body) noexcept nogil:
    if kind != ITEM_BROKER and not l.begun or l.ended:
        return refused(l, "its items have an impossible order")
    if kind != ITEM_MESSAGE and kind != ITEM_CURSOR_PART and not ITEM_FILTER <= kind <= ITEM_ALIAS and session_complete(l) != 0:
        return -1
    if kind == ITEM_MESSAGE:
        return message_arrives(l, body)
    if kind == ITEM_DELIVERY:
        return delivery_arrives(l, body)
    if kind == ITEM_SESSION:
        return session_arrives(l, body)
    if kind == ITEM_FILTER:
        return filter_arrives(l, body)
    if kind == ITEM_CLIENT:
        return client_arrives(l, body)
    if kind == ITEM_INBOX:
        return inbox_arrives(l, body)
    if kind == ITEM_ALIAS:
        return alias_arrives(l, body)
    if kind == ITEM_GATED:
        return gated_arrives(l, body)
    if kind == ITEM_RETAINED:
        return retained_arrives(l, body)
    if kind == ITEM_SOURCE:
        return source_arrives(l, body)
    if kind == ITEM_CURSOR:
        return cursor_arrives(l, body)
    if kind == ITEM_CURSOR_PART:
        return cursor_part_arrives(l, body)
    if kind == ITEM_SECRETS:
        return secrets_arrive(l, body)
    if kind == ITEM_BROKER:
        return broker_arrives(l, body)
    if kind != ITEM_END or body.n:
        return refused(l, "it has an item of an unknown kind")
    l.ended = 1
    return 0 if l.n_clients == l.n_fds else refused(l, "connections are missing")


cdef void* thread_main(void* nothing) noexcept nogil:
    return NULL


cdef bint thread_starts() noexcept nogil:
    """Return whether the system lets this process start a thread, while the process before can go on. The storage thread itself starts with the loop,
    because a store that it has written to is not the one that the process before would open again."""
    cdef pthread_t thread
    if pthread_create(&thread, NULL, thread_main, NULL) != 0:
        return 0
    pthread_join(thread, NULL)
    return 1


cdef int state_restore(Broker* b, int state_fd, const int32_t* fds, uint32_t n_fds, HandoverCounts* counts, char* why, uint32_t why_n) noexcept nogil:
    cdef Restoring l
    cdef View body
    cdef uint32_t i
    cdef int kind
    cdef int rc
    memset(&l, 0, sizeof(l))
    memset(counts, 0, sizeof(HandoverCounts))
    l.b = b
    l.fds = fds
    l.n_fds = n_fds
    l.counts = counts
    b.reactor.layer_threads = b.settings.tls_handshake_threads       # the first TLS connection makes the layer
    rc = image_open(&l.r, state_fd, why, why_n)
    if rc != 0:
        return rc
    if b.durable != NULL:
        durable_of(b).loading = 1            # nothing is recorded
    kind = image_next(&l.r, &body)
    while kind and rc == 0:
        rc = item_arrives(&l, kind, body)
        kind = image_next(&l.r, &body)
    if rc == 0 and not l.ended:
        rc = refused(&l, "it has no end")
    if b.durable != NULL:
        durable_of(b).loading = 0
    for i in range(l.n_messages):
        message_unref(&b.messages, &b.reactor.buffers, l.messages[i])
    free(l.messages)
    counts.messages = l.n_messages
    counts.bytes = l.r.n
    image_close(&l.r)
    if rc != 0:
        snprintf(why, why_n, "the handed-over state does not fit: %s", l.wrong)
    elif b.durable != NULL and not thread_starts():
        snprintf(why, why_n, "the storage thread cannot be started")
        rc = -1
    return rc


cdef void keepalives_shift(Broker* b, uint64_t ms) noexcept nogil:
    cdef uint32_t i
    cdef Client* c
    for i in range(slab_end(&b.clients)):
        c = <Client*>slab_at(&b.clients, i)
        if c != NULL and c.state == C_CONNECTED:
            c.conn.rx_ms += ms
            client_watch(b, c)


cdef void arrived_begin(Broker* b) noexcept nogil:
    cdef uint32_t i
    cdef Client* c
    if b.arrived_us == 0:
        return
    b.handovers.pause_us = clock_monotonic_us() - b.arrived_us
    keepalives_shift(b, b.handovers.pause_us // 1000)
    recheck_begin(b)             # certificates and keys, by the configuration of this process
    b.arrived_us = 0
    for i in range(slab_end(&b.clients)):
        c = <Client*>slab_at(&b.clients, i)
        if c != NULL and c.flags & CF_DOOMED:        # its connection has not moved
            arrived_notify(b, c)
    while b.doomed != NULL:
        end_doomed_clients(b)
    for i in range(slab_end(&b.clients)):
        c = <Client*>slab_at(&b.clients, i)
        if c == NULL or c.session == NULL:
            continue
        arrived_notify(b, c)
        if streams_want_events(b) and c.session.store_session_id == 0:       # the accounts report the others
            subscriptions_report(b, c.session)
        pump(b, c.session, NULL)
        if plugin_gate_waiting(c.session):
            plugin_gate_renew(b, c.session)
            deliver_gated(b, c.session)
