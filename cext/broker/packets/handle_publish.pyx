"""Handle PUBLISH from a client [v5 3.3] [v3.1.1 3.3]: check, acknowledge, retain, route. This is the hottest handler.

    QoS 0, 1:  decode -> alias -> checks -> retain -> route -> PUBACK
    QoS 2:     decode -> alias -> checks -> kept in the inbox -> PUBREC ... PUBREL -> retain -> route -> PUBCOMP

A QoS 2 message is routed when PUBREL releases it [v5 4.3.3, method B], as in Mosquitto. So a client that subscribes to its own
messages sees the same packets in the same order.
"""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy

from cext.base.buffer cimport buffer_give
from cext.base.view cimport View
from cext.broker.auth.bridge cimport bridge_accepts, bridge_seen, bridge_via
from cext.broker.core.access cimport access_allows, access_ruled
from cext.broker.core.bounds cimport LEND_MIN_BYTES
from cext.broker.core.broker cimport Broker
from cext.broker.core.client cimport aliases_of, client_ack, denial_logged, log_line, peer_line_wanted
from cext.broker.core.client_state cimport AliasIn, CF_BRIDGE, CF_TRUSTED, Client
from cext.broker.core.durable cimport changes_of, durable_refuses
from cext.broker.core.link_state cimport links_of, waiter_is_left, waiter_take
from cext.broker.core.job_state cimport Job
from cext.broker.core.jobs cimport fanout_of_client
from cext.broker.core.log cimport LOG_DEBUG, LOG_INFORMATION, LOG_LINE_MAX, LOG_NOTICE, LOG_WARNING, log_wanted
from cext.broker.core.log_rate cimport LINE_PROTOCOL
from cext.broker.core.pending_packet cimport PACKET_PENDING, owned_view, pending_packet_free
from cext.broker.core.publication_state cimport Publication, SCOPE_REMOTE
from cext.broker.core.session_refs cimport session_security
from cext.broker.core.stats cimport (
    DROP_ACL_WRITE, DROP_DISK, DROP_LOOP, DROP_MEMORY, DROP_PAYLOAD_SIZE, DROP_QUOTA, DROP_TRANSFORM,
)
from cext.broker.arrivals.waits cimport ack_when_linked, ack_when_routed, routed_again
from cext.broker.packets.authorize cimport BY_RULES, is_plugged, publish_decide
from cext.broker.packets.handle_control cimport control_handle, control_topic
from cext.broker.persist.pending_acks cimport ack_after_all, ack_now, ack_when_committed
from cext.broker.persist.persist cimport persist_inbound, persist_inbound_end, persist_reserve, publisher_set
from cext.broker.persist.publication cimport (
    dropped, memory_reserve, memory_short, publication_fini, publication_init, publication_of, publication_store,
)
from cext.broker.routing.retain cimport retain_put
from cext.broker.routing.route cimport ROUTE_REFUSED, fanout_spare, route, route_journalled
from cext.broker.rules.acl cimport ACL_WRITE, topic_reserved
from cext.codec.decode cimport Publish, decode_publish
from cext.codec.frame cimport Frame, T_PUBACK, T_PUBCOMP, T_PUBREC, V5, varint_size
from cext.codec.properties cimport (
    P_MESSAGE_EXPIRY, P_RESPONSE_TOPIC, P_TOPIC_ALIAS, P_USER_PROPERTY, props_forward_put, props_forward_size, props_has,
    props_verbatim,
)
from cext.codec.reason cimport (
    RC_MALFORMED, RC_NOT_AUTHORIZED, RC_NO_MATCHING_SUBSCRIBERS, RC_PACKET_TOO_LARGE, RC_PROTOCOL_ERROR, RC_QOS_NOT_SUPPORTED,
    RC_QUOTA_EXCEEDED, RC_RECEIVE_MAXIMUM_EXCEEDED, RC_RETAIN_NOT_SUPPORTED, RC_SUCCESS, RC_TOPIC_ALIAS_INVALID,
    RC_TOPIC_NAME_INVALID,
)
from cext.link.links cimport link_identity_end, link_identity_new
from cext.link.state cimport LinkWaiter
from cext.net.conn_input cimport conn_steal_input
from cext.session.message cimport MESSAGE_JOURNALLED, MESSAGE_LOCAL_DONE, Message, RECORD_ROOM, message_bytes, message_ref, message_unref
from cext.session.queue cimport InboundQos2, Inbox, inbox_add, inbox_count_copy, inbox_find, inbox_forgotten, inbox_remove
from cext.topic.lines cimport Renaming
from cext.topic.name cimport LEVELS_MAX, filter_matches, level_count, name_check

