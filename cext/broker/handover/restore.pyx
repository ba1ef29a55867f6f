"""Rebuild the state of a broker from the memory file of the process before. This module knows what save.pyx writes. It trusts no byte of it:
each number is checked before it is used, and the first wrong one ends the handover with one reason.

With a store, durable_recover has run before, and has made what the store has. Here its sessions get the exact progress of their queues: a
recovered delivery counts as sent, because after a crash nothing else is known. Deliveries that the file does not name are done.
Nothing is sent and nothing is recorded before the loop begins.
"""

from libc.stdint cimport int32_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset

from cext.base.buffer cimport buffer_take
from cext.base.hash cimport hash_bytes
from cext.base.slab cimport slab_at, slab_end
from cext.base.view cimport View
from cext.base.wheel cimport wheel_add, wheel_remove
from cext.broker.core.access cimport origin_read, security_of_origin
from cext.broker.core.broker cimport Broker
from cext.broker.core.client cimport aliases_begin, aliases_of, client_give, client_take
from cext.broker.core.client_state cimport (
    AliasIn, AliasOut, AliasSlot, CF_IDENTIFIED, CF_PROBLEM_INFO, CF_REMOTE_BRIDGE, C_CONNECTED, C_NEW, Client, TIMER_SESSION, Will,
)
from cext.broker.core.durable cimport durable_of, session_at
from cext.broker.core.handover_state cimport HandoverCounts
from cext.broker.core.listener cimport ORIGIN_ADDRESS, ORIGIN_PORT, Listener
from cext.broker.core.newcomers cimport newcomer_add
from cext.broker.core.pending_packet cimport names_take, owned_set
from cext.broker.core.publication_state cimport Publication
from cext.broker.handover.image cimport (
    ITEM_ALIAS, ITEM_BROKER, ITEM_CLIENT, ITEM_DELIVERY, ITEM_END, ITEM_FILTER, ITEM_INBOX, ITEM_MESSAGE, ITEM_RETAINED, ITEM_SESSION,
    ITEM_SOURCE, ImageAlias, ImageBroker, ImageClient, ImageDelivery, ImageFilter, ImageInbox, ImageMessage, ImageReader,
    ImageRetained, ImageSession, ImageSource, NO_USER_NAME, image_close, image_head, image_next, image_open, image_part,
)
from cext.broker.lifecycle.session_lifecycle cimport client_watch, session_watch
from cext.broker.persist.publication cimport publication_fini, publication_of
from cext.broker.routing.plugin_gate cimport plugin_gate_renew
from cext.broker.routing.pump cimport pump
from cext.broker.routing.retain cimport retain_store, retained_from
from cext.broker.routing.share cimport share_restored
from cext.codec.frame cimport V5, V31
from cext.net.conn cimport conn_open, conn_resume, conn_web
from cext.net.conn_output cimport conn_room_new, conn_wrote
from cext.net.conn_state cimport Conn
from cext.net.web cimport WEB_OPEN, WEB_UPGRADE
from cext.net.websocket cimport WS_CONTROL
from cext.session.message cimport MESSAGE_AGAIN, MESSAGE_JOURNALLED, Message, message_new, message_ref, message_unref
from cext.session.queue cimport (
    DELIVERY_RETAIN, DELIVERY_SHARED, D_DONE, D_RELEASED, D_WAITING, Delivery, InboundQos2, Queue, delivery_bytes, delivery_release,
    inbox_add, inbox_find, queue_at, queue_place, queue_restored,
)
from cext.session.record cimport RecordFrom
from cext.session.session cimport (
    SESSION_BRIDGE, SESSION_DROPPING, SESSION_ORIGIN_UNKNOWN, SESSION_RECHECK, SESSION_STRANGER, SESSION_TRUSTED, SESSION_WILL_STORED,
    Session, session_free, session_new, session_text, sessions_add, sessions_find, sessions_remove,
)
from cext.topic.index cimport index_add
from cext.topic.name cimport Filter, filter_parse, name_check

cdef enum:
    RESTORED_FLAGS = CF_REMOTE_BRIDGE | CF_PROBLEM_INFO | CF_IDENTIFIED
    RESTORED_SESSION_FLAGS = (SESSION_DROPPING | SESSION_RECHECK | SESSION_STRANGER | SESSION_BRIDGE | SESSION_TRUSTED | SESSION_WILL_STORED
                              | SESSION_ORIGIN_UNKNOWN)
    INPUT_BYTES_MAX = 300 << 20  # above the largest MQTT packet
    QUEUE_SPAN_RESTORED = 1 << 26       # positions of one queue, as in a recovery


