"""Handle CONNECT [v5 3.1] [v3.1.1 3.1] [v3.1 3.1]: which client may connect, under which client id, and which session it gets.

The order of the checks is as in Mosquitto: protocol, the listener's versions, client id, will, authentication method, user name
and password or anonymous access, limits, keepalive. Then follow the take-over of a connection with the same id, the session,
CONNACK, and the session's pending deliveries.

If the control plane has to decide about the login, the packet becomes a pending packet (C_AUTHENTICATING) after all checks before
that have passed. It is handled again with the answer, from the first check to the end. AUTH packets [v5 4.12] come in between
(handle_auth.pyx).
"""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy, strlen

from cext.base.view cimport View
from cext.base.wheel cimport wheel_add, wheel_remove
from cext.broker.auth.auth_requests cimport (
    ASK_CONNECT, AuthAnswer, AuthRequest, EVENT_CONNECTED, FOR_LATER, auth_request_end, auth_request_handle, auth_request_new,
    auth_request_send, client_auth_request_end, event_post,
)
from cext.broker.auth.proxy_info cimport proxied_identity
from cext.broker.auth.tls_identity cimport TLS_NAME_MAX, log_negotiated_tls, tls_identity
from cext.broker.core.access cimport session_names
from cext.broker.core.broker cimport Broker
from cext.broker.core.client cimport (
    END_LOST, END_REFUSED, END_SILENT, address_text, aliases_begin, auth_send, client_id_of, client_room, client_wrote,
    log_connected, log_line, log_text,
)
from cext.broker.core.client_state cimport (
    CF_IDENTIFIED, CF_PROBLEM_INFO, CF_REMOTE_BRIDGE, CF_TRUSTED, C_AUTHENTICATING, C_CONNECTED, C_NEW, Client, PENDING_CONNECT,
    PendingPacket, TIMER_SESSION, Will,
)
from cext.broker.core.durable cimport changes_of, durable_refuses
from cext.broker.core.jobs cimport jobs_follow, jobs_unblock
from cext.broker.core.listener cimport Security
from cext.broker.core.log cimport LOG_DEBUG, LOG_INFORMATION, LOG_LINE_MAX, LOG_NOTICE, log_wanted
from cext.broker.core.pending_packet cimport (
    PACKET_PENDING, method_of, names_take, owned_set, owned_view, pending_packet_free, pending_packet_new,
    pending_packet_resume,
)
from cext.broker.core.session_refs cimport session_client, session_security
from cext.broker.core.stats cimport REFUSED_ACCESS, REFUSED_AUTH_TIMEOUT, REFUSED_CLIENTS, REFUSED_DISK, REFUSED_MEMORY
from cext.broker.lifecycle.session_lifecycle cimport client_end, client_watch, session_attach, session_end, will_request_verdict, will_free
from cext.broker.packets.connect_lines cimport log_malformed_connect
from cext.broker.persist.events cimport event_connected, event_refused
from cext.broker.persist.pending_acks cimport hold_output
from cext.broker.persist.persist cimport persist_reserve, persist_session, persist_will, store_session_id_reserve
from cext.broker.persist.publication cimport memory_short
from cext.broker.routing.deliver cimport deliver_gated
from cext.broker.routing.pump cimport pump
from cext.broker.routing.plugin_gate cimport plugin_gate_renew
from cext.broker.rules.acl cimport Acl, acl_name_unsafe, acl_patterned
from cext.codec.decode cimport Connect, decode_connect
from cext.codec.encode cimport Connack, connack_size, encode_connack
from cext.codec.frame cimport Frame, V31, V311, V5, frame_next
from cext.codec.properties cimport (
    P_AUTH_METHOD, P_MAXIMUM_PACKET_SIZE, P_MESSAGE_EXPIRY, P_RECEIVE_MAXIMUM, P_REQUEST_PROBLEM, P_SESSION_EXPIRY,
    P_TOPIC_ALIAS_MAXIMUM, P_WILL_DELAY, props_forward_put, props_forward_size, props_has,
)
from cext.codec.reason cimport (
    CONNACK3_BAD_CREDENTIALS, CONNACK3_IDENTIFIER_REJECTED, CONNACK3_NOT_AUTHORIZED, CONNACK3_PROTOCOL_VERSION,
    CONNACK3_SERVER_UNAVAILABLE, RC_BAD_AUTHENTICATION_METHOD, RC_BAD_USERNAME_OR_PASSWORD, RC_CLIENTID_NOT_VALID,
    RC_CONNECTION_RATE_EXCEEDED, RC_CONTINUE_AUTHENTICATION, RC_NOT_AUTHORIZED, RC_PACKET_TOO_LARGE, RC_PROTOCOL_ERROR,
    RC_QOS_NOT_SUPPORTED, RC_QUOTA_EXCEEDED, RC_RETAIN_NOT_SUPPORTED, RC_SERVER_BUSY, RC_SERVER_UNAVAILABLE,
    RC_SESSION_TAKEN_OVER, RC_TOPIC_NAME_INVALID, RC_UNSPECIFIED, RC_UNSUPPORTED_PROTOCOL_VERSION,
)
from cext.session.message cimport RECORD_ROOM, message_new
from cext.session.session cimport (
    EXPIRY_NEVER, SESSION_BRIDGE, SESSION_RECHECK, SESSION_STRANGER, SESSION_TRUSTED, Session, session_new, sessions_add,
    sessions_find,
)
from cext.topic.name cimport name_check