cdef enum:
    STEAL_MIN_BYTES = 32 * 1024  # payload size from which a message takes over the input buffer
    INBOX_CONNECTIONS = 4            # unreleased messages of a session from which on old ones are dropped, in Receive Maximums
    COPIES_MAX = 2                   # of a QoS 2 message before its PUBREL
    NO_BRIDGE_LINE = 1               # result of publication_fill: no line of the bridge accepts the topic


cdef int handle_publish(Broker* b, Client* c, const Frame* f) noexcept nogil:
    cdef Publish p
    cdef Publication out
    cdef uint8_t verdict
    cdef uint64_t changes
    cdef bint looped = 0, unwanted = 0   # came back through bridges; or no line of the bridge wants it: acknowledged and dropped
    cdef int allowed = BY_RULES
    cdef int rc = decode_publish(f, c.version, &p)
    if rc:
        return publish_malformed(b, c, f.first, rc)
    b.stats.publish_in += 1
    b.stats.publish_bytes_in += p.payload.n
    rc = check_announced(b, c, p.qos, p.retain)
    if rc == 0 and c.version == V5:
        rc = alias_resolve(c, &p)
    rc = rc or check_publish(b, c, &p)
    if rc:
        return rc
    if control_topic(c, p.topic):
        return publish_to_control(b, c, &p)
    if is_plugged(session_security(c.session)):
        rc = decide_by_plugin(b, c, &p, &allowed)
        if rc:
            b.stats.publish_in -= 1      # the packet is handled again, or does not count
            b.stats.publish_bytes_in -= p.payload.n
            return rc
    publication_init(&out)
    rc = publication_fill(b, c, f, &p, &out)
    if rc == 0:
        verdict = publish_verdict(b, c, &p, &out, allowed)
        looped = verdict < 0x80 and props_has(&p.props, P_USER_PROPERTY) and bridge_seen(b, p.props.raw)
        unwanted = looped
    elif rc == NO_BRIDGE_LINE:
        publish_denied(b, c, &p, p.topic)
        verdict = RC_SUCCESS
        unwanted = 1
    else:
        verdict = RC_QUOTA_EXCEEDED
    if c.pending_packet != NULL:
        verdict = verdict_of_plugin(b, c, &out, verdict)
    if verdict < 0x80 and rc == 0 and log_wanted(&b.log, LOG_DEBUG):
        log_received(b, c, &p, "Received")
    if p.qos == 2:
        rc = qos2_receive(b, c, &p, &out, verdict, unwanted)
    else:
        rc = 0
        changes = changes_of(b)
        out.durability = durability_of(b, c, out.topic)
        if verdict < 0x80 and not is_taken_by_plugin(c) and not unwanted:
            verdict = publish_accepted(b, c, &out, p.pid)
        if verdict == RC_QUOTA_EXCEEDED and p.qos and c.version != V5:
            rc = RC_QUOTA_EXCEEDED               # 3.x has no code for it: end the connection, so that the client sends it again
        if p.qos and rc == 0:
            puback(b, c, p.pid, verdict if c.version == V5 else 0, changes, &out)
    if looped:
        dropped(b, c.session, DROP_LOOP, out.topic)
    publish_end(b, c, &out)
    return rc


cdef inline void puback(Broker* b, Client* c, uint16_t pid, uint8_t verdict, uint64_t changes, Publication* out) noexcept nogil:
    """Acknowledge a QoS 1 message when all workers that got it have committed it, or this one if no other did."""
    if b.durable == NULL and b.links == NULL:
        client_ack(b, c, T_PUBACK, pid, verdict)         # nothing to wait for, and nothing waits
    elif waiter_is_left(b):
        ack_when_linked(b, c, pid, verdict, changes, out.message, out.durability)
    else:
        ack_when_committed(b, c, T_PUBACK, pid, verdict, changes, out.message, out.durability)


cdef inline void publish_end(Broker* b, Client* c, Publication* out) noexcept nogil:
    if is_taken_by_plugin(c):
        dropped(b, c.session, DROP_TRANSFORM, out.topic)
    if out.steal != NULL:
        buffer_give(&b.reactor.buffers, out.steal, out.steal_cap)
    publication_fini(b, out)
    if c.pending_packet != NULL:
        pending_packet_free(b, c)