ctypedef struct Restoring:
    Broker* b
    ImageReader r
    const int32_t* fds
    uint32_t n_fds
    HandoverCounts* counts
    Message** messages          # each a reference; number 1 is the first
    uint32_t n_messages
    uint32_t cap_messages
    Session* session            # the session that the next items belong to
    ImageSession head           # its item
    uint32_t n_deliveries       # its deliveries so far
    uint32_t place              # position behind the last one
    Client* client              # the client that the next aliases belong to
    uint32_t n_clients
    View retained               # topic of the last retained message; p NULL: none
    bint begun
    bint ended
    const char* wrong           # reason of the refusal


cdef inline int refused(Restoring* l, const char* why) noexcept nogil:
    l.wrong = why
    return -1


cdef inline bint message_known(const Restoring* l, uint32_t number) noexcept nogil:
    return number <= l.n_messages


cdef inline Message* message_numbered(const Restoring* l, uint32_t number) noexcept nogil:
    """Return the message with this number, with a reference for the caller; NULL for 0."""
    return message_ref(l.messages[number - 1]) if number else NULL


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
    l.b.arrived_ms = r.frozen_ms if 0 < r.frozen_ms <= l.b.reactor.now_ms else l.b.reactor.now_ms
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


# ---------------------------------------------------------------- sessions

cdef void stand_in_free(Broker* b, Session* s) noexcept nogil:
    """Free the session that a recovery made for the will of a connected client: the client is still there, with its will."""
    wheel_remove(&b.wheel, &s.timer)
    sessions_remove(&b.sessions, s)
    if s.will != NULL:
        message_unref(&b.messages, &b.reactor.buffers, s.will)
    session_free(&b.sessions, s)


cdef int session_names_arrive(Session* s, View user, bint has_user, View mount) noexcept nogil:
    if has_user:
        s.username = session_text(user)
    if mount.n:
        s.mount_point = session_text(mount)
    return -1 if (has_user and s.username == NULL) or (mount.n and s.mount_point == NULL) else 0


cdef int session_new_arrives(Restoring* l, View id, View user, View mount) noexcept nogil:
    """Make a session that the store does not have."""
    cdef ImageSession* r = &l.head
    cdef Session* s = sessions_find(&l.b.sessions, id)
    if s != NULL and (s.store_session_id or not s.flags & SESSION_WILL_STORED):
        return refused(l, "a session occurs twice")
    if s != NULL:
        stand_in_free(l.b, s)
    s = session_new(&l.b.sessions, id)
    if s == NULL:
        return refused(l, "no memory")
    s.timer.kind = TIMER_SESSION
    s.access_epoch = l.b.access_epoch - 1
    sessions_add(&l.b.sessions, s)
    l.session = s
    if session_names_arrive(s, user, r.user_n != NO_USER_NAME, mount) != 0:
        return refused(l, "no memory")
    s.origin = origin_read(l.b, r.origin)
    s.security = security_of_origin(l.b, s.origin)
    s.expiry_s = r.expiry_s
    s.ends_ms = r.ends_ms
    s.will = message_numbered(l, r.will)
    s.will_due_ms = r.will_due_ms
    return 0


cdef int session_arrives(Restoring* l, View body) noexcept nogil:
    cdef ImageSession* r = &l.head
    cdef View id, user, mount
    cdef Session* s
    if not image_head(&body, r, sizeof(ImageSession)) or not image_part(&body, r.id_n, &id):
        return refused(l, "a session is too short")
    if not image_part(&body, r.user_n if r.user_n != NO_USER_NAME else 0, &user) or not image_part(&body, r.mount_n, &mount) or body.n:
        return refused(l, "a session is too short")
    if r.tail - r.floor > QUEUE_SPAN_RESTORED or r.next - r.floor > r.tail - r.floor or not message_known(l, r.will) or r.user_n != NO_USER_NAME and r.user_n > 65535:
        return refused(l, "a session has an impossible value")
    if r.store_session_id:
        s = session_at(durable_of(l.b), r.store_session_id) if l.b.durable != NULL else NULL
        if s == NULL or s.id_len != id.n or memcmp(s.client_id, id.p, id.n) != 0 or r.will:
            return refused(l, "the store does not have one of the sessions")
        l.session = s
    elif session_new_arrives(l, id, user, mount) != 0:
        return -1
    s = l.session
    s.flags = s.flags & ~<uint32_t>RESTORED_SESSION_FLAGS | r.flags & <uint32_t>RESTORED_SESSION_FLAGS
    s.unsent = r.unsent
    s.inbox.turn = r.turn
    l.n_deliveries = 0
    l.place = s.queue.floor if s.queue.floor != s.queue.tail else r.floor
    return 0