cdef extern from "<sys/socket.h>" nogil:
    ssize_t recv(int fd, void* p, size_t n, int flags)
    int MSG_PEEK, MSG_DONTWAIT

cdef extern from "<sys/random.h>" nogil:
    ssize_t getrandom(void* p, size_t n, unsigned int flags)

cdef enum:
    ASSIGNED_MAX = 64 + 36       # prefix and UUID


# ---------------------------------------------------------------- refusal

cdef int connack_send(Broker* b, Client* c, Connack* k) noexcept nogil:
    cdef uint8_t* p
    k.version = c.version
    p = client_room(b, c, connack_size(k))
    if p == NULL:
        return -1
    client_wrote(b, c, encode_connack(p, k), p)
    if log_wanted(&b.log, LOG_DEBUG):
        log_connack(b, c, k)
    return 0


cdef void log_connack(Broker* b, Client* c, const Connack* k) noexcept nogil:
    cdef char where[64]
    cdef View id = client_id_of(c) if c.session != NULL else b.log.connecting
    if id.p == NULL:
        id.p = <const uint8_t*>where         # no client id yet: its address
        id.n = <uint32_t>address_text(&c.conn.address, where, sizeof(where))
    log_line(b, LOG_DEBUG, snprintf(b.log.line, LOG_LINE_MAX, "Sending CONNACK to %.*s (%d, %d)", <int>id.n, <const char*>id.p,
                                    <int>k.session_present, <int>k.rc))


cdef int connect_refuse(Broker* b, Client* c, uint8_t rc5, uint8_t rc3) noexcept nogil:
    cdef Connack k
    event_refused(b, c, rc5)
    b.log.was_refused = 1
    b.log.refused = rc5
    connack_clear(&k)
    k.rc = rc5 if c.version == V5 else rc3
    connack_send(b, c, &k)
    return END_REFUSED


cdef int connect_refuse_silently(Broker* b, Client* c, uint8_t rc5) noexcept nogil:
    """Refuse without a CONNACK, because 3.x has no code for this reason."""
    event_refused(b, c, rc5)
    return END_SILENT


cdef void connack_clear(Connack* k) noexcept nogil:
    cdef uint8_t* p = <uint8_t*>k
    cdef size_t i
    for i in range(sizeof(Connack)):
        p[i] = 0


cdef void log_refusal(Broker* b, Client* c, const char* reason) noexcept nogil:
    cdef char where[64]
    if log_wanted(&b.log, LOG_NOTICE):
        address_text(&c.conn.address, where, sizeof(where))
        log_line(b, LOG_NOTICE, snprintf(b.log.line, LOG_LINE_MAX, "Client from %s:%d refused: %s.", where,
                                         <int>c.conn.address.port, reason))


cdef void log_protocol_error(Broker* b, Client* c, const char* text) noexcept nogil:
    cdef char where[64]
    if log_wanted(&b.log, LOG_INFORMATION):
        address_text(&c.conn.address, where, sizeof(where))
        log_line(b, LOG_INFORMATION, snprintf(b.log.line, LOG_LINE_MAX, "Protocol error from %s:%d: %s.", where,
                                              <int>c.conn.address.port, text))


# ---------------------------------------------------------------- checks: each returns 0 or the reason to end the client

cdef int check_version(Broker* b, Client* c, const Frame* f, Connect* p, int rc) noexcept nogil:
    if rc == RC_UNSUPPORTED_PROTOCOL_VERSION:
        log_malformed_connect(b, c, f)
        # A level of 3.x under the wrong protocol name gets the answer in 3.x. An unknown level gets it in the latest version
        # [v3.1.1 3.1.2-2] [v5 3.1.2-2].
        c.version = V311 if V31 <= p.version <= V5 else V5
        connect_refuse(b, c, RC_UNSUPPORTED_PROTOCOL_VERSION, CONNACK3_PROTOCOL_VERSION)
        if c.version == V311:
            b.log.refused = RC_PROTOCOL_ERROR
        return END_REFUSED
    if rc:
        c.version = V5 if p.version == V5 else V311
        log_malformed_connect(b, c, f)
        # [v5 3.1.4-1, 4.13.1] [v3.1.1 3.1.4-1]
        return connect_refuse(b, c, <uint8_t>rc, 0) if c.version == V5 else connect_refuse_silently(b, c, <uint8_t>rc)
    c.version = p.version
    if not (c.listener.versions >> p.version) & 1:
        return connect_refuse(b, c, RC_UNSUPPORTED_PROTOCOL_VERSION, CONNACK3_PROTOCOL_VERSION)
    return 0