cdef int decide_by_plugin(Broker* b, Client* c, Publish* p, int* allowed) noexcept nogil:
    cdef View topic = p.topic
    cdef uint32_t mount = c.listener.mount_point.n
    cdef uint8_t* bytes
    if mount:
        bytes = scratch(b, mount + topic.n)
        if bytes == NULL:
            return RC_QUOTA_EXCEEDED
        memcpy(bytes, c.listener.mount_point.p, mount)
        memcpy(bytes + mount, topic.p, topic.n)
        topic.p = bytes
        topic.n += mount
    if topic_reserved(topic) or (b.settings.message_size_limit and p.payload.n > b.settings.message_size_limit):
        return 0                 # refused in any case
    return publish_decide(b, c, p, topic, allowed)


cdef inline bint is_taken_by_plugin(Client* c) noexcept nogil:
    """Return whether a plugin dropped the message: it is acknowledged and not routed."""
    return c.pending_packet != NULL and c.pending_packet.dropped


cdef uint8_t verdict_of_plugin(Broker* b, Client* c, Publication* out, uint8_t verdict) noexcept nogil:
    """Take over what a plugin has made of the message. If none has decided in time, it is refused: an acknowledgement would lose it."""
    if c.pending_packet.replaced:
        replace_by_plugin(c, out)
    if not c.pending_packet.unanswered:
        return verdict
    dropped(b, c.session, DROP_TRANSFORM, out.topic)
    return RC_QUOTA_EXCEEDED


cdef void replace_by_plugin(Client* c, Publication* out) noexcept nogil:
    """Replace the message by the plugin's result. The packet's own QoS still determines its acknowledgement."""
    out.topic = owned_view(&c.pending_packet.text)
    out.payload = owned_view(&c.pending_packet.bytes)
    if c.pending_packet.props.p != NULL:
        out.props = owned_view(&c.pending_packet.props)
    out.qos = c.pending_packet.qos
    out.retain = c.pending_packet.retain
    out.shaped = out.payload.n < LEND_MIN_BYTES
    out.frame.p = NULL


cdef int publish_to_control(Broker* b, Client* c, Publish* p) noexcept nogil:
    """Handle a PUBLISH to the broker itself. It is never routed, retained or stored. It is acknowledged when it is answered or
    sent to the control plane."""
    cdef bint repeated = p.qos == 2 and p.dup and inbox_find(&c.session.inbox, p.pid) != NULL
    cdef int allowed = BY_RULES
    cdef int verdict = RC_SUCCESS
    cdef int rc = 0
    if not repeated and is_plugged(session_security(c.session)):
        rc = publish_decide(b, c, p, p.topic, &allowed)
    if rc == 0 and not repeated:
        verdict = control_handle(b, c, p, allowed)
        rc = PACKET_PENDING if verdict == PACKET_PENDING else 0
    if rc:
        b.stats.publish_in -= 1          # the packet is handled again, or does not count
        b.stats.publish_bytes_in -= p.payload.n
        return rc
    if not repeated:
        if verdict == RC_NOT_AUTHORIZED:
            log_denied(b, c, p)
        else:
            log_received(b, c, p, "Received")
    pending_packet_free(b, c)
    if p.qos == 1:
        ack_now(b, c, T_PUBACK, p.pid, <uint8_t>verdict if c.version == V5 else 0)
    elif p.qos == 2 and repeated:
        ack_after_all(b, c, T_PUBREC, p.pid)
    elif p.qos == 2:
        return control_hold(b, c, p, <uint8_t>verdict)
    return 0


cdef int control_hold(Broker* b, Client* c, const Publish* p, uint8_t verdict) noexcept nogil:
    """Remember the packet id until PUBREL, so that the request is not executed twice."""
    cdef InboundQos2* h = inbox_find(&c.session.inbox, p.pid)
    cdef int rc
    if h != NULL:
        pid_reused(b, c, h)
    rc = check_quota(b, c, p.topic, 0, &verdict)
    return rc if rc else qos2_hold(b, c, p.pid, NULL, verdict)


cdef uint8_t durability_of(Broker* b, const Client* c, View topic) noexcept nogil:
    """Return the durability level of the topic, otherwise of the listener; 0 = the broker's level."""
    cdef uint32_t i
    if b.durable != NULL:
        for i in range(b.settings.n_durability_rules):
            if filter_matches(b.settings.durability_rules[i].filter, topic):
                return b.settings.durability_rules[i].level
    return c.listener.durability


cdef uint8_t publish_accepted(Broker* b, Client* c, Publication* p, uint16_t pid) noexcept nogil:
    cdef uint8_t verdict
    if not b.settings.keep_publishers:
        return publish_routed(b, c, p)
    publisher_set(b, c.session, pid)
    verdict = publish_routed(b, c, p)
    publisher_set(b, NULL, 0)
    return verdict