cdef int filter_arrives(Restoring* l, View body) noexcept nogil:
    cdef ImageFilter r
    cdef Filter f
    if l.session == NULL or l.session.store_session_id or not image_head(&body, &r, sizeof(r)) or filter_parse(body.p, body.n, &f) != 0:
        return refused(l, "a subscription has an impossible value")
    if index_add(l.b.index, &l.session.owner, l.session, &f, r.options, r.sub_id) < 0:
        return refused(l, "no memory")
    return 0


cdef void deliveries_done(Restoring* l, uint32_t end) noexcept nogil:
    """Complete the recovered deliveries in [place, end): the process before had completed them."""
    cdef Queue* q = &l.session.queue
    cdef Delivery* d
    while l.place != end:
        if <int>(l.place - q.floor) >= 0 and <int>(l.place - q.tail) < 0:
            d = queue_at(q, l.place)
            if d.state != D_DONE:
                delivery_release(&l.b.messages, &l.b.reactor.buffers, d)
                d.state = D_DONE
        l.place += 1


cdef bint delivery_is_possible(const Restoring* l, const ImageDelivery* r) noexcept nogil:
    if r.position - l.head.floor >= l.head.tail - l.head.floor or <int>(r.position - l.place) < 0 or l.n_deliveries >= l.head.n_deliveries:
        return 0
    if r.state > D_RELEASED or r.qos & ~<uint8_t>(DELIVERY_RETAIN | DELIVERY_SHARED | 3) or r.qos & 3 == 3 or not message_known(l, r.message):
        return 0
    if r.state == D_RELEASED:
        return r.qos & 3 == 2 and r.message == 0
    if r.qos & 3 == 0 and r.state != D_WAITING:
        return 0
    return r.message != 0 or l.session.store_session_id != 0


cdef int delivery_arrives(Restoring* l, View body) noexcept nogil:
    cdef ImageDelivery r
    cdef Delivery* d
    if l.session == NULL or not image_head(&body, &r, sizeof(r)) or body.n or not delivery_is_possible(l, &r):
        return refused(l, "a delivery has an impossible value")
    deliveries_done(l, r.position)
    d = queue_place(&l.session.queue, r.position)
    if d == NULL:
        return refused(l, "no memory")
    l.place = r.position + 1
    l.n_deliveries += 1
    if l.session.store_session_id and r.message == 0:
        if d.state == D_DONE or d.pid != r.pid or (d.state == D_RELEASED) != (r.state == D_RELEASED):
            return refused(l, "the store does not have one of the deliveries")
        d.state = r.state
        return 0
    if d.state != D_DONE:
        return refused(l, "a delivery occurs twice")
    d.message = message_numbered(l, r.message)
    d.sub_id = r.sub_id
    d.pid = r.pid
    d.qos = r.qos
    d.state = r.state
    return 0


cdef int inbox_arrives(Restoring* l, View body) noexcept nogil:
    cdef ImageInbox r
    cdef InboundQos2* held
    if l.session == NULL or not image_head(&body, &r, sizeof(r)) or body.n or r.pid == 0 or not message_known(l, r.message):
        return refused(l, "an inbound message has an impossible value")
    held = inbox_find(&l.session.inbox, r.pid)
    if l.session.store_session_id:
        if held == NULL or r.message:
            return refused(l, "the store does not have one of the inbound messages")
        if held.message != NULL:
            held.message.flags = held.message.flags & ~<uint8_t>MESSAGE_AGAIN | r.flags & <uint8_t>MESSAGE_AGAIN
    elif held != NULL or inbox_add(&l.session.inbox, r.pid, message_numbered(l, r.message)) != 0:
        return refused(l, "an inbound message occurs twice")
    held = inbox_find(&l.session.inbox, r.pid)
    held.turn = r.turn
    held.copies_turn = r.copies_turn
    held.copies = r.copies
    return 0