cdef int check_id(Broker* b, Client* c, Connect* p, uint8_t* assigned) noexcept nogil:
    """Check the client id [v5 3.1.3-4..8] [v3.1.1 3.1.3-6..9] [v3.1 3.1] and set p.client_id to the id that the session gets."""
    if c.listener.use_username_as_clientid:
        if not p.has_username:
            return connect_refuse(b, c, RC_NOT_AUTHORIZED, CONNACK3_NOT_AUTHORIZED)
        p.client_id = p.username
    if p.client_id.n == 0:
        if p.version == V31 or (p.version == V311 and not p.clean_start) or not c.listener.allow_zero_length_clientid:
            log_protocol_error(b, c, "v3.1 CONNECT with zero length clientid" if p.version == V31 else
                               "CONNECT with zero length clientid when forbidden")
            return connect_refuse(b, c, RC_UNSPECIFIED, CONNACK3_IDENTIFIER_REJECTED)    # 0x80, as Mosquitto sends
        if c.pending_packet != NULL:
            p.client_id = owned_view(&c.pending_packet.id)       # the id that the auth request contained
        elif assign_id(b, c, assigned, &p.client_id) != 0:
            return connect_refuse(b, c, RC_SERVER_UNAVAILABLE, CONNACK3_SERVER_UNAVAILABLE)
        return 0
    if not prefix_allowed(b, p.client_id) and not c.flags & CF_TRUSTED:
        log_refusal(b, c, "client identifier without an allowed prefix")
        return connect_refuse(b, c, RC_NOT_AUTHORIZED, CONNACK3_NOT_AUTHORIZED)
    return 0


cdef bint prefix_allowed(Broker* b, View id) noexcept nogil:
    """Return whether the id has the prefix of the option clientid_prefixes: one prefix, as in Mosquitto."""
    cdef View prefix = b.settings.clientid_prefixes
    return prefix.n == 0 or (id.n >= prefix.n and memcmp(id.p, prefix.p, prefix.n) == 0)


cdef int assign_id(Broker* b, Client* c, uint8_t* out, View* id) noexcept nogil:
    """Make a client id of auto_id_prefix and a random UUID in capitals. Returns -1 if there are no random bytes."""
    cdef uint8_t random[16]
    cdef const char* hexadecimal = "0123456789ABCDEF"
    cdef uint32_t n = c.listener.auto_id_prefix.n, i
    if getrandom(random, 16, 0) != 16:
        return -1
    random[6] = (random[6] & 0x0F) | 0x40
    random[8] = (random[8] & 0x3F) | 0x80
    if n:
        memcpy(out, c.listener.auto_id_prefix.p, n)
    for i in range(16):
        if i == 4 or i == 6 or i == 8 or i == 10:
            out[n] = c'-'
            n += 1
        out[n] = hexadecimal[random[i] >> 4]
        out[n + 1] = hexadecimal[random[i] & 15]
        n += 2
    id.p = out
    id.n = n
    return 0


cdef int check_will(Broker* b, Client* c, Connect* p) noexcept nogil:
    if not p.will:
        return 0
    if name_check(p.will_topic.p, p.will_topic.n) != 0:
        log_refusal(b, c, "will topic not valid")
        if c.version == V5:
            return connect_refuse(b, c, RC_TOPIC_NAME_INVALID, 0)
        return connect_refuse_silently(b, c, RC_TOPIC_NAME_INVALID)
    if p.will_qos > c.listener.max_qos:      # [v5 3.2.2-12]
        log_refusal(b, c, "will QoS not supported")
        return connect_refuse(b, c, RC_QOS_NOT_SUPPORTED, 0) if c.version == V5 else connect_refuse_silently(b, c, RC_QOS_NOT_SUPPORTED)
    if p.will_retain and not b.settings.retain_available:    # [v5 3.2.2-13]
        log_refusal(b, c, "will retain not supported")
        return connect_refuse(b, c, RC_RETAIN_NOT_SUPPORTED, 0) if c.version == V5 else connect_refuse_silently(b, c, RC_RETAIN_NOT_SUPPORTED)
    if b.settings.message_size_limit and p.will_payload.n > b.settings.message_size_limit:
        log_refusal(b, c, "will payload too large")
        return connect_refuse(b, c, RC_PACKET_TOO_LARGE, CONNACK3_NOT_AUTHORIZED)
    return 0