cdef inline uint8_t publish_routed(Broker* b, Client* c, Publication* p) noexcept nogil:
    cdef uint32_t matched
    if p.retain and p.qos and b.streams != NULL and not p.journalled and not route_journalled(b, p):
        matched = ROUTE_REFUSED  # refused before it replaces the retained message
    else:
        if p.retain:
            retain_put(b, p)
        matched = route(b, p, c)
    if matched == ROUTE_REFUSED:
        dropped(b, c.session, DROP_DISK, p.topic)
        return RC_QUOTA_EXCEEDED
    return RC_SUCCESS if matched else RC_NO_MATCHING_SUBSCRIBERS      # [v5 3.4.2.1]


# ---------------------------------------------------------------- QoS 2

cdef int qos2_receive(Broker* b, Client* c, Publish* p, Publication* out, uint8_t verdict, bint unwanted) noexcept nogil:
    cdef Inbox* inbox = &c.session.inbox
    cdef InboundQos2* h = inbox_find(inbox, p.pid)
    cdef Message* m = NULL
    cdef int rc
    if h != NULL and same_message(h.message, out):
        # A 5.0 client sends a message again only after a reconnect [v5 4.4.0-1]. One copy too many is accepted, as in Mosquitto.
        if inbox_count_copy(inbox, h) > COPIES_MAX and (c.version == V5 or b.settings.compat):
            return RC_PROTOCOL_ERROR
        ack_after_all(b, c, T_PUBREC, p.pid)    # [v5 4.3.3-10] received before
        return 0
    if h != NULL:
        pid_reused(b, c, h)          # the client has forgotten the old message: the new one counts
    rc = check_quota(b, c, out.topic, out.topic.n + out.props.n + out.payload.n, &verdict)
    if rc:
        return rc
    if verdict < 0x80 and not is_taken_by_plugin(c) and not unwanted:
        m = publication_store(b, out)
        if m == NULL:
            dropped(b, c.session, DROP_MEMORY, out.topic)
            verdict = RC_QUOTA_EXCEEDED
        else:
            message_ref(m)
    if verdict == RC_QUOTA_EXCEEDED and c.version != V5:
        return RC_QUOTA_EXCEEDED     # 3.x has no code for it: an acknowledgement would lose the message
    return qos2_hold(b, c, p.pid, m, verdict)


cdef int qos2_hold(Broker* b, Client* c, uint16_t pid, Message* m, uint8_t verdict) noexcept nogil:
    cdef uint64_t changes = changes_of(b)
    cdef uint64_t identity = 0
    if verdict >= 0x80 and c.version == V5:
        ack_now(b, c, T_PUBREC, pid, verdict)
        return 0
    if (not persist_reserve(b, c.session, RECORD_ROOM + message_bytes(m) if m != NULL else 0)
            or inbox_add(&c.session.inbox, pid, m) != 0):
        if m != NULL:
            message_unref(&b.messages, &b.reactor.buffers, m)
        return RC_QUOTA_EXCEEDED
    if m != NULL and b.links != NULL:
        identity = inbox_find(&c.session.inbox, pid).identity = link_identity_new(&links_of(b).links)
    persist_inbound(b, c.session, pid, m, identity)
    ack_when_committed(b, c, T_PUBREC, pid, RC_SUCCESS, changes, NULL, 0)
    return 0


cdef bint same_message(Message* m, Publication* p) noexcept nogil:
    return m != NULL and m.topic.n == p.topic.n and m.payload.n == p.payload.n \
        and memcmp(m.topic.p, p.topic.p, m.topic.n) == 0 and memcmp(m.payload.p, p.payload.p, m.payload.n) == 0


cdef void inbound_drop(Broker* b, Client* c, InboundQos2* h) noexcept nogil:
    """Forget a message that waits for PUBREL. The message is released last, because inbox_remove counts its bytes."""
    cdef Message* m = h.message
    if h.identity:
        link_identity_end(&links_of(b).links, h.identity)
    persist_inbound_end(b, c.session, h.pid)
    inbox_remove(&c.session.inbox, h)
    if m != NULL:
        message_unref(&b.messages, &b.reactor.buffers, m)


cdef void pid_reused(Broker* b, Client* c, InboundQos2* h) noexcept nogil:
    if peer_line_wanted(b, c, LOG_WARNING, LINE_PROTOCOL):
        log_line(b, LOG_WARNING, snprintf(
            b.log.line, LOG_LINE_MAX, "Reused message ID %d from %.*s detected. Clearing from storage.", <int>h.pid,
            <int>c.session.id_len, <const char*>c.session.client_id))
    inbound_drop(b, c, h)