cdef int queue_complete(Restoring* l) noexcept nogil:
    """Set the progress of the session's queue. Deliveries before `next` are in flight if the client is connected."""
    cdef Session* s = l.session
    cdef Queue* q = &s.queue
    cdef Delivery* d
    if q.floor != q.tail:
        deliveries_done(l, q.tail)
    if l.head.floor == l.head.tail:
        q.floor = q.next = q.tail = l.head.tail
    elif queue_place(q, l.head.floor) == NULL or queue_place(q, l.head.tail - 1) == NULL:
        return refused(l, "no memory")
    queue_restored(q)
    if s.client != NULL and <int>(l.head.next - q.floor) > 0:
        while q.next != l.head.next:
            d = queue_at(q, q.next)
            if d.state == D_WAITING:
                return refused(l, "a delivery has an impossible value")
            if d.state != D_DONE:
                q.inflight += 1
                q.waiting_bytes -= delivery_bytes(d)
                q.inflight_bytes += delivery_bytes(d)
            q.next += 1
    q.last_pid = l.head.last_pid
    s.logged = s.safe = s.paged = q.tail
    return 0


cdef int session_complete(Restoring* l) noexcept nogil:
    """Complete the session whose items have all arrived."""
    cdef Session* s = l.session
    if s == NULL:
        return 0
    if l.n_deliveries != l.head.n_deliveries or l.head.inherited > s.inbox.n:
        return refused(l, "a session is not complete")
    if queue_complete(l) != 0:
        return -1
    s.inbox.inherited = l.head.inherited
    if s.store_session_id == 0:
        share_restored(l.b, s)
        if s.client == NULL:
            if s.flags & SESSION_BRIDGE:
                s.ends_ms = 1        # unless its bridge takes it, as after a recovery
            session_watch(l.b, s)
    l.session = NULL
    l.client = NULL
    l.counts.sessions += 1
    return 0


# ---------------------------------------------------------------- connections

cdef Listener* listener_of_origin(Broker* b, uint32_t origin) noexcept nogil:
    cdef uint32_t i
    for i in range(b.n_listeners):
        if (b.listeners[i].origin ^ origin) & (ORIGIN_ADDRESS | ORIGIN_PORT) == 0:
            return b.listeners[i]
    return NULL


cdef int names_arrive(Client* c, View proxied, View path, View method) noexcept nogil:
    if proxied.n + path.n + method.n == 0:
        return 0
    if names_take(c) == NULL:
        return -1
    if proxied.n and owned_set(&c.names.proxied, proxied) != 0:
        return -1
    if path.n and owned_set(&c.names.path, path) != 0:
        return -1
    return owned_set(&c.names.method, method) if method.n else 0


cdef int output_arrives(Broker* b, Conn* conn, const uint8_t* p, uint32_t n) noexcept nogil:
    cdef uint8_t* out
    if n == 0:
        return 0
    out = conn_room_new(&b.reactor, conn, n)
    if out == NULL:
        return -1
    memcpy(out, p, n)
    conn_wrote(&b.reactor, conn, n)
    return 0


cdef int bytes_arrive(Broker* b, Conn* conn, const ImageClient* r, View unread, View unsent) noexcept nogil:
    cdef uint32_t framed = r.framed if conn.web != NULL else 0
    if unread.n:
        conn.in_buf = buffer_take(&b.reactor.buffers, unread.n, &conn.in_cap)
        if conn.in_buf == NULL:
            return -1
        memcpy(conn.in_buf, unread.p, unread.n)
        conn.in_len = unread.n
        conn_resume(&b.reactor, conn)            # it is looked at in the first turn
    if output_arrives(b, conn, unsent.p, framed) != 0:
        return -1
    if framed:
        conn.web.framed = framed
        conn.web.framed_tail = conn.out_tail
        conn.out_tail.cap = conn.out_tail.len    # the rest gets a header of its own
    return output_arrives(b, conn, unsent.p + framed, unsent.n - framed)