cdef int check_access(Broker* b, Client* c, const Frame* f, Connect* p, bint was_empty) noexcept nogil:
    """Check the login. Returns PACKET_PENDING if the control plane is asked. If no component checks user names, any user name is
    accepted provided that anonymous clients are allowed, as in Mosquitto."""
    cdef bint method = p.version == V5 and props_has(&p.props, P_AUTH_METHOD)
    if method and (c.flags & CF_TRUSTED or not c.listener.security.extended):
        log_refusal(b, c, "bad authentication method")
        return connect_refuse(b, c, RC_BAD_AUTHENTICATION_METHOD, 0)     # [v5 4.12.0-1]
    if c.flags & CF_TRUSTED:
        return 0
    if c.pending_packet != NULL and c.pending_packet.allowed < 0:        # handled again: the control plane had no opinion
        return 0 if c.listener.allow_anonymous and not p.has_username else not_authorised(b, c)
    if c.pending_packet != NULL:         # handled again: allowed
        if c.pending_packet.text.p != NULL:
            p.has_username = c.pending_packet.text.n != 0
            p.username = owned_view(&c.pending_packet.text)
        return 0
    if method or (c.listener.security.authenticate and (p.has_username or c.listener.security.authenticate_anonymous) and not c.flags & CF_IDENTIFIED):
        return connect_pending(b, c, f, p, was_empty)
    if c.listener.allow_anonymous and (not p.has_username or not c.listener.security.authenticate):
        return 0
    if c.flags & CF_IDENTIFIED:
        return 0
    return not_authorised(b, c)


cdef int not_authorised(Broker* b, Client* c) noexcept nogil:
    b.stats.refused[REFUSED_ACCESS] += 1
    return connect_refuse(b, c, RC_NOT_AUTHORIZED, CONNACK3_NOT_AUTHORIZED)


cdef int check_keepalive(Broker* b, Client* c, Connect* p, Connack* k) noexcept nogil:
    cdef uint32_t max_s = b.settings.max_keepalive_s
    c.keepalive_s = p.keepalive
    if max_s == 0 or c.flags & CF_TRUSTED or (p.keepalive != 0 and p.keepalive <= max_s):
        return 0
    if c.version != V5:          # 3.x cannot inform the client of another value
        log_refusal(b, c, "keepalive over max_keepalive")
        return connect_refuse(b, c, 0, CONNACK3_IDENTIFIER_REJECTED)
    c.keepalive_s = <uint16_t>max_s
    k.has_server_keep_alive = 1  # [v5 3.2.2-21]
    k.server_keep_alive = <uint16_t>max_s
    return 0


cdef int check_limits(Broker* b, Client* c, Connect* p, Session* existing) noexcept nogil:
    if existing != NULL and existing.flags & SESSION_BRIDGE:
        log_refusal(b, c, "client identifier of a bridge")
        return connect_refuse(b, c, RC_CLIENTID_NOT_VALID, CONNACK3_IDENTIFIER_REJECTED)
    if c.flags & CF_TRUSTED:
        return 0
    if existing == NULL and b.settings.global_max_clients >= 0 and b.sessions.count >= b.settings.global_max_clients:
        b.stats.refused[REFUSED_CLIENTS] += 1
        log_refusal(b, c, "global_max_clients exceeded")
        return connect_refuse(b, c, RC_SERVER_BUSY, 0) if c.version == V5 else connect_refuse_silently(b, c, RC_SERVER_BUSY)
    if existing == NULL and memory_short(b, 0):
        b.stats.refused[REFUSED_MEMORY] += 1
        log_refusal(b, c, "memory_limit reached")
        return connect_refuse(b, c, RC_QUOTA_EXCEEDED, CONNACK3_SERVER_UNAVAILABLE)
    if b.durable != NULL and (expiry_of(b, p) or (existing != NULL and existing.store_session_id)):
        if durable_refuses(b) and (existing == NULL or p.clean_start):
            b.stats.refused[REFUSED_DISK] += 1
            log_refusal(b, c, "its session cannot be kept: the disk is full, or fails")
            return connect_refuse(b, c, RC_QUOTA_EXCEEDED, CONNACK3_SERVER_UNAVAILABLE)
        if not session_reserve(b, c, p, existing):
            b.stats.refused[REFUSED_MEMORY] += 1
            log_refusal(b, c, "no memory to keep its session")
            return connect_refuse(b, c, RC_QUOTA_EXCEEDED, CONNACK3_SERVER_UNAVAILABLE)
    return 0