cdef uint64_t release_bytes(Broker* b, const Message* m) noexcept nogil:
    """Return the bytes of the records that a release needs: the topic, if the message clears a retained message, and the record
    of release_in_slices or ack_when_routed."""
    if m == NULL:
        return 0
    return m.topic.n + (RECORD_ROOM + message_bytes(m) if b.streams != NULL or b.links != NULL else 0)


cdef void release_in_slices(Broker* b, Job* j, Client* c, uint16_t pid, uint64_t identity, bint journalled) noexcept nogil:      # parameters: a release, and the rest of its fan-out
    """Note that the job still delivers the message. The packet id is free when all sessions have it. If the broker crashes
    before that, the restart releases the message again, but does not write it to streams again: the batch of the streams' records
    contains that fact. `identity`: not 0 if other workers get it too."""
    j.released_pid = pid
    j.released_identity = identity
    if journalled and not j.message.flags & MESSAGE_JOURNALLED:
        j.message.flags |= MESSAGE_JOURNALLED
        persist_inbound(b, c.session, pid, j.message, identity)


cdef int publish_released(Broker* b, Client* c, uint16_t pid) noexcept nogil:
    """Handle PUBREL and answer with PUBCOMP [v5 4.3.3-11], also for an id that is done, as in Mosquitto. One batch records both
    that the message was routed and that its id is free: neither counts without the other. A result other than 0 ends the client;
    then nothing has happened."""
    cdef InboundQos2* h = inbox_find(&c.session.inbox, pid)
    cdef Message* m
    cdef Publication p
    cdef uint64_t changes = changes_of(b)
    cdef uint8_t durability = 0, verdict = RC_SUCCESS
    cdef bint journalled = 0
    cdef LinkWaiter* waiter = NULL
    cdef Job* rest
    cdef uint64_t identity
    if h == NULL:
        if b.links == NULL or not routed_again(b, c, pid):
            ack_after_all(b, c, T_PUBCOMP, pid)     # a repeated PUBREL after a reconnect
        return 0
    m = h.message
    if not persist_reserve(b, c.session, release_bytes(b, m)) or (b.durable != NULL and not fanout_spare(b)):
        return RC_QUOTA_EXCEEDED
    if m != NULL:
        publication_of(&p, m)
        p.source = c.session
        p.patient = b.durable != NULL
        if b.links != NULL:
            if h.identity == 0:
                h.identity = link_identity_new(&links_of(b).links)       # a store of a broker that was alone has none
            links_of(b).identity = h.identity
        if m.flags & MESSAGE_LOCAL_DONE:
            p.scope = SCOPE_REMOTE
            p.journalled = 1
        p.durability = durability = durability_of(b, c, p.topic)
        if p.expires_ms == 0 or p.expires_ms > b.reactor.now_ms:
            verdict = publish_accepted(b, c, &p, pid)
        journalled = p.journalled
        if b.links != NULL:
            links_of(b).identity = 0
        waiter = waiter_take(b)
        publication_fini(b, &p)
        if verdict == RC_QUOTA_EXCEEDED:
            return RC_QUOTA_EXCEEDED
    identity = h.identity
    inbox_remove(&c.session.inbox, h)
    rest = fanout_of_client(b, c, m)
    if waiter != NULL:
        if rest != NULL:
            release_in_slices(b, rest, c, pid, identity, journalled)
        ack_when_routed(b, c, waiter, pid, m, identity, durability)
        message_unref(&b.messages, &b.reactor.buffers, m)
        return 0
    if identity:
        link_identity_end(&links_of(b).links, identity)      # no other worker has it
    if rest != NULL:
        release_in_slices(b, rest, c, pid, 0, journalled)
    else:
        persist_inbound_end(b, c.session, pid)
    ack_when_committed(b, c, T_PUBCOMP, pid, RC_SUCCESS, changes, m, durability)
    if m != NULL:
        message_unref(&b.messages, &b.reactor.buffers, m)
    return 0


cdef inline uint64_t inbound_maximum(Broker* b, const Client* c) noexcept nogil:
    """Return the largest number of QoS 2 messages that may wait for PUBREL. 3.x has no Receive Maximum, and clients that send many
    messages before they read PUBREC are valid: they get the bound at which Mosquitto drops inbound messages."""
    if c.version == V5:
        return c.receive_max if c.receive_max else 65535     # [v5 3.2.2.3.3]
    return <uint64_t>b.settings.max_inflight_messages + b.settings.max_queued_messages if b.settings.max_queued_messages else 65535


