"""Deliver a publication to one session: send it now, queue it, or drop it with a counted reason. This module knows sessions,
queues and the encoding of PUBLISH. It does not know topics or the subscription index.

Invariants: a publication is stored at most once and encoded at most once per shape (version, QoS, retain), whatever the size of
its fan-out. QoS 0 to a connected client is never stored. QoS 1 and 2 always pass through the queue, which alone knows their
progress. Cost of a QoS 0 delivery: the copy of its bytes and about 20 ns.
"""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport malloc
from libc.string cimport memcmp, memcpy

from cext.base.hash cimport hash_bytes
from cext.base.view cimport View
from cext.broker.auth.bridge cimport (
    bridge_choose_lines, bridge_default_lines, bridge_props, bridge_queues_qos0, bridge_renames, bridge_settled, bridge_via,
    session_queued,
)
from cext.broker.core.access cimport access_allows
from cext.broker.core.bounds cimport HIGH_WATER_BYTES, LAST_VALUES_MAX, LEND_MIN_BYTES, QUEUE_SPAN_MAX, SHAPES_BYTES, WORK_SEND
from cext.broker.core.bridge_state cimport bridges_of
from cext.broker.core.broker cimport Broker
from cext.broker.core.client cimport client_doom, client_room, gives_aliases, log_line_of
from cext.broker.core.client_state cimport AliasOut, AliasSlot, CF_BRIDGE, Client
from cext.broker.core.listener cimport Security
from cext.broker.core.log cimport LOG_DEBUG, LOG_LINE_MAX, log_wanted
from cext.broker.core.publication_state cimport Publication, Shape
from cext.broker.core.session_refs cimport session_client, session_security
from cext.broker.core.settings cimport DURABILITY_NONE, OVERFLOW_LAST_VALUE, OVERFLOW_NEWEST
from cext.broker.core.stats cimport (
    DROP_ACL_READ, DROP_EXPIRED, DROP_MEMORY, DROP_NO_NAME, DROP_OUTPUT_BYTES, DROP_PACKET_SIZE, DROP_QOS0_BLOCKED,
    DROP_QUEUE_BYTES, DROP_QUEUE_MESSAGES, DROP_REASONS, DROP_REPLACED,
)
from cext.broker.persist.accounts cimport (
    ACCOUNT_ACKNOWLEDGED, ACCOUNT_DROPPED, ACCOUNT_EXPIRED, ACCOUNT_GONE, account_left, account_published, account_queued,
    account_refused, account_sent, account_turned_away,
)
from cext.broker.persist.pending_acks cimport ack_after_all
from cext.broker.persist.persist cimport (
    pending_delivery_done, pending_delivery_record, pending_delivery_release, pending_delivery_wait, persist_lacks_memory,
    sendable,
)
from cext.broker.persist.publication cimport (
    drop, drop_unlogged, dropped, publication_fini, publication_message, publication_of, publication_store,
)
from cext.broker.routing.paged cimport memory_is_full, page_out_some, pages_request
from cext.broker.routing.plugin_gate cimport GATED_READY, GatedDelivery, plugin_gate_next, plugin_gate_takes, plugin_gate_verdict
from cext.broker.rules.acl cimport ACL_READ
from cext.codec.encode cimport PublishHead, publish_head_put, publish_head_size
from cext.codec.frame cimport T_PUBREL, V5, varint_put, varint_size
from cext.codec.reason cimport RC_QUOTA_EXCEEDED
from cext.net.conn_output cimport conn_flush, conn_lend, conn_wrote
from cext.net.conn_state cimport CONN_BLOCKED, CONN_CLOSED, CONN_CLOSING, CONN_DIRTY, CONN_HUNGRY, FLUSH_EARLY_BYTES
from cext.session.message cimport MESSAGE_AGAIN, MESSAGE_SPREAD, Message, message_bytes, message_ref, message_unref
from cext.session.queue cimport (
    DELIVERY_RETAIN, DELIVERY_SHARED, D_DONE, D_RELEASED, D_SENT, D_WAITING, Delivery, Queue, delivery_bytes, delivery_message,
    delivery_release, delivery_topic, inbox_fini, is_paged, queue_at, queue_done, queue_pop, queue_position, queue_push,
)
from cext.session.session cimport (
    SESSION_BRIDGE, SESSION_DROPPING, SESSION_RECHECK, SESSION_STRANGER, Session, session_share, session_sub_id,
)
from cext.topic.lines cimport Renaming

cdef enum:
    WROTE = 0
    TOO_LARGE = 1
    NO_ROOM = 2
    NO_SHAPE = 3
    NO_NAME = 4                  # for a bridge only