cdef bint session_reserve(Broker* b, Client* c, Connect* p, Session* existing) noexcept nogil:
    """Reserve the records of all changes of this CONNECT: its session and will, and the end of an existing session. Returns 0 if
    there is no memory."""
    cdef uint64_t bytes = 2 * RECORD_ROOM + <uint64_t>p.client_id.n + p.username.n + c.listener.mount_point.n
    if p.will:
        bytes += <uint64_t>p.will_topic.n + p.will_payload.n + p.will_props.raw.n
    if existing != NULL:
        bytes += RECORD_ROOM + <uint64_t>existing.id_len + (strlen(existing.username) if existing.username != NULL else 0)
    return store_session_id_reserve(b) and persist_reserve(b, NULL, bytes)


# ---------------------------------------------------------------- the auth request of a login

cdef int connect_pending(Broker* b, Client* c, const Frame* f, Connect* p, bint was_empty) noexcept nogil:
    cdef PendingPacket* k = pending_packet_new(b, c, PENDING_CONNECT)
    cdef AuthRequest* q = NULL
    if k != NULL:
        q = auth_request_new(b, ASK_CONNECT, c, NULL, NULL)
        k.frame = <uint8_t*>malloc(f.total_len)
    if q == NULL or k.frame == NULL or ((was_empty or c.listener.use_username_as_clientid) and owned_set(&k.id, p.client_id) != 0) or (
            p.version == V5 and props_has(&p.props, P_AUTH_METHOD) and (
            names_take(c) == NULL or owned_set(&c.names.method, p.props.auth_method) != 0)):
        if q != NULL:
            auth_request_end(b, q)
        pending_packet_free(b, c)
        b.stats.refused[REFUSED_MEMORY] += 1
        return connect_refuse(b, c, RC_SERVER_BUSY, CONNACK3_SERVER_UNAVAILABLE)
    memcpy(k.frame, f.start, f.total_len)
    k.frame_n = f.total_len
    c.state = C_AUTHENTICATING
    c.auth_request = auth_request_handle(q)
    wheel_remove(&b.wheel, &c.timer)     # the auth request has a deadline of its own
    auth_request_send(b, q)
    return PACKET_PENDING


cdef void connect_answered(Broker* b, Client* c, const AuthAnswer* a) noexcept nogil:
    cdef int rc
    if a.verdict == RC_CONTINUE_AUTHENTICATION and method_of(c).p != NULL:
        auth_send(b, c, RC_CONTINUE_AUTHENTICATION, a.bytes)
        pending_packet_resume(b, c)
        wheel_add(&b.wheel, &c.timer, b.reactor.now_ms + b.settings.connect_timeout_ms)
        return
    if a.verdict > 0:
        connect_refused(b, c, a.verdict)
        return
    if peer_has_closed(c):
        client_end(b, c, END_LOST)
        return
    if owned_set(&c.pending_packet.text, a.text) != 0 or owned_set(&c.pending_packet.bytes, a.bytes) != 0:
        connect_refused(b, c, RC_SERVER_BUSY)
        return
    c.pending_packet.allowed = -1 if a.verdict < 0 else 1
    rc = connect_resume(b, c)
    if rc:
        client_end(b, c, rc)
        return
    client_auth_request_end(b, c)
    pending_packet_resume(b, c)
    pending_packet_free(b, c)