cdef int check_quota(Broker* b, Client* c, View topic, uint64_t size, uint8_t* verdict) noexcept nogil:
    """Check the number and the bytes of the QoS 2 messages that wait for PUBREL, before one of `size` bytes is added
    [v5 3.3.4-9]. Returns the reason why the connection ends, or 0; then `verdict` is the answer to the client. The Receive Maximum
    belongs to the connection [v5 4.9]. What earlier connections left behind is bounded by a multiple of it, and by its bytes: above
    that, the broker forgets what the client has not released during a whole connection, because it has lost its state."""
    cdef Inbox* inbox = &c.session.inbox
    cdef uint64_t most = <uint64_t>b.settings.max_inflight_messages + b.settings.max_queued_messages
    cdef bint refused = 0
    if inbox.n >= INBOX_CONNECTIONS * inbound_maximum(b, c):
        inbox_forget(b, c)
    # twice: after a restart nothing is known to be older than the last connection
    if inbox.n - inbox.inherited >= inbound_maximum(b, c) or inbox.n >= 2 * INBOX_CONNECTIONS * inbound_maximum(b, c):
        dropped(b, c.session, DROP_QUOTA, topic)
        log_quota(b, c, "has exceeded its receive-maximum quota. This behaviour must be fixed on the client.")
        if c.version != V5:
            return RC_QUOTA_EXCEEDED
        if b.settings.receive_maximum_disconnect:
            return RC_RECEIVE_MAXIMUM_EXCEEDED
        if b.settings.max_queued_messages and inbox.n >= most:
            refused = 1
    # a single message of any size is accepted: max_packet_size limits it
    if is_inbox_full(b, inbox, size):
        inbox_forget(b, c)
    if verdict[0] < 0x80 and is_inbox_full(b, inbox, size):
        dropped(b, c.session, DROP_QUOTA, topic)
        log_quota(b, c, "has exceeded max_inbound_qos2_bytes. It must send PUBREL for the messages that it published.")
        refused = 1
    if refused:
        verdict[0] = RC_QUOTA_EXCEEDED
    return RC_QUOTA_EXCEEDED if refused and c.version != V5 else 0


cdef inline bint is_inbox_full(Broker* b, const Inbox* inbox, uint64_t size) noexcept nogil:
    return b.settings.max_inbound_qos2_bytes and inbox.bytes and inbox.bytes + size > b.settings.max_inbound_qos2_bytes


cdef void inbox_forget(Broker* b, Client* c) noexcept nogil:
    """Drop the messages that were left behind before the connection before this one. The client could have released them since."""
    cdef Inbox* inbox = &c.session.inbox
    cdef uint32_t at = 0
    cdef InboundQos2* h = inbox_forgotten(inbox, &at)
    b.work += inbox.mask // 8
    if h != NULL:
        log_quota(b, c, "has not released QoS 2 messages of earlier connections. They are dropped.")
    while h != NULL:
        if h.message != NULL:
            dropped(b, c.session, DROP_QUOTA, h.message.topic)
        inbound_drop(b, c, h)
        h = inbox_forgotten(inbox, &at)


cdef void log_quota(Broker* b, Client* c, const char* text) noexcept nogil:
    if peer_line_wanted(b, c, LOG_WARNING, LINE_PROTOCOL):
        log_line(b, LOG_WARNING, snprintf(b.log.line, LOG_LINE_MAX, "Client %.*s %s", <int>c.session.id_len,
                                          <const char*>c.session.client_id, text))


# ---------------------------------------------------------------- checks that end the client

cdef int publish_malformed(Broker* b, Client* c, uint8_t first, int rc) noexcept nogil:
    """Return the reason to end the connection: as in Mosquitto, flags that CONNACK has excluded come before a malformed body."""
    cdef uint8_t qos = first >> 1 & 3
    cdef int excluded = 0
    if qos != 3 and (qos or not first & 8):
        excluded = check_announced(b, c, qos, first & 1)
    if not excluded:
        log_malformed(b, c, first)
    return excluded or rc


cdef inline int check_announced(Broker* b, Client* c, uint8_t qos, bint retain) noexcept nogil:
    """Check what CONNACK has announced. As in Mosquitto, it comes before the topic and its alias."""
    if qos > c.listener.max_qos:
        log_bad(b, c, "Too high QoS in PUBLISH")
        return RC_QOS_NOT_SUPPORTED      # [v5 3.2.2-11]
    if retain and not b.settings.retain_available:
        return RC_RETAIN_NOT_SUPPORTED   # [v5 3.2.2-14]
    return 0


