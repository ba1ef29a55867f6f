"""Restore connections: their layers, unread input, unsent output, facts of CONNECT, topic aliases. This module knows the items of a connection, and
attaches it to the session before it.
"""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from cext.base.buffer cimport buffer_take
from cext.base.hash cimport hash_bytes
from cext.base.view cimport View
from cext.base.wheel cimport wheel_add
from cext.broker.core.broker cimport Broker
from cext.broker.core.client cimport aliases_begin, aliases_of, client_doom, client_give, client_take
from cext.broker.core.client_state cimport (
    AliasIn, AliasOut, AliasSlot, C_CONNECTED, C_NEW, Client, Will,
)
from cext.broker.core.listener cimport ORIGIN_ADDRESS, ORIGIN_PORT, Listener
from cext.broker.core.newcomers cimport newcomer_add
from cext.broker.core.pending_packet cimport names_take, owned_set
from cext.broker.handover.image cimport ImageAlias, ImageClient, ImageSecrets, MOVED_CLIENT_FLAGS, NO_DESCRIPTOR, image_head, image_part
from cext.broker.handover.restoring cimport Restoring, message_known, message_numbered, refused
from cext.broker.lifecycle.session_lifecycle cimport client_watch, session_connect
from cext.codec.frame cimport V5, V31
from cext.codec.reason cimport RC_SERVER_SHUTTING_DOWN
from cext.net.conn cimport conn_open, conn_resume, conn_web
from cext.net.conn_output cimport conn_room_new, conn_wrote
from cext.net.conn_state cimport Conn
from cext.net.system cimport AF_UNIX, SOCK_CLOEXEC, SOCK_NONBLOCK, SOCK_STREAM, c_close, socket
from cext.net.web cimport WEB_OPEN, WEB_UPGRADE
from cext.net.websocket cimport WS_CONTROL, WsDecoder
from cext.session.session cimport Session
from cext.topic.name cimport name_check

cdef enum:
    INPUT_BYTES_MAX = 300 << 20  # above the largest MQTT packet


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


cdef int web_arrives(Broker* b, Client* c, Listener* listener, const ImageClient* r, const WsDecoder* ws) noexcept nogil:
    listener.upgrade.size_max = b.settings.packet_buffer_size
    listener.upgrade.compat = b.settings.compat
    if conn_web(&c.conn, 0, &listener.upgrade) != 0:
        return -1
    if r.web != WEB_OPEN:
        return 0
    c.conn.web.stage = WEB_OPEN
    c.conn.web.close_sent = r.close_sent != 0
    memset(&c.conn.web.parser, 0, sizeof(c.conn.web.parser))
    c.conn.web.parser.ws = ws[0]
    return 0


cdef bint ws_is_possible(const WsDecoder* ws) noexcept nogil:
    return (ws.state <= WS_CONTROL and ws.head_n <= sizeof(ws.head) and ws.head_size <= sizeof(ws.head)
            and ws.control_n <= sizeof(ws.control) and ws.from_server == 0
            and (ws.state != WS_CONTROL or ws.left <= sizeof(ws.control) - ws.control_n))


cdef bint client_is_possible(const Restoring* l, const ImageClient* r, const WsDecoder* ws, const Listener* listener) noexcept nogil:
    if r.fd == NO_DESCRIPTOR:
        return V31 <= r.version <= V5 and message_known(l, r.will) and l.session != NULL and l.session.client == NULL
    if r.fd != l.n_clients or r.fd >= l.n_fds or not V31 <= r.version <= V5 or not message_known(l, r.will):
        return 0
    if r.in_n > INPUT_BYTES_MAX or r.in_need > INPUT_BYTES_MAX or (l.session != NULL and (l.session.client != NULL or r.window == 0)):
        return 0
    if r.framed > r.out_n or (r.framed and r.web != WEB_OPEN):
        return 0
    if r.web == WEB_OPEN:
        return listener.websockets and ws_is_possible(ws)
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
    session_connect(b, s, c)
    if c.listener != b.adopted:      # else the configuration has no listener for it
        s.security = c.listener.security
        s.origin = c.listener.origin
    s.access_epoch = b.access_epoch - 1
    s.access_turn += 1
    c.state = C_CONNECTED
    c.kicks = <uint16_t>b.kicks
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
    c.flags |= r.flags & <uint8_t>MOVED_CLIENT_FLAGS
    aliases_begin(c, r.alias_max_out)