cdef int web_arrives(Broker* b, Client* c, Listener* listener, const ImageClient* r) noexcept nogil:
    listener.upgrade.size_max = b.settings.packet_buffer_size
    listener.upgrade.compat = b.settings.compat
    if conn_web(&c.conn, 0, &listener.upgrade) != 0:
        return -1
    if r.web != WEB_OPEN:
        return 0
    c.conn.web.stage = WEB_OPEN
    c.conn.web.close_sent = r.close_sent != 0
    memset(&c.conn.web.parser, 0, sizeof(c.conn.web.parser))
    c.conn.web.parser.ws = r.ws
    return 0


cdef bint ws_is_possible(const ImageClient* r) noexcept nogil:
    return (r.ws.state <= WS_CONTROL and r.ws.head_n <= sizeof(r.ws.head) and r.ws.head_size <= sizeof(r.ws.head)
            and r.ws.control_n <= sizeof(r.ws.control) and r.ws.from_server == 0
            and (r.ws.state != WS_CONTROL or r.ws.left <= sizeof(r.ws.control) - r.ws.control_n))


cdef bint client_is_possible(const Restoring* l, const ImageClient* r, const Listener* listener) noexcept nogil:
    if r.fd != l.n_clients or r.fd >= l.n_fds or not V31 <= r.version <= V5 or not message_known(l, r.will):
        return 0
    if r.in_n > INPUT_BYTES_MAX or r.in_need > INPUT_BYTES_MAX or (l.session != NULL and (l.session.client != NULL or r.window == 0)):
        return 0
    if r.framed > r.out_n or (r.framed and r.web != WEB_OPEN):
        return 0
    if r.web == WEB_OPEN:
        return listener.websockets and ws_is_possible(r)
    return r.web == (WEB_UPGRADE if listener.websockets else 0)


cdef int will_arrives(Restoring* l, Client* c, const ImageClient* r) noexcept nogil:
    if r.will == 0:
        return 0
    c.will = <Will*>calloc(1, sizeof(Will))
    if c.will == NULL:
        return -1
    c.will.message = message_numbered(l, r.will)
    c.will.delay_s = r.will_delay_s
    c.will.expiry_s = r.will_expiry_s
    c.will.has_expiry = r.will_has_expiry != 0
    return 0


cdef void session_reattach(Broker* b, Session* s, Client* c) noexcept nogil:
    """Connect the session. Unlike after a restart, no record changes: the store has it as connected, with the will of its client."""
    wheel_remove(&b.wheel, &s.timer)
    s.ends_ms = 0
    if s.will != NULL:
        message_unref(&b.messages, &b.reactor.buffers, s.will)
        s.will = NULL
        s.will_due_ms = 0
    s.security = c.listener.security
    s.origin = c.listener.origin
    s.access_epoch = b.access_epoch - 1
    s.access_turn += 1
    s.client = c
    c.session = s
    c.state = C_CONNECTED
    c.kicks = <uint16_t>b.kicks
    plugin_gate_renew(b, s)
    b.stats.clients_connected += 1
    client_watch(b, c)


cdef void client_facts_arrive(Client* c, const ImageClient* r) noexcept nogil:
    c.conn.rx_ms = r.rx_ms
    c.packet_max = r.packet_max
    c.keepalive_s = r.keepalive_s
    c.alias_max_in = r.alias_max_in
    c.window = r.window
    c.receive_max = r.receive_max
    c.version = r.version
    c.flags |= r.flags & <uint8_t>RESTORED_FLAGS
    aliases_begin(c, r.alias_max_out)


cdef int client_arrives(Restoring* l, View body) noexcept nogil:
    cdef ImageClient r
    cdef View proxied, path, method, unread, unsent
    cdef Listener* listener
    cdef Client* c
    if not image_head(&body, &r, sizeof(r)) or not image_part(&body, r.proxied_n, &proxied) or not image_part(&body, r.path_n, &path):
        return refused(l, "a connection is too short")
    if not image_part(&body, r.method_n, &method) or not image_part(&body, r.in_n, &unread) or not image_part(&body, r.out_n, &unsent) or body.n:
        return refused(l, "a connection is too short")
    listener = listener_of_origin(l.b, r.origin)
    if listener == NULL or listener.tls_context != NULL or listener.proxy_version and r.web == WEB_UPGRADE:
        return refused(l, "the configuration does not have the listener of a connection any more, or with another protocol")
    if not client_is_possible(l, &r, listener):
        return refused(l, "a connection has an impossible value, or its listener has another protocol now")
    c = client_take(l.b)
    if c == NULL or conn_open(&l.b.reactor, &c.conn, l.fds[r.fd], &r.address) != 0:
        if c != NULL:
            client_give(l.b, c)
        return refused(l, "a descriptor cannot be watched")
    l.n_clients += 1
    l.client = c
    c.listener = listener
    listener.n_connections += 1
    client_facts_arrive(c, &r)
    if r.web and web_arrives(l.b, c, listener, &r) != 0 or names_arrive(c, proxied, path, method) != 0 or will_arrives(l, c, &r) != 0:
        return refused(l, "no memory")
    c.conn.in_need = r.in_need
    if bytes_arrive(l.b, &c.conn, &r, unread, unsent) != 0:
        return refused(l, "no memory")
    if l.session != NULL:
        session_reattach(l.b, l.session, c)
    else:
        c.state = C_NEW
        newcomer_add(l.b, c)
        wheel_add(&l.b.wheel, &c.timer, l.b.reactor.now_ms + l.b.settings.connect_timeout_ms)
    l.counts.connections += 1
    return 0