cdef int alias_resolve(Client* c, Publish* p) noexcept nogil:
    """Set the topic from the alias, or the alias from the topic [v5 3.3.2.3.4]."""
    cdef AliasIn* a
    cdef uint8_t* copy
    if not props_has(&p.props, P_TOPIC_ALIAS):
        return RC_PROTOCOL_ERROR if p.topic.n == 0 else 0    # [v5 3.3.2-8]
    if p.props.alias == 0 or p.props.alias > c.alias_max_in:
        return RC_TOPIC_ALIAS_INVALID    # [v5 3.3.2-9]
    if aliases_of(c) == NULL:
        return RC_QUOTA_EXCEEDED
    if c.aliases.taken == NULL:
        c.aliases.taken = <AliasIn*>calloc(c.alias_max_in, sizeof(AliasIn))
        if c.aliases.taken == NULL:
            return RC_QUOTA_EXCEEDED
    a = &c.aliases.taken[p.props.alias - 1]
    if p.topic.n == 0:
        if a.topic == NULL:
            return RC_PROTOCOL_ERROR
        p.topic.p = a.topic
        p.topic.n = a.n
        return 0
    copy = <uint8_t*>malloc(p.topic.n)
    if copy == NULL:
        return RC_QUOTA_EXCEEDED
    memcpy(copy, p.topic.p, p.topic.n)
    free(a.topic)
    a.topic = copy
    a.n = p.topic.n
    return 0


cdef int check_publish(Broker* b, Client* c, Publish* p) noexcept nogil:
    if name_check(p.topic.p, p.topic.n) != 0:
        return RC_MALFORMED    # [v5 3.3.2-2]: a name with wildcards is no topic name; 0x90 is for well-formed names [v5 3.14.2.1]
    if b.settings.topic_levels_max < LEVELS_MAX and level_count(p.topic.p, p.topic.n) > b.settings.topic_levels_max \
            and not control_topic(c, p.topic):
        return RC_TOPIC_NAME_INVALID     # well-formed, but not accepted here
    if c.version == V5 and props_has(&p.props, P_RESPONSE_TOPIC) \
            and name_check(p.props.response_topic.p, p.props.response_topic.n) != 0:
        return RC_PROTOCOL_ERROR         # [v5 3.3.2-14]
    return 0


# ---------------------------------------------------------------- the publication

cdef uint8_t* scratch(Broker* b, uint32_t n) noexcept nogil:
    cdef uint8_t* p
    if n > b.scratch_cap:
        p = <uint8_t*>realloc(b.scratch, n)
        if p == NULL:
            return NULL
        b.scratch = p
        b.scratch_cap = n
    return b.scratch


cdef bint is_canonical(Client* c, const Frame* f, Publish* p) noexcept nogil:
    """Return whether all lengths of the packet are encoded in the fewest bytes. Otherwise subscribers must not get the frame
    unchanged [v5 1.5.5-1]."""
    cdef const uint8_t* block = p.topic.p + p.topic.n + (2 if p.qos else 0)
    if f.total_len - f.body_len - 1 != varint_size(f.body_len):
        return 0
    return c.version != V5 or <uint32_t>(p.props.raw.p - block) == varint_size(p.props.raw.n)


cdef int publication_fill(Broker* b, Client* c, const Frame* f, Publish* p, Publication* out) noexcept nogil:
    """Fill the publication from the packet. Returns 0; -1 = no memory; NO_BRIDGE_LINE."""
    cdef bint verbatim = 1
    cdef Renaming name
    cdef uint32_t size = 0
    cdef uint64_t since_ms
    cdef uint8_t* bytes = NULL
    cdef uint8_t* end
    cdef View via
    name.prefix = c.listener.mount_point
    name.cut = 0
    via.n = 0
    if c.flags & CF_BRIDGE:
        if not bridge_accepts(b, c, p.topic, &name):
            return NO_BRIDGE_LINE
        via = bridge_via(b, c)
    out.topic.p = p.topic.p + name.cut
    out.topic.n = p.topic.n - name.cut
    out.payload = p.payload
    out.qos = p.qos
    out.dup = p.dup
    out.retain = p.retain
    out.source = c.session
    out.shaped = p.payload.n < LEND_MIN_BYTES
    if c.version == V5:
        verbatim = props_verbatim(&p.props) and via.n == 0
        if verbatim:
            out.props = p.props.raw
        else:
            size = props_forward_size(&p.props) + via.n
        if props_has(&p.props, P_MESSAGE_EXPIRY):
            # an expiry interval of 0 is still delivered to connected sessions
            since_ms = c.pending_packet.since_ms if c.pending_packet != NULL else b.reactor.now_ms
            out.expires_ms = since_ms + (<uint64_t>p.props.message_expiry * 1000 or 1)     # [v5 3.3.2-6] the time in the server counts
    if name.prefix.n or not verbatim:
        bytes = scratch(b, name.prefix.n + p.topic.n + size + 1)
        if bytes == NULL:
            return -1
        if not verbatim:
            end = props_forward_put(bytes, &p.props)
            if via.n:
                memcpy(end, via.p, via.n)
            out.props.p = bytes
            out.props.n = size
        if name.prefix.n:
            memcpy(bytes + size, name.prefix.p, name.prefix.n)
            memcpy(bytes + size + name.prefix.n, p.topic.p + name.cut, p.topic.n - name.cut)
            out.topic.p = bytes + size
            out.topic.n = name.prefix.n + p.topic.n - name.cut
    elif name.cut == 0 and out.shaped and is_canonical(c, f, p):
        out.frame.p = f.start
        out.frame.n = f.total_len
        out.frame_version = c.version
        out.frame_pid_at = <uint32_t>(p.topic.p + p.topic.n - f.start)
    if p.payload.n >= STEAL_MIN_BYTES and (c.pending_packet == NULL or not c.pending_packet.answered):
        out.steal = conn_steal_input(&c.conn, f.start, f.total_len, &out.steal_cap)
    return 0