cdef int secrets_arrive(Restoring* l, View body) noexcept nogil:
    cdef ImageSecrets r
    cdef Listener* listener
    if not image_head(&body, &r, sizeof(r)):
        return refused(l, "the secrets of a listener are too short")
    listener = listener_of_origin(l.b, r.origin)
    if listener != NULL and listener.tls_context != NULL:
        listener.tls_context.secrets_restore(listener.tls_context, body.p, body.n)
    return 0


cdef int client_left_arrives(Restoring* l, const ImageClient* r) noexcept nogil:
    """Make the client of a connection that stays in the process before, on a socket that is not connected. It ends when the loop begins."""
    cdef Listener* listener = listener_of_origin(l.b, r.origin)
    cdef int fd
    if not client_is_possible(l, r, NULL, NULL):
        return refused(l, "a connection has an impossible value")
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)
    if fd < 0 or client_opens(l, r, listener if listener != NULL else l.b.adopted, fd) != 0:
        if fd >= 0:
            c_close(fd)
        return refused(l, "a descriptor cannot be watched")
    if will_arrives(l, l.client, r) != 0:
        return refused(l, "no memory")
    session_reattach(l.b, l.session, l.client)
    client_doom(l.b, l.client, RC_SERVER_SHUTTING_DOWN)
    return 0


cdef int client_opens(Restoring* l, const ImageClient* r, Listener* listener, int fd) noexcept nogil:
    cdef Client* c = client_take(l.b)
    if c == NULL or conn_open(&l.b.reactor, &c.conn, fd, &r.address) != 0:
        if c != NULL:
            client_give(l.b, c)
        return -1
    l.client = c
    c.listener = listener
    listener.n_connections += 1
    client_facts_arrive(c, r)
    return 0


cdef int client_arrives(Restoring* l, View body) noexcept nogil:
    cdef ImageClient r
    cdef WsDecoder ws
    cdef View decoder, proxied, path, method, transport, unread, unsent
    cdef Listener* listener
    cdef Client* c
    if not image_head(&body, &r, sizeof(r)) or r.ws_n > sizeof(ws) or not image_part(&body, r.ws_n, &decoder):
        return refused(l, "a connection is too short")
    if not image_part(&body, r.proxied_n, &proxied) or not image_part(&body, r.path_n, &path):
        return refused(l, "a connection is too short")
    memset(&ws, 0, sizeof(ws))
    memcpy(&ws, decoder.p, decoder.n)
    if not image_part(&body, r.method_n, &method) or not image_part(&body, r.transport_n, &transport) or not image_part(&body, r.in_n, &unread) or not image_part(
            &body, r.out_n, &unsent) or body.n:
        return refused(l, "a connection is too short")
    if r.fd == NO_DESCRIPTOR:
        return client_left_arrives(l, &r)
    listener = listener_of_origin(l.b, r.origin)
    if listener == NULL or (listener.tls_context != NULL) != (transport.n != 0) or listener.proxy_version and r.web == WEB_UPGRADE:
        return refused(l, "the configuration does not have the listener of a connection any more, or with another protocol")
    if not client_is_possible(l, &r, &ws, listener):
        return refused(l, "a connection has an impossible value, or its listener has another protocol now")
    if client_opens(l, &r, listener, l.fds[r.fd]) != 0:
        return refused(l, "a descriptor cannot be watched")
    l.n_clients += 1
    c = l.client
    if transport.n and listener.tls_context.restore(listener.tls_context, &l.b.reactor, &c.conn, transport.p, transport.n) == NULL:
        return refused(l, "the TLS state of a connection has an impossible value, or memory is missing")
    if r.web and web_arrives(l.b, c, listener, &r, &ws) != 0 or names_arrive(c, proxied, path, method) != 0 or will_arrives(l, c, &r) != 0:
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