cdef int alias_taken_arrives(Client* c, uint16_t alias, uint8_t* topic, uint32_t n) noexcept nogil:
    cdef AliasIn* a
    if alias == 0 or alias > c.alias_max_in or aliases_of(c) == NULL:
        return -1
    if c.aliases.taken == NULL:
        c.aliases.taken = <AliasIn*>calloc(c.alias_max_in, sizeof(AliasIn))
        if c.aliases.taken == NULL:
            return -1
    a = &c.aliases.taken[alias - 1]
    if a.topic != NULL:
        return -1
    a.topic = topic
    a.n = n
    return 0


cdef int alias_given_arrives(Broker* b, Client* c, uint16_t alias, uint8_t* topic, uint32_t n) noexcept nogil:
    cdef AliasOut* a = &c.aliases.given if c.aliases != NULL else NULL
    cdef uint64_t hash = hash_bytes(&b.key, topic, n)
    cdef uint32_t i
    cdef AliasSlot* slot
    if a == NULL or a.slots == NULL or alias == 0 or alias > a.max or a.n == a.max:
        return -1
    i = <uint32_t>hash & a.mask
    while a.slots[i].topic != NULL:
        i = (i + 1) & a.mask
    slot = &a.slots[i]
    slot.topic = topic
    slot.n = n
    slot.hash = hash
    slot.alias = alias
    a.n += 1
    return 0


cdef int alias_arrives(Restoring* l, View body) noexcept nogil:
    cdef ImageAlias r
    cdef uint8_t* topic
    if l.client == NULL or not image_head(&body, &r, sizeof(r)) or name_check(body.p, body.n) != 0:
        return refused(l, "a topic alias has an impossible value")
    topic = <uint8_t*>malloc(body.n)
    if topic == NULL:
        return refused(l, "no memory")
    memcpy(topic, body.p, body.n)
    if (alias_given_arrives(l.b, l.client, r.alias, topic, body.n) if r.given else
            alias_taken_arrives(l.client, r.alias, topic, body.n)) != 0:
        free(topic)
        return refused(l, "a topic alias has an impossible value")
    return 0


# ---------------------------------------------------------------- all of it

cdef int item_arrives(Restoring* l, int kind, View body) noexcept nogil:
    if kind != ITEM_BROKER and not l.begun or l.ended:
        return refused(l, "its items have an impossible order")
    if kind != ITEM_MESSAGE and kind != ITEM_FILTER and kind != ITEM_DELIVERY and kind != ITEM_INBOX and kind != ITEM_ALIAS and kind != ITEM_CLIENT:
        if session_complete(l) != 0:
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
    if kind == ITEM_RETAINED:
        return retained_arrives(l, body)
    if kind == ITEM_SOURCE:
        return source_arrives(l, body)
    if kind == ITEM_BROKER:
        return broker_arrives(l, body)
    if kind != ITEM_END or body.n:
        return refused(l, "it has an item of an unknown kind")
    l.ended = 1
    return 0 if l.n_clients == l.n_fds else refused(l, "connections are missing")


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
    if b.arrived_ms == 0:
        return
    keepalives_shift(b, b.reactor.now_ms - b.arrived_ms)
    b.arrived_ms = 0
    for i in range(slab_end(&b.clients)):
        c = <Client*>slab_at(&b.clients, i)
        if c != NULL and c.session != NULL:
            pump(b, c.session, NULL)