cdef uint8_t publish_verdict(Broker* b, Client* c, Publish* p, Publication* out, int allowed) noexcept nogil:
    """Return the reason code of the acknowledgement. Below 0x80 the message is accepted."""
    if b.settings.message_size_limit and p.payload.n > b.settings.message_size_limit:
        dropped(b, c.session, DROP_PAYLOAD_SIZE, out.topic)
        log_received(b, c, p, "Dropped too large")
        return RC_PACKET_TOO_LARGE
    if c.flags & CF_TRUSTED:
        return RC_SUCCESS
    if c.flags & CF_BRIDGE:
        allowed = 1              # the lines of a bridge decide which topics may come in
    elif topic_reserved(out.topic):
        allowed = 0
    elif allowed < 0:
        allowed = not access_ruled(c.session) or access_allows(b, c.session, out.topic, ACL_WRITE)
    if not allowed:
        return publish_denied(b, c, p, out.topic)
    if memory_short(b, 0 if p.retain and p.payload.n else memory_reserve(b)):
        dropped(b, c.session, DROP_MEMORY, out.topic)
        return RC_QUOTA_EXCEEDED
    if p.qos and c.version == V5 and durable_refuses(b):
        dropped(b, c.session, DROP_DISK, out.topic)      # other clients get no acknowledgement until there is room
        return RC_QUOTA_EXCEEDED
    return RC_SUCCESS


cdef uint8_t publish_denied(Broker* b, Client* c, Publish* p, View topic) noexcept nogil:
    dropped(b, c.session, DROP_ACL_WRITE, topic)
    log_denied(b, c, p)
    return RC_NOT_AUTHORIZED


cdef void log_denied(Broker* b, Client* c, Publish* p) noexcept nogil:
    """Log a denied PUBLISH: at debug, as Mosquitto does, or a limited number per second at notice."""
    if log_wanted(&b.log, LOG_DEBUG):
        log_received_publish(b, c, p, "Denied", LOG_DEBUG)
    elif log_wanted(&b.log, LOG_NOTICE) and denial_logged(b):
        log_received_publish(b, c, p, "Denied", LOG_NOTICE)


cdef void log_received(Broker* b, Client* c, Publish* p, const char* text) noexcept nogil:
    if log_wanted(&b.log, LOG_DEBUG):
        log_received_publish(b, c, p, text, LOG_DEBUG)


cdef void log_received_publish(Broker* b, Client* c, Publish* p, const char* text, uint32_t type) noexcept nogil:
    log_line(b, type, snprintf(
        b.log.line, LOG_LINE_MAX, "%s PUBLISH from %.*s (d%d, q%d, r%d, m%d, '%.*s', ... (%u bytes))", text,
        <int>c.session.id_len, <const char*>c.session.client_id, <int>p.dup, <int>p.qos, <int>p.retain, <int>p.pid,
        <int>p.topic.n, <const char*>p.topic.p, p.payload.n))


cdef void log_malformed(Broker* b, Client* c, uint8_t first) noexcept nogil:
    if (first & 6) == 6:
        log_bad(b, c, "Invalid QoS in PUBLISH")
    elif (first & 14) == 8:
        log_bad(b, c, "Invalid PUBLISH (QoS=0 and DUP=1)")


cdef void log_bad(Broker* b, Client* c, const char* text) noexcept nogil:
    if peer_line_wanted(b, c, LOG_INFORMATION, LINE_PROTOCOL):
        log_line(b, LOG_INFORMATION, snprintf(b.log.line, LOG_LINE_MAX, "%s from %.*s, disconnecting.", text,
                                              <int>c.session.id_len, <const char*>c.session.client_id))