# ---------------------------------------------------------------- encoding

cdef inline uint32_t seconds_left(Broker* b, uint64_t expires_ms) noexcept nogil:
    return <uint32_t>((expires_ms - b.reactor.now_ms + 999) // 1000) if expires_ms > b.reactor.now_ms else 0


cdef inline bint expired(Broker* b, uint64_t expires_ms) noexcept nogil:
    return expires_ms != 0 and expires_ms <= b.reactor.now_ms


cdef void publish_head_fill(Broker* b, PublishHead* h, Publication* p, int version, int qos, int retain) noexcept nogil:
    h.version = <uint8_t>version
    h.qos = <uint8_t>qos
    h.retain = <uint8_t>retain
    h.dup = 0
    h.pid = 0
    h.alias = 0
    h.has_expiry = 0
    h.topic = p.topic
    h.n_sub_ids = 0
    h.sub_ids = NULL
    h.payload_len = p.payload.n
    if version == V5:
        h.props = p.props
        if p.expires_ms:
            h.has_expiry = 1
            h.expiry = seconds_left(b, p.expires_ms)


cdef Shape* shape_of(Broker* b, Publication* p, int version, int qos, int retain) noexcept nogil:
    """Return the encoding of p for all subscribers of this version, QoS and retain flag; NULL = the buffer for shapes is full."""
    cdef int i = (6 if version == V5 else 0) + qos * 2 + retain
    cdef Shape* shape = &p.shapes[i]
    cdef PublishHead h
    cdef uint32_t size, remaining
    cdef uint8_t* out
    if p.shapes_made >> i & 1:
        return shape
    if p.frame.p != NULL and (p.frame.p[0] & 15) == (qos << 1 | retain) and (p.frame_version == V5) == (version == V5):
        shape.p = <uint8_t*>p.frame.p    # the received frame is sent unchanged
        shape.n = p.frame.n
        shape.pid_at = p.frame_pid_at
        p.shapes_made |= 1 << i
        return shape
    publish_head_fill(b, &h, p, version, qos, retain)
    size = publish_head_size(&h, &remaining)
    if size == 0 or p.shapes_used + size + p.payload.n > SHAPES_BYTES:
        return NULL
    out = b.shape_bytes + p.shapes_used
    publish_head_put(out, &h, remaining, &shape.pid_at)
    if p.payload.n:
        memcpy(out + size, p.payload.p, p.payload.n)
    shape.p = out
    shape.n = size + p.payload.n
    p.shapes_used += shape.n
    p.shapes_made |= 1 << i
    return shape


cdef inline void count_out(Broker* b, Client* c, uint32_t payload_n) noexcept nogil:
    c.out_packets += 1
    b.stats.messages_out += 1
    b.stats.publish_out += 1
    b.stats.publish_bytes_out += payload_n


cdef int write_publish(Broker* b, Client* c, Publication* p, int qos, int retain, int dup, uint16_t pid,
                       const uint32_t* sub_ids, uint32_t n_sub_ids) noexcept nogil:
    cdef Shape* shape
    cdef uint8_t* out
    cdef int wrote
    if c.conn.out_bytes == 0:
        c.out_packets = 0
    if not c.conn.flags & CONN_DIRTY:
        b.work += WORK_SEND
    b.work += 1
    if p.shaped and n_sub_ids == 0 and not gives_aliases(c) and c.listener != NULL and c.listener.renames and c.flags & CF_BRIDGE:
        wrote = write_renamed(b, c, p, qos, retain, dup, pid)
        if wrote != NO_SHAPE:
            return wrote
    elif p.shaped and n_sub_ids == 0 and not gives_aliases(c) and (c.listener == NULL or not c.listener.renames):
        shape = shape_of(b, p, c.version, qos, retain)
        if shape != NULL:
            if c.packet_max and shape.n > c.packet_max:
                return TOO_LARGE
            out = client_room(b, c, shape.n)
            if out == NULL:
                return NO_ROOM
            memcpy(out, shape.p, shape.n)
            if qos:
                out[shape.pid_at] = <uint8_t>(pid >> 8)
                out[shape.pid_at + 1] = <uint8_t>pid
                if dup:
                    out[0] |= 8
            conn_wrote(&b.reactor, &c.conn, shape.n)
            count_out(b, c, p.payload.n)
            if log_wanted(&b.log, LOG_DEBUG):
                log_sent_publish(b, c, p, qos, retain, dup, pid)
            return WROTE
    return write_single(b, c, p, qos, retain, dup, pid, sub_ids, n_sub_ids)


cdef int write_single(Broker* b, Client* c, Publication* p, int qos, int retain, int dup, uint16_t pid,
                      const uint32_t* sub_ids, uint32_t n_sub_ids) noexcept nogil:
    """Write the packet for one client that needs its own: a topic alias, subscription identifiers, a mount point, or a payload
    that is lent to the socket and not copied."""
    cdef PublishHead h
    cdef uint32_t size, remaining, mount
    cdef uint8_t* out
    cdef Renaming name
    cdef View via
    name.prefix.n = 0
    name.cut = 0
    cdef bint lend = p.payload.n >= LEND_MIN_BYTES and publication_store(b, p) != NULL
    publish_head_fill(b, &h, p, c.version, qos, retain)
    h.dup = <uint8_t>dup
    h.pid = pid
    if c.version == V5:
        h.sub_ids = sub_ids
        h.n_sub_ids = n_sub_ids
    if c.listener != NULL and c.listener.mount_point.n:
        mount = c.listener.mount_point.n
        if h.topic.n > mount and memcmp(h.topic.p, c.listener.mount_point.p, mount) == 0:
            h.topic.p += mount
            h.topic.n -= mount
    if c.flags & CF_BRIDGE:
        if not bridge_renames(b, c, h.topic, &name, &retain):
            return NO_NAME
        h.retain = <uint8_t>retain
        h.topic = joined(b, &name, h.topic)
        via = bridge_via(b, c)
        if via.n and not bridge_props(b, &h.props, via):
            return NO_ROOM
    size = publish_head_size(&h, &remaining)
    if size == 0 or (c.packet_max and <uint64_t>size + p.payload.n > c.packet_max):
        return TOO_LARGE
    if gives_aliases(c):
        alias_apply(b, c, &h)
        size = publish_head_size(&h, &remaining)
    out = client_room(b, c, size if lend else size + p.payload.n)
    if out == NULL:
        return NO_ROOM
    publish_head_put(out, &h, remaining, NULL)
    if lend:
        conn_wrote(&b.reactor, &c.conn, size)
        if conn_lend(&b.reactor, &c.conn, p.payload.p, p.payload.n, message_ref(p.message)) != 0:
            p.message.refs -= 1
            client_doom(b, c, RC_QUOTA_EXCEEDED)     # half a frame is in the output: the stream cannot be repaired
            return NO_ROOM
    else:
        if p.payload.n:
            memcpy(out + size, p.payload.p, p.payload.n)
        conn_wrote(&b.reactor, &c.conn, size + p.payload.n)
    count_out(b, c, p.payload.n)
    if log_wanted(&b.log, LOG_DEBUG):
        log_sent_publish(b, c, p, qos, retain, dup, pid)
    return WROTE


cdef int write_renamed(Broker* b, Client* c, Publication* p, int qos, int retain, int dup, uint16_t pid) noexcept nogil:
    """Write the packet to a bridge: the encoding that all other subscribers get, with the topic renamed and the loop guard's
    property appended."""
    cdef Renaming name
    cdef Shape* shape
    cdef View via
    cdef const uint8_t* old
    cdef uint8_t* out
    cdef uint8_t* start
    cdef uint32_t topic_n, remaining, size, props_n = 0, props_at = 0, at = 1
    if not bridge_renames(b, c, p.topic, &name, &retain):
        return NO_NAME
    shape = shape_of(b, p, c.version, qos, retain)
    if shape == NULL:
        return NO_SHAPE
    via = bridge_via(b, c)
    while shape.p[at] & 128:
        at += 1
    old = shape.p + at + 1               # length field of the topic
    topic_n = name.prefix.n + p.topic.n - name.cut
    remaining = shape.n - at - 1 + topic_n - p.topic.n
    if via.n:
        props_at = 2 + p.topic.n + (2 if qos else 0)
        props_n = varint_at(old, &props_at)
        remaining += via.n + varint_size(props_n + via.n) - varint_size(props_n)
    size = 1 + varint_size(remaining) + remaining
    if c.packet_max and size > c.packet_max:
        return TOO_LARGE
    out = start = client_room(b, c, size)
    if out == NULL:
        return NO_ROOM
    out[0] = shape.p[0] | (8 if dup else 0)
    out = varint_put(out + 1, remaining)
    out[0] = <uint8_t>(topic_n >> 8)
    out[1] = <uint8_t>topic_n
    out += 2
    if name.prefix.n:
        memcpy(out, name.prefix.p, name.prefix.n)
    memcpy(out + name.prefix.n, old + 2 + name.cut, p.topic.n - name.cut)
    out += topic_n
    old += 2 + p.topic.n
    if qos:
        out[0] = <uint8_t>(pid >> 8)
        out[1] = <uint8_t>pid
        out += 2
        old += 2
    if via.n:
        out = varint_put(out, props_n + via.n)
        old = shape.p + at + 1 + props_at
        memcpy(out, old, props_n)
        memcpy(out + props_n, via.p, via.n)
        out += props_n + via.n
        old += props_n
    memcpy(out, old, <size_t>(shape.p + shape.n - old))
    conn_wrote(&b.reactor, &c.conn, size)
    count_out(b, c, p.payload.n)
    if log_wanted(&b.log, LOG_DEBUG):
        log_sent_publish(b, c, p, qos, retain, dup, pid)
    return WROTE


cdef inline uint32_t varint_at(const uint8_t* p, uint32_t* at) noexcept nogil:
    """Read the variable byte integer at `at` and move `at` behind it. The bytes are the broker's own encoding, so the integer is
    complete and in its shortest form."""
    cdef uint32_t v = 0, shift = 0
    while True:
        v |= <uint32_t>(p[at[0]] & 127) << shift
        at[0] += 1
        if p[at[0] - 1] < 128:
            return v
        shift += 7


cdef View joined(Broker* b, const Renaming* name, View topic) noexcept nogil:
    """Return the renamed topic. It is valid until the next call."""
    cdef uint8_t* room = bridges_of(b).room
    topic.p += name.cut
    topic.n -= name.cut
    if name.prefix.n:
        memcpy(room, name.prefix.p, name.prefix.n)
        memcpy(room + name.prefix.n, topic.p, topic.n)
        topic.p = room
        topic.n += name.prefix.n
    return topic


cdef bint fits(Client* c, PublishHead* h) noexcept nogil:
    cdef uint32_t remaining
    cdef uint32_t size = publish_head_size(h, &remaining)
    return size != 0 and (c.packet_max == 0 or <uint64_t>size + h.payload_len <= c.packet_max)


cdef void alias_apply(Broker* b, Client* c, PublishHead* h) noexcept nogil:
    """Apply a topic alias [v5 3.3.2.3.4]. The first topics get an alias each until all are used, and keep it for the
    connection."""
    cdef AliasOut* a = &c.aliases.given
    cdef uint64_t hash = hash_bytes(&b.key, h.topic.p, h.topic.n)
    cdef uint32_t i = <uint32_t>hash & a.mask
    cdef AliasSlot* slot = &a.slots[i]
    while slot.topic != NULL:
        if slot.hash == hash and slot.n == h.topic.n and memcmp(slot.topic, h.topic.p, slot.n) == 0:
            h.alias = slot.alias
            h.topic.n = 0
            return
        i = (i + 1) & a.mask
        slot = &a.slots[i]
    if a.n == a.max or h.topic.n == 0:
        return
    h.alias = 1                  # placeholder with the size of the real alias, to check that the packet that introduces it fits
    if not fits(c, h):
        # it does not fit: send without an alias, because the client must not learn an alias from a packet that is not sent
        h.alias = 0
        return
    h.alias = 0
    slot.topic = <uint8_t*>malloc(h.topic.n)
    if slot.topic == NULL:
        return
    memcpy(slot.topic, h.topic.p, h.topic.n)
    slot.n = h.topic.n
    slot.hash = hash
    a.n += 1
    slot.alias = a.n
    h.alias = a.n


cdef void log_sent_publish(Broker* b, Client* c, Publication* p, int qos, int retain, int dup, uint16_t pid) noexcept nogil:
    log_line_of(b, c, LOG_DEBUG, snprintf(
        b.log.line, LOG_LINE_MAX, "Sending PUBLISH to %.*s (d%d, q%d, r%d, m%d, '%.*s', ... (%u bytes))",
        <int>c.session.id_len, <const char*>c.session.client_id, dup, qos, retain, <int>pid,
        <int>p.topic.n, <const char*>p.topic.p, p.payload.n))


# ---------------------------------------------------------------- delivering

cdef void deliver(Broker* b, Session* s, Publication* p, uint8_t qos, uint8_t retain, const uint32_t* sub_ids,
                  uint32_t n_sub_ids) noexcept nogil:
    b.work += 1                  # also for a delivery that is dropped
    if s.security != NULL and session_security(s).guards and not passes(b, s, p, qos, retain, sub_ids, n_sub_ids):
        return
    deliver_now(b, s, p, qos, retain, sub_ids, n_sub_ids)


cdef void deliver_readable(Broker* b, Session* s, Publication* p, uint8_t qos, uint8_t retain, const uint32_t* sub_ids,
                           uint32_t n_sub_ids) noexcept nogil:
    b.work += 1
    if s.security != NULL and is_gated(session_security(s)) and plugin_gate_takes(b, s, p, qos, retain, sub_ids, n_sub_ids):
        return
    deliver_now(b, s, p, qos, retain, sub_ids, n_sub_ids)


cdef inline bint is_gated(const Security* security) noexcept nogil:
    return security.authorize or security.transform_out != NULL


cdef bint passes(Broker* b, Session* s, Publication* p, uint8_t qos, uint8_t retain, const uint32_t* sub_ids,
                 uint32_t n_sub_ids) noexcept nogil:
    """Return 1 if the publication may be delivered now; 0 = it was dropped, or it waits in the plugin gate for a verdict."""
    if is_gated(session_security(s)):
        return not plugin_gate_takes(b, s, p, qos, retain, sub_ids, n_sub_ids)
    if access_allows(b, s, p.topic, ACL_READ):
        return 1
    drop(b, s, DROP_ACL_READ, p.topic)
    return 0


cdef void deliver_gated(Broker* b, Session* s) noexcept nogil:
    cdef GatedDelivery h
    cdef Publication p
    while plugin_gate_next(s, &h):
        if h.state == GATED_READY:
            publication_of(&p, h.message)
            p.shaped = 0         # one client: an encoding for reuse would cost one more copy
            if h.shared:
                p.share = session_share(s, h.group, h.sub_id, 0)
            deliver_now(b, s, &p, h.qos, h.retain, &h.sub_id, 1 if h.sub_id else 0)
            publication_fini(b, &p)
        message_unref(&b.messages, &b.reactor.buffers, h.message)


cdef void deliver_now(Broker* b, Session* s, Publication* p, uint8_t qos, uint8_t retain, const uint32_t* sub_ids,
                      uint32_t n_sub_ids) noexcept nogil:
    cdef Client* c = session_client(s)
    cdef int wrote, why
    if expired(b, p.expires_ms):
        drop(b, s, DROP_EXPIRED, p.topic)
        account_turned_away(b, s, qos, ACCOUNT_EXPIRED)
        return
    if c == NULL:
        if qos or b.settings.queue_qos0 or (s.flags & SESSION_BRIDGE and bridge_queues_qos0(b, s)):
            enqueue(b, s, p, qos, retain, sub_ids, n_sub_ids)
        return
    if qos:
        enqueue(b, s, p, qos, retain, sub_ids, n_sub_ids)
        return
    if c.conn.flags & (CONN_BLOCKED | CONN_CLOSED | CONN_CLOSING) or c.conn.out_bytes > FLUSH_EARLY_BYTES:
        why = qos0_crowded(b, c, p)
        if why >= 0:
            drop(b, s, why, p.topic)
            return
    wrote = write_publish(b, c, p, 0, retain, 0, 0, sub_ids, n_sub_ids)
    if wrote != WROTE:
        drop(b, s, DROP_MEMORY if wrote == NO_ROOM else DROP_PACKET_SIZE if wrote == TOO_LARGE else DROP_NO_NAME, p.topic)
    elif s.flags & SESSION_DROPPING and not c.conn.flags & CONN_BLOCKED:
        s.flags &= ~<uint32_t>SESSION_DROPPING


cdef int qos0_crowded(Broker* b, Client* c, Publication* p) noexcept nogil:
    """Return the reason to drop a QoS 0 delivery, or -1 if it fits. QoS 0 has no queue but the socket's output: while the socket
    is full, up to max_queued_messages packets may wait, as in Mosquitto."""
    if not c.conn.flags & CONN_BLOCKED:
        conn_flush(&b.reactor, &c.conn)
    if c.conn.flags & (CONN_CLOSED | CONN_CLOSING):
        return DROP_QOS0_BLOCKED
    if <uint64_t>c.conn.out_bytes + p.payload.n > b.settings.max_output_bytes and c.conn.out_bytes:
        return DROP_OUTPUT_BYTES
    if c.conn.flags & CONN_BLOCKED and b.settings.max_queued_messages and c.out_packets >= b.settings.max_queued_messages:
        return DROP_QOS0_BLOCKED
    return -1


cdef bint queue_has_room(Broker* b, Session* s, const Publication* p, int* why) noexcept nogil:
    """Return whether the queue has room for one more delivery. max_queued_messages and max_queued_bytes limit the deliveries that
    wait beyond the inflight window. An offline session has nothing in flight."""
    cdef Queue* q = &s.queue
    cdef Client* c = session_client(s)
    cdef uint64_t count = b.settings.max_queued_messages
    cdef uint64_t bytes = b.settings.max_queued_bytes
    if count:
        if c != NULL:
            count += c.window
        if q.pending >= count:
            why[0] = DROP_QUEUE_MESSAGES
            return 0
    if bytes:
        if c != NULL:
            bytes += b.settings.max_inflight_bytes
        if q.waiting_bytes + q.inflight_bytes >= bytes:
            why[0] = DROP_QUEUE_BYTES
            return 0
    return 1


cdef void enqueue(Broker* b, Session* s, Publication* p, uint8_t qos, uint8_t retain, const uint32_t* sub_ids,
                  uint32_t n_sub_ids) noexcept nogil:
    cdef bint last_value = b.settings.overflow == OVERFLOW_LAST_VALUE
    cdef Message* m
    cdef Delivery* d
    cdef uint32_t sub_id = sub_ids[0] if n_sub_ids == 1 else 0
    account_published(b, s, qos)
    if not last_value and not make_room(b, s, p, qos):
        return
    m = publication_message(b, p, sub_ids, n_sub_ids)
    if m == NULL:
        enqueue_failed(b, s, p, qos)
        return
    if p.share:
        qos |= DELIVERY_SHARED
        sub_id = p.share - 1
    if last_value:
        if replace_older(b, s, m, p, qos | (DELIVERY_RETAIN if retain else 0), sub_id):
            return
        if not make_room(b, s, p, qos):
            message_unref(&b.messages, &b.reactor.buffers, m)
            return
    d = queue_push(&s.queue, m, qos, retain, sub_id)
    if d == NULL:
        message_unref(&b.messages, &b.reactor.buffers, m)
        enqueue_failed(b, s, p, qos)
        return
    if s.store_session_id and record_delivery(b, s, m, d, p) != 0:
        queue_pop(&s.queue)
        message_unref(&b.messages, &b.reactor.buffers, m)
        enqueue_failed(b, s, p, qos)
        return
    account_queued(b, s, qos)
    b.work += 1
    if s.store_session_id and memory_is_full(b):
        page_out_some(b, s)
    if s.client != NULL:
        pump(b, s, p)
    elif s.flags & SESSION_BRIDGE:
        session_queued(b, s)


cdef void enqueue_failed(Broker* b, Session* s, const Publication* p, uint8_t qos) noexcept nogil:
    drop(b, s, DROP_MEMORY, p.topic)
    account_refused(b, s, qos, ACCOUNT_DROPPED)
    if s.store_session_id:
        persist_lacks_memory(b)               # the publisher gets no acknowledgement


cdef inline int record_delivery(Broker* b, Session* s, Message* m, Delivery* d, const Publication* p) noexcept nogil:
    if p.durability == DURABILITY_NONE:
        # The message may have a record, because it is retained or is queued for another session. That record lacks this delivery.
        m.flags |= MESSAGE_SPREAD
        return pending_delivery_wait(b, s, d)
    return pending_delivery_record(b, s, m, d, queue_position(&s.queue, d))


# ---------------------------------------------------------------- overflow: drop the oldest or the newest, or keep last values

cdef void skip_done(Queue* q) noexcept nogil:
    """Move `next` and `floor` over deliveries that are done, so that these do not wait for their turn."""
    while q.next != q.tail and queue_at(q, q.next).state == D_DONE:
        q.next += 1
    while q.floor != q.next and queue_at(q, q.floor).state == D_DONE:
        q.floor += 1


cdef void unsent_done(Broker* b, Session* s, Delivery* d, int reason) noexcept nogil:
    drop(b, s, reason, delivery_topic(d))
    account_left(b, s, d.qos, ACCOUNT_DROPPED)
    if s.store_session_id:
        pending_delivery_done(b, s, delivery_message(d), queue_position(&s.queue, d))
    s.queue.waiting_bytes -= delivery_bytes(d)
    delivery_release(&b.messages, &b.reactor.buffers, d)
    queue_done(&s.queue, d)
    skip_done(&s.queue)


cdef bint make_room(Broker* b, Session* s, const Publication* p, uint8_t qos) noexcept nogil:
    """Make room for one delivery under the overflow policy. Returns 0 if there is no room: then the new delivery is dropped. Each
    drop is counted."""
    cdef int why = 0
    while not queue_has_room(b, s, p, &why):
        if b.settings.overflow == OVERFLOW_NEWEST or not drop_oldest(b, s, why):
            drop(b, s, why, p.topic)
            account_refused(b, s, qos, ACCOUNT_DROPPED)
            return 0
    return 1


cdef bint drop_oldest(Broker* b, Session* s, int reason) noexcept nogil:
    """Drop the oldest delivery that was never sent. Returns 0 if there is none."""
    cdef Queue* q = &s.queue
    cdef uint32_t i = q.next
    cdef Delivery* d
    if q.tail - q.floor >= QUEUE_SPAN_MAX:
        return 0                 # a delivery that was sent long ago is still unacknowledged
    while i != q.tail:
        d = queue_at(q, i)
        if d.state == D_WAITING:
            unsent_done(b, s, d, reason)
            return 1
        i += 1
    return 0


cdef inline bint has_topic(const Delivery* d, View topic) noexcept nogil:
    return not is_paged(d) and d.message.topic.n == topic.n and memcmp(d.message.topic.p, topic.p, topic.n) == 0


cdef bint replace_older(Broker* b, Session* s, Message* m, const Publication* p, uint8_t qos, uint32_t sub_id) noexcept nogil:
    """Replace a waiting delivery of the same topic that was never sent by message m, if there is one among the last
    LAST_VALUES_MAX. Returns 1 if it did; then the queue owns the caller's reference to m."""
    cdef Queue* q = &s.queue
    cdef uint32_t i = q.tail
    cdef uint32_t end = bridge_settled(b, s) if s.flags & SESSION_BRIDGE else q.next
    cdef uint32_t looked = 0
    cdef Delivery* d
    while i != end and looked < LAST_VALUES_MAX:
        i -= 1
        looked += 1
        d = queue_at(q, i)
        if d.state == D_WAITING and (d.qos & 3 != 0) == (qos & 3 != 0) and has_topic(d, m.topic):
            dropped(b, s, DROP_REPLACED, m.topic)
            account_refused(b, s, qos, ACCOUNT_DROPPED)      # one dropped for one queued
            q.waiting_bytes += message_bytes(m)
            q.waiting_bytes -= message_bytes(d.message)
            if s.store_session_id and <int>(i - s.logged) >= 0:
                pending_delivery_done(b, s, d.message, i)    # its record, if any, is replaced
            message_unref(&b.messages, &b.reactor.buffers, d.message)
            d.message = m
            d.qos = qos
            d.sub_id = sub_id
            # A record at the same position replaces the older one.
            if s.store_session_id and record_delivery(b, s, m, d, p) != 0:
                persist_lacks_memory(b)
            b.work += looked // 8
            return 1
    b.work += looked // 8
    return 0


cdef void delivery_done(Broker* b, Session* s, Delivery* d, int way) noexcept nogil:
    account_left(b, s, d.qos, way)
    if s.store_session_id:
        pending_delivery_done(b, s, d.message, queue_position(&s.queue, d))
    s.queue.inflight_bytes -= delivery_bytes(d)
    delivery_release(&b.messages, &b.reactor.buffers, d)
    queue_done(&s.queue, d)


cdef bint window_open(Broker* b, Client* c, Queue* q, Delivery* d) noexcept nogil:
    if q.inflight >= c.window or q.next - q.floor >= 65534:
        return 0
    if b.settings.max_inflight_bytes and q.inflight and d.message != NULL:
        return q.inflight_bytes + message_bytes(d.message) <= b.settings.max_inflight_bytes
    return 1


cdef void pump(Broker* b, Session* s, Publication* p) noexcept nogil:
    cdef Queue* q = &s.queue
    cdef Client* c = session_client(s)
    cdef Delivery* d
    while q.next != q.tail:
        if c.conn.flags & (CONN_CLOSED | CONN_CLOSING):
            return
        if c.conn.out_bytes > HIGH_WATER_BYTES:
            c.conn.flags |= CONN_HUNGRY      # on_drained calls pump again
            return
        d = queue_at(q, q.next)
        if d.state == D_DONE:
            q.next += 1
        elif is_paged(d):
            pages_request(b, s)
            return               # until the storage thread has read it
        elif d.qos & 3 and not window_open(b, c, q, d):
            return
        elif d.qos & 3 == 2 and d.state == D_WAITING and not sendable(s, q.next):
            return               # until its record is committed
        elif d.state == D_RELEASED:
            q.next += 1
            q.inflight += 1
            ack_after_all(b, c, T_PUBREL, d.pid)
        elif not send_next(b, s, c, d, p):
            return


cdef bint may_read_again(Broker* b, Session* s, View topic) noexcept nogil:
    """Return whether the session may still read the topic of a delivery that was queued before the session was resumed. A
    plugin's verdict about another user is not valid for this user, and this place cannot wait for a new auth request."""
    cdef int verdict
    if s.queue.next + 1 == s.queue.tail:
        s.flags &= ~<uint32_t>SESSION_RECHECK
    if s.security == NULL or not session_security(s).authorize:
        return access_allows(b, s, topic, ACL_READ)
    verdict = plugin_gate_verdict(b, s, topic, ACL_READ)
    return verdict == 1 or (verdict < 0 and not s.flags & SESSION_STRANGER)


cdef void release_unnamed(Broker* b, Session* s, Delivery* d) noexcept nogil:
    """Release a QoS 2 delivery whose topic has no name on this bridge any more. If the PUBLISH has arrived at the remote broker,
    it counts there under the name that it had."""
    drop(b, s, DROP_NO_NAME, d.message.topic)
    s.queue.waiting_bytes -= message_bytes(d.message)
    message_unref(&b.messages, &b.reactor.buffers, d.message)
    d.message = NULL
    d.state = D_RELEASED
    pending_delivery_release(b, s, d, queue_position(&s.queue, d))


cdef bint send_next(Broker* b, Session* s, Client* c, Delivery* d, Publication* p) noexcept nogil:
    """Send the delivery at `next` for the first time in this connection. Returns 0 if the caller must try again later."""
    cdef Queue* q = &s.queue
    cdef Message* m = d.message
    cdef Publication single
    cdef int wrote
    # a QoS 2 delivery without a committed record was never sent [v5 4.3.3]
    cdef int dup = d.state == D_SENT or (m.flags & MESSAGE_AGAIN and d.qos & 3 == 1)
    cdef uint32_t sub_id = session_sub_id(s, d)
    cdef uint32_t n_sub_ids = 1 if sub_id else 0
    cdef int why = DROP_EXPIRED if not dup and expired(b, m.expires_ms) else -1
    if s.flags & SESSION_RECHECK and not may_read_again(b, s, m.topic):
        why = DROP_ACL_READ
    if why < 0 and c.flags & CF_BRIDGE and not bridge_choose_lines(c, q.next, q.floor, m.topic):
        if d.state == D_SENT and d.qos & 3 == 2:
            release_unnamed(b, s, d)
            return 1
        why = DROP_NO_NAME
    if why >= 0:
        q.next += 1
        q.waiting_bytes -= message_bytes(m)
        q.inflight_bytes += message_bytes(m)
        drop(b, s, why, m.topic)
        delivery_done(b, s, d, ACCOUNT_EXPIRED if why == DROP_EXPIRED else ACCOUNT_DROPPED)
        return 1
    if p != NULL and p.message == m:
        wrote = write_publish(b, c, p, d.qos & 3, d.qos >> 7, dup, d.pid, &sub_id, n_sub_ids)
    else:
        publication_of(&single, m)
        single.shaped = 0           # one client: an encoding for reuse would cost one more copy
        wrote = write_publish(b, c, &single, d.qos & 3, d.qos >> 7, dup, d.pid, &sub_id, n_sub_ids)
        publication_fini(b, &single)
    if c.flags & CF_BRIDGE:
        bridge_default_lines(c)
    if wrote == NO_ROOM:
        return 0
    q.next += 1
    q.waiting_bytes -= message_bytes(m)
    q.inflight_bytes += message_bytes(m)
    if wrote != WROTE:           # [v5 3.1.2-24, 3.1.2-25] treated as if it had been completed
        drop(b, s, DROP_PACKET_SIZE if wrote == TOO_LARGE else DROP_NO_NAME, m.topic)
        delivery_done(b, s, d, ACCOUNT_DROPPED)
    elif d.qos & 3:
        account_sent(b, s, d.state == D_SENT)
        d.state = D_SENT
        q.inflight += 1
    else:
        delivery_done(b, s, d, ACCOUNT_ACKNOWLEDGED)
    if s.flags & SESSION_DROPPING:
        s.flags &= ~<uint32_t>SESSION_DROPPING
    return 1


cdef void session_clear(Broker* b, Session* s, int drop_reason) noexcept nogil:
    cdef Queue* q = &s.queue
    cdef Delivery* d
    cdef uint32_t i
    if s.inbox.slots != NULL:
        for i in range(s.inbox.mask + 1):
            if s.inbox.slots[i].pid and s.inbox.slots[i].message != NULL:
                message_unref(&b.messages, &b.reactor.buffers, s.inbox.slots[i].message)
        inbox_fini(&s.inbox)
    while q.floor != q.tail:
        d = queue_at(q, q.floor)
        if d.state != D_DONE:
            q.pending -= 1
            account_left(b, s, d.qos, ACCOUNT_GONE)
        if d.message != NULL:
            if s.store_session_id:
                pending_delivery_done(b, s, delivery_message(d), q.floor)
            if 0 <= drop_reason < DROP_REASONS and d.state == D_WAITING:
                drop_unlogged(b, s, drop_reason, delivery_topic(d))
            delivery_release(&b.messages, &b.reactor.buffers, d)
        q.floor += 1