cdef bint peer_has_closed(Client* c) noexcept nogil:
    """Return whether the peer has closed the connection. The broker did not read from the client while it waited. Data that the
    client sent before it closed still counts."""
    cdef uint8_t byte
    return c.conn.in_buf == NULL and c.conn.web == NULL and recv(c.conn.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0


cdef int connect_resume(Broker* b, Client* c) noexcept nogil:
    cdef Frame f
    if frame_next(c.pending_packet.frame, c.pending_packet.frame_n, 0, &f) != 1:
        return RC_PROTOCOL_ERROR         # cannot happen: it was a frame before
    c.pending_packet.answered = 1
    return handle_connect(b, c, &f)


cdef void connect_refused(Broker* b, Client* c, int rc) noexcept nogil:
    """Refuse a login with the reason code of the control plane. 3.x knows six of the codes. A wrong password gets the same code
    as an unknown user, as in Mosquitto."""
    cdef uint8_t rc5 = <uint8_t>rc if 0x80 <= rc <= 0xFF else RC_NOT_AUTHORIZED
    cdef uint8_t rc3 = CONNACK3_NOT_AUTHORIZED
    if rc5 == RC_CLIENTID_NOT_VALID:
        rc3 = CONNACK3_IDENTIFIER_REJECTED
    elif rc5 == RC_SERVER_UNAVAILABLE or rc5 == RC_SERVER_BUSY or rc5 == RC_CONNECTION_RATE_EXCEEDED:
        rc3 = CONNACK3_SERVER_UNAVAILABLE
    elif rc5 == RC_BAD_USERNAME_OR_PASSWORD:
        rc3 = CONNACK3_BAD_CREDENTIALS
    b.stats.refused[REFUSED_ACCESS] += 1
    log_name_of_pending(b, c)
    client_end(b, c, connect_refuse(b, c, rc5, rc3))
    b.log.connecting.p = NULL


cdef void log_name_of_pending(Broker* b, Client* c) noexcept nogil:
    """Set the client id that the log line shows for the pending CONNECT."""
    cdef Frame f
    cdef Connect p
    if frame_next(c.pending_packet.frame, c.pending_packet.frame_n, 0, &f) == 1 and decode_connect(&f, &p) == 0 and p.client_id.n:
        b.log.connecting = p.client_id


cdef void connect_timed_out(Broker* b, Client* c) noexcept nogil:
    b.stats.refused[REFUSED_AUTH_TIMEOUT] += 1
    log_refusal(b, c, "no answer about its authentication in time")
    client_end(b, c, connect_refuse(b, c, RC_SERVER_UNAVAILABLE, CONNACK3_SERVER_UNAVAILABLE))


# ---------------------------------------------------------------- the client's will, limits and session

cdef int will_take(Broker* b, Client* c, Connect* p) noexcept nogil:
    """Copy the will: its topic under the mount point and its forwardable properties. Returns -1 if there is no memory."""
    cdef View topic, props
    cdef uint8_t* bytes
    cdef uint32_t mount = c.listener.mount_point.n, size = 0
    cdef Will* w
    if not p.will:
        return 0
    if c.version == V5:
        size = props_forward_size(&p.will_props)
    w = <Will*>calloc(1, sizeof(Will))
    bytes = <uint8_t*>malloc(<size_t>mount + p.will_topic.n + size + 1)
    if w == NULL or bytes == NULL:
        free(w)
        free(bytes)
        return -1
    if mount:
        memcpy(bytes, c.listener.mount_point.p, mount)
    memcpy(bytes + mount, p.will_topic.p, p.will_topic.n)
    topic.p = bytes
    topic.n = mount + p.will_topic.n
    props.p = bytes + topic.n
    props.n = size
    if size:
        props_forward_put(bytes + topic.n, &p.will_props)
    w.message = message_new(&b.messages, topic, props, p.will_payload)
    free(bytes)
    if w.message == NULL:
        free(w)
        return -1
    w.message.qos = p.will_qos
    w.message.retain = p.will_retain
    if c.version == V5:
        if props_has(&p.will_props, P_WILL_DELAY):
            w.delay_s = p.will_props.will_delay
        if props_has(&p.will_props, P_MESSAGE_EXPIRY):
            w.has_expiry = 1
            w.expiry_s = p.will_props.message_expiry
    c.will = w
    return 0


cdef void apply_client_limits(Broker* b, Client* c, Connect* p) noexcept nogil:
    """Apply the client's limits: window, packet size, topic aliases [v5 3.1.2.11]."""
    c.window = <uint16_t>b.settings.max_inflight_messages
    c.packet_max = 0
    c.alias_max_in = c.listener.alias_max_in
    if c.version != V5:
        return
    if props_has(&p.props, P_RECEIVE_MAXIMUM) and p.props.receive_max < c.window:
        c.window = p.props.receive_max
    if props_has(&p.props, P_MAXIMUM_PACKET_SIZE):
        c.packet_max = p.props.packet_max
    if not props_has(&p.props, P_REQUEST_PROBLEM) or p.props.request_problem:
        c.flags |= CF_PROBLEM_INFO
    if props_has(&p.props, P_TOPIC_ALIAS_MAXIMUM) and p.props.alias_max and c.listener.alias_max_out:
        aliases_begin(c, p.props.alias_max if p.props.alias_max < c.listener.alias_max_out else c.listener.alias_max_out)


cdef Session* session_for(Broker* b, Client* c, Connect* p, uint8_t* present) noexcept nogil:
    """Return the session of this client id [v5 3.1.2-4..6, 3.1.4-3]; a connection that has it is taken over. NULL = no memory.
    *present is set to 1 if the session existed."""
    cdef Session* s = sessions_find(&b.sessions, p.client_id)
    if s != NULL and s.client != NULL:
        client_end(b, session_client(s), RC_SESSION_TAKEN_OVER)
        s = sessions_find(&b.sessions, p.client_id)
    if s != NULL and p.clean_start:
        session_end(b, s)
        s = NULL
    present[0] = s != NULL
    if s == NULL:
        s = session_new(&b.sessions, p.client_id)
        if s == NULL:
            return NULL
        s.timer.kind = TIMER_SESSION
        sessions_add(&b.sessions, s)
    s.flags &= ~<uint32_t>SESSION_TRUSTED
    s.security = c.listener.security
    s.access_epoch = b.access_epoch - 1      # forces a check: the session may have another user now
    if c.flags & CF_TRUSTED:
        s.flags |= SESSION_TRUSTED
        s.security = NULL
    return s


cdef bint same_user(const Session* s, Connect* p) noexcept nogil:
    if s.username == NULL or not p.has_username:
        return s.username == NULL and not p.has_username
    return strlen(s.username) == p.username.n and memcmp(s.username, p.username.p, p.username.n) == 0


cdef void queue_recheck_begin(Session* s, Connect* p) noexcept nogil:
    """Mark queued deliveries for a check of the rules, as in Mosquitto: the user and the rules may be other ones now."""
    s.flags &= ~<uint32_t>(SESSION_RECHECK | SESSION_STRANGER)
    if s.security != NULL and session_security(s).guards and s.queue.pending:
        s.flags |= SESSION_RECHECK
        if not same_user(s, p):
            s.flags |= SESSION_STRANGER


cdef int username_set(Session* s, Connect* p) noexcept nogil:
    queue_recheck_begin(s, p)
    free(s.username)
    s.username = NULL
    if p.has_username:
        s.username = <char*>malloc(<size_t>p.username.n + 1)
        if s.username == NULL:
            return -1
        memcpy(s.username, p.username.p, p.username.n)
        s.username[p.username.n] = 0
    return 0


cdef bint props_has_expiry(Connect* p) noexcept nogil:
    return p.version == V5 and props_has(&p.props, P_SESSION_EXPIRY)


cdef uint32_t expiry_of(Broker* b, Connect* p) noexcept nogil:
    """Return the session expiry interval in seconds; persistent_client_expiration limits it, as in Mosquitto."""
    cdef uint32_t wanted = EXPIRY_NEVER
    if p.version == V5:
        wanted = p.props.session_expiry if props_has(&p.props, P_SESSION_EXPIRY) else 0
    elif p.clean_start:
        wanted = 0
    return wanted if wanted < b.settings.persistent_expiry_s else b.settings.persistent_expiry_s


# ---------------------------------------------------------------- the handler

cdef void log_second_connect(Broker* b, Client* c) noexcept nogil:
    cdef char where[64]
    if log_wanted(&b.log, LOG_NOTICE):
        address_text(&c.conn.address, where, sizeof(where))
        log_line(b, LOG_NOTICE, snprintf(b.log.line, LOG_LINE_MAX, "Bad client %s:%d sending multiple CONNECT messages.", where,
                                         <int>c.conn.address.port))


cdef int handle_connect(Broker* b, Client* c, const Frame* f) noexcept nogil:
    cdef Connect p
    cdef Connack k
    cdef uint8_t assigned[ASSIGNED_MAX]
    cdef uint8_t tls_name[TLS_NAME_MAX]
    cdef Session* s
    cdef bint was_empty
    cdef uint64_t changes
    cdef int rc
    if c.state != C_NEW and not (c.pending_packet != NULL and c.pending_packet.answered):       # [v5 3.1.0-2]
        log_second_connect(b, c)
        return RC_PROTOCOL_ERROR
    p.version = 0
    rc = check_version(b, c, f, &p, decode_connect(f, &p))
    if rc:
        return rc
    connack_clear(&k)
    was_empty = p.client_id.n == 0
    if p.has_username and p.username.n == 0:
        p.has_username = 0       # an empty user name is none, as in Mosquitto
    if p.bridge:
        c.flags |= CF_REMOTE_BRIDGE
    c.flags &= ~<uint8_t>CF_IDENTIFIED       # checked again: a reload may have happened since the first pass
    if tls_identity(c, &p, tls_name) or proxied_identity(c, &p):
        if p.client_id.n:
            b.log.connecting = p.client_id
        log_refusal(b, c, "bad username or password")
        return connect_refuse(b, c, RC_BAD_USERNAME_OR_PASSWORD, CONNACK3_BAD_CREDENTIALS)
    rc = check_id(b, c, &p, assigned)
    rc = rc or check_will(b, c, &p)
    if rc == 0:
        b.log.connecting = p.client_id
    rc = rc or check_access(b, c, f, &p, was_empty)
    if rc == PACKET_PENDING:
        return 0                 # the packet was copied
    rc = rc or check_limits(b, c, &p, sessions_find(&b.sessions, p.client_id))
    rc = rc or check_keepalive(b, c, &p, &k)
    if rc:
        return rc
    if will_take(b, c, &p) != 0:
        return connect_refuse(b, c, RC_SERVER_UNAVAILABLE, CONNACK3_SERVER_UNAVAILABLE)
    changes = changes_of(b)
    s = session_for(b, c, &p, &k.session_present)
    if s == NULL or username_set(s, &p) != 0:
        will_free(b, c.will)
        c.will = NULL
        if s != NULL and not k.session_present:
            session_end(b, s)
        k.session_present = 0
        return connect_refuse(b, c, RC_SERVER_UNAVAILABLE, CONNACK3_SERVER_UNAVAILABLE)
    session_attach(b, s, c)
    s.access_turn += 1
    plugin_gate_renew(b, s)
    s.expiry_s = expiry_of(b, &p)
    if props_has_expiry(&p) and s.expiry_s < p.props.session_expiry:
        k.has_session_expiry = 1         # [v5 3.2.2.3.2] less than the client requested
        k.session_expiry = s.expiry_s
    persist_session(b, s)
    if c.will != NULL:
        persist_will(b, s, c.will.message, c.will.delay_s, 0)
    apply_client_limits(b, c, &p)
    c.state = C_CONNECTED
    c.kicks = <uint16_t>b.kicks
    client_watch(b, c)
    b.stats.connections += 1
    b.stats.clients_connected += 1
    if b.sessions.count > b.stats.clients_max:
        b.stats.clients_max = b.sessions.count
    log_connected(b, c, p.clean_start, p.keepalive)
    event_connected(b, c, p.clean_start, k.session_present)
    log_will(b, c)
    log_negotiated_tls(b, c)
    if s.security != NULL:
        security_begin(b, c, s)
    # Hold the output until the changes are committed: the end of the old session and the begin of a new one; and for an existing
    # session, that its client is connected. Otherwise, after a kill, the deliveries sent from here on would count as never sent
    # and be sent again without DUP. On a full disk the broker accepts that rather than sending nothing.
    hold_output(b, c, changes, k.session_present)
    connack_accept(b, c, &p, &k, was_empty and c.version == V5)
    pump(b, s, NULL)
    if s.plugin_gate != NULL:
        deliver_gated(b, s)
    if s.jobs:
        jobs_follow(b, c)
        jobs_unblock(b, s)       # cursors of streams continue
    return 0


cdef void connack_accept(Broker* b, Client* c, Connect* p, Connack* k, bint was_assigned) noexcept nogil:
    if p.version == V31:
        k.session_present = 0    # 3.1 has no such flag
    k.alias_max = c.alias_max_in
    k.packet_max = b.settings.packet_max
    k.receive_max = <uint16_t>b.settings.receive_maximum
    k.retain_unavailable = not b.settings.retain_available
    if was_assigned:
        k.assigned_client_id = p.client_id       # [v5 3.2.2-16]
    if method_of(c).p != NULL:
        k.auth_method = method_of(c)     # [v5 4.12.0-6]
        k.auth_data = owned_view(&c.pending_packet.bytes)
    if c.listener.max_qos < 2:
        k.has_max_qos = 1
        k.max_qos = c.listener.max_qos
    connack_send(b, c, k)


cdef void security_begin(Broker* b, Client* c, Session* s) noexcept nogil:
    cdef Security* security = session_security(s)
    cdef View id, user, where
    cdef char text[64]
    log_unsafe_names(b, s)
    if security.events:
        session_names(s, &id, &user)
        where.p = <const uint8_t*>text
        where.n = <uint32_t>address_text(&c.conn.address, text, sizeof(text))
        event_post(b, security, EVENT_CONNECTED, id, user, where)
    if security.authorize and c.will != NULL:
        will_request_verdict(b, s, c.will.message, FOR_LATER)    # so that the verdict is known when the broker stops


cdef void log_unsafe_names(Broker* b, Session* s) noexcept nogil:
    """Log names that would widen an ACL pattern, and are therefore denied: once, where Mosquitto logs it at every check."""
    cdef View id, user
    cdef const Acl* a = session_security(s).acl
    if a == NULL or not acl_patterned(a) or not log_wanted(&b.log, LOG_NOTICE):
        return
    session_names(s, &id, &user)
    if acl_name_unsafe(user):
        log_line(b, LOG_NOTICE, snprintf(b.log.line, LOG_LINE_MAX, "ACL denying access to client with dangerous username \"%.*s\"",
                                         <int>user.n, <const char*>user.p))
    if acl_name_unsafe(id):
        log_line(b, LOG_NOTICE, snprintf(b.log.line, LOG_LINE_MAX, "ACL denying access to client with dangerous client id \"%.*s\"",
                                         <int>id.n, <const char*>id.p))


cdef void log_will(Broker* b, Client* c) noexcept nogil:
    if not log_wanted(&b.log, LOG_DEBUG):
        return
    if c.will == NULL:
        log_text(b, LOG_DEBUG, "No will message specified.")
        return
    log_line(b, LOG_DEBUG, snprintf(b.log.line, LOG_LINE_MAX, "Will message specified (%u bytes) (r%d, q%d).",
                                    c.will.message.payload.n, <int>c.will.message.retain, <int>c.will.message.qos))
    log_line(b, LOG_DEBUG, snprintf(b.log.line, LOG_LINE_MAX, "\t%.*s", <int>c.will.message.topic.n,
                                    <const char*>c.will.message.topic.p))
