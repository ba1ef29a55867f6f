"""Handle CONNECT [v5 3.1] [v3.1.1 3.1] [v3.1 3.1]: which client may connect, under which client id, and which session it gets.

    connect_validate   protocol, the listener's versions, TLS identity, client id, will
    client_moves       with several workers, the client id may name another one: the connection goes there
    login_check        authentication method, user name and password or anonymous access; may wait for the control plane
    connect_admit      limits, keepalive, take-over of a connection with the same id, session, CONNACK, pending deliveries

The order of the checks is as in Mosquitto. If the control plane decides about the login, the first pass ends with a pending
packet, and the answer starts a second pass from the top (connect_pass).
"""

from libc.stdint cimport uint8_t, uint16_t, uint32_t
from libc.stdio cimport snprintf
from libc.string cimport memset

from cext.base.view cimport View
from cext.base.wheel cimport wheel_add
from cext.broker.auth.auth_requests cimport AuthAnswer, EVENT_CONNECTED, client_auth_request_end, event_post
from cext.broker.auth.tls_identity cimport log_negotiated_tls
from cext.broker.core.access cimport session_names
from cext.broker.core.bounds cimport WORK_CONNECT
from cext.broker.core.broker cimport Broker
from cext.broker.core.client cimport (
    ADDRESS_TEXT_MAX, END_LOST, END_SILENT, aliases_begin, auth_send, client_address, log_connected, log_line, log_text, peer_line_wanted,
)
from cext.broker.core.client_state cimport CF_PROBLEM_INFO, C_CONNECTED, C_NEW, Client
from cext.broker.core.durable cimport changes_of
from cext.broker.core.jobs cimport jobs_follow, jobs_unblock
from cext.broker.core.newcomers cimport newcomer_leave
from cext.broker.core.log cimport LOG_DEBUG, LOG_LINE_MAX, LOG_NOTICE, log_wanted
from cext.broker.core.log_rate cimport LINE_CONNECTED, LINE_PROTOCOL
from cext.broker.core.pending_packet cimport PACKET_PENDING, method_of, owned_set, pending_packet_free, pending_packet_resume
from cext.broker.core.session_refs cimport session_security
from cext.broker.core.stats cimport REFUSED_ACCESS, REFUSED_AUTH_TIMEOUT
from cext.broker.lifecycle.session_lifecycle cimport client_end, client_watch, will_ask_early
from cext.broker.lifecycle.passing cimport client_moves
from cext.broker.packets.connack cimport connack_prepare, connack_send, connect_refuse, log_refusal
from cext.broker.packets.connect_login cimport log_refused_by, login_check, login_refuse, peer_has_closed
from cext.broker.packets.connect_session cimport check_keepalive, check_limits, expiry_announce, session_begin, session_take, will_take
from cext.broker.packets.connect_state cimport Connecting, END_SILENTLY, LOGIN_ALLOWED, LOGIN_NO_OPINION, LOGIN_NOT_CHECKED, LOGIN_OPEN, NOT_CHECKED
from cext.broker.packets.connect_validate cimport connect_validate
from cext.broker.persist.events cimport event_connected
from cext.broker.persist.pending_acks cimport hold_output
from cext.broker.routing.deliver cimport deliver_gated
from cext.broker.routing.pump cimport pump
from cext.broker.rules.acl cimport Acl, acl_name_unsafe, acl_patterned
from cext.codec.decode cimport Connect
from cext.codec.encode cimport Connack
from cext.codec.frame cimport Frame, V5, V31, frame_next
from cext.codec.properties cimport P_RECEIVE_MAXIMUM, P_REQUEST_PROBLEM, P_TOPIC_ALIAS_MAXIMUM, props_has
from cext.codec.reason cimport (
    CONNACK3_SERVER_UNAVAILABLE, RC_CONTINUE_AUTHENTICATION, RC_PROTOCOL_ERROR, RC_SERVER_BUSY, RC_SERVER_UNAVAILABLE,
)
from cext.session.session cimport Session, sessions_find


cdef void apply_client_limits(Broker* b, Client* c, Connect* p) noexcept nogil:
    """Apply the client's limits: window, topic aliases [v5 3.1.2.11]. Its packet size is in force from the check of CONNECT on."""
    c.window = <uint16_t>b.settings.max_inflight_messages
    c.alias_max_in = c.listener.alias_max_in
    if c.version != V5:
        return
    if props_has(&p.props, P_RECEIVE_MAXIMUM) and p.props.receive_max < c.window:
        c.window = p.props.receive_max
    if not props_has(&p.props, P_REQUEST_PROBLEM) or p.props.request_problem:
        c.flags |= CF_PROBLEM_INFO
    if props_has(&p.props, P_TOPIC_ALIAS_MAXIMUM) and p.props.alias_max and c.listener.alias_max_out:
        aliases_begin(c, p.props.alias_max if p.props.alias_max < c.listener.alias_max_out else c.listener.alias_max_out)


cdef void client_begin(Broker* b, Client* c, Connect* p) noexcept nogil:
    apply_client_limits(b, c, p)
    c.state = C_CONNECTED
    newcomer_leave(b, c)
    c.kicks = <uint16_t>b.kicks
    client_watch(b, c)
    b.stats.connections += 1
    b.stats.clients_connected += 1
    if b.sessions.count > b.stats.clients_max:
        b.stats.clients_max = b.sessions.count


cdef void log_unsafe_names(Broker* b, const Client* c, Session* s) noexcept nogil:
    """Log names that would widen an ACL pattern, and are therefore denied: once, where Mosquitto logs it at every check."""
    cdef View id, user
    cdef const Acl* a = session_security(s).acl
    if a == NULL or not acl_patterned(a):
        return
    session_names(s, &id, &user)
    if acl_name_unsafe(user) and peer_line_wanted(b, c, LOG_NOTICE, LINE_CONNECTED):
        log_line(b, LOG_NOTICE, snprintf(b.log.line, LOG_LINE_MAX,
                                         "ACL denying access to client with dangerous username \"%.*s\"",
                                         <int>user.n, <const char*>user.p))
    if acl_name_unsafe(id) and peer_line_wanted(b, c, LOG_NOTICE, LINE_CONNECTED):
        log_line(b, LOG_NOTICE, snprintf(b.log.line, LOG_LINE_MAX,
                                         "ACL denying access to client with dangerous client id \"%.*s\"",
                                         <int>id.n, <const char*>id.p))


cdef void plugins_begin(Broker* b, Client* c, Session* s, bint clean) noexcept nogil:
    cdef View id, user, where
    cdef char text[ADDRESS_TEXT_MAX]
    if session_security(s).events:
        session_names(s, &id, &user)
        where.p = <const uint8_t*>text
        where.n = <uint32_t>client_address(c, text, sizeof(text))
        event_post(b, c, EVENT_CONNECTED, id, user, where, clean, 0)
    if session_security(s).authorize and c.will != NULL:
        will_ask_early(b, c.will.message, s)     # so that the verdict is known when the broker stops


cdef void arrived_notify(Broker* b, Client* c) noexcept nogil:
    event_connected(b, c, 0, 1)
    if c.session.security != NULL:
        plugins_begin(b, c, c.session, 0)


cdef void security_begin(Broker* b, Client* c, Session* s, bint clean) noexcept nogil:
    log_unsafe_names(b, c, s)
    plugins_begin(b, c, s, clean)


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


cdef void log_admitted(Broker* b, Client* c, Session* s, const Connecting* k) noexcept nogil:
    log_connected(b, c, k.packet.clean_start, k.packet.keepalive)
    event_connected(b, c, k.packet.clean_start, k.connack.session_present)
    log_will(b, c)
    log_negotiated_tls(b, c, k.packet.client_id)
    if s.security != NULL:
        security_begin(b, c, s, k.packet.clean_start)


cdef void session_continue(Broker* b, Client* c, Session* s) noexcept nogil:
    """Send what waits for the session."""
    pump(b, s, NULL)
    if s.plugin_gate != NULL:
        deliver_gated(b, s)
    if s.jobs:
        jobs_follow(b, c)
        jobs_unblock(b, s)       # cursors of streams continue


cdef int connect_admit(Broker* b, Client* c, Connecting* k) noexcept nogil:
    """Give the client its session, and answer. This is the second half of a pass, after the login."""
    cdef Session* s
    cdef bint was_stored
    cdef int rc = check_limits(b, c, &k.packet)
    rc = rc or check_keepalive(b, c, k)
    if rc:
        return rc
    expiry_announce(b, k)
    rc = connack_prepare(b, c, k)
    if rc:
        return rc
    if will_take(b, c, &k.packet) != 0:
        return connect_refuse(b, c, RC_SERVER_UNAVAILABLE, CONNACK3_SERVER_UNAVAILABLE)
    k.changes = changes_of(b)
    s = sessions_find(&b.sessions, k.packet.client_id) if b.durable != NULL else NULL
    was_stored = s != NULL and s.store_session_id != 0
    s = session_take(b, c, k)
    if s == NULL:
        return connect_refuse(b, c, RC_SERVER_UNAVAILABLE, CONNACK3_SERVER_UNAVAILABLE)
    session_begin(b, c, s, k)
    client_begin(b, c, &k.packet)
    log_admitted(b, c, s, k)
    # Hold the output until the changes are committed: the end of the old session and the begin of a new one; and for an existing
    # session, that its client is connected. Otherwise, after a kill, the deliveries sent from here on would count as never sent
    # and be sent again without DUP. On a full disk the broker accepts that rather than sending nothing. The same is true for the will
    # of a client without a stored session, which must not depend on the disk.
    hold_output(b, c, k.changes, k.connack.session_present or not (was_stored or s.store_session_id != 0))
    if c.version == V31:
        k.connack.session_present = 0    # 3.1 has no such flag
    connack_send(b, c, &k.connack)
    session_continue(b, c, s)
    return 0


cdef void log_second_connect(Broker* b, Client* c) noexcept nogil:
    cdef char where[ADDRESS_TEXT_MAX]
    if peer_line_wanted(b, c, LOG_NOTICE, LINE_PROTOCOL):
        client_address(c, where, sizeof(where))
        log_line(b, LOG_NOTICE, snprintf(b.log.line, LOG_LINE_MAX, "Bad client %s:%d sending multiple CONNECT messages.", where,
                                         <int>c.conn.address.port))


cdef int connect_pass(Broker* b, Client* c, const Frame* f, uint8_t login) noexcept nogil:
    """Handle the packet: validate, log in, admit. Returns 0, also if the login waits for the control plane; PACKET_PENDING if it belongs to another
    worker; or the reason to end the client. The second pass, with the answer of the control plane, validates again, because the configuration may have
    changed."""
    cdef Connecting k
    cdef int rc
    k.frame = f
    k.login = login
    k.packet.version = 0
    memset(&k.connack, 0, sizeof(Connack))
    rc = connect_validate(b, c, &k)
    if rc == 0 and login == LOGIN_OPEN:
        rc = client_moves(b, c, k.packet.client_id)
        if rc:
            return rc            # PACKET_PENDING: the packet stays in the input, for another worker
    rc = rc or login_check(b, c, &k)
    if rc:
        return 0 if rc == PACKET_PENDING else rc
    return connect_admit(b, c, &k)


cdef int handle_connect(Broker* b, Client* c, const Frame* f) noexcept nogil:
    if c.state != C_NEW:         # [v5 3.1.0-2]
        log_second_connect(b, c)
        return RC_PROTOCOL_ERROR
    b.work += WORK_CONNECT
    return connect_pass(b, c, f, LOGIN_OPEN)


cdef int connect_resume(Broker* b, Client* c, uint8_t login) noexcept nogil:
    cdef Frame f
    if frame_next(c.pending_packet.frame, c.pending_packet.frame_n, 0, &f) != 1:
        return RC_PROTOCOL_ERROR         # cannot happen: it was a frame before
    return connect_pass(b, c, &f, login)


cdef void connect_answered(Broker* b, Client* c, const AuthAnswer* a) noexcept nogil:
    cdef int rc
    if a.verdict == RC_CONTINUE_AUTHENTICATION and method_of(c).p != NULL:
        auth_send(b, c, RC_CONTINUE_AUTHENTICATION, a.bytes)
        pending_packet_resume(b, c)
        wheel_add(&b.wheel, &c.timer, b.reactor.now_ms + b.settings.connect_timeout_ms)
        return
    if a.verdict > 0 or a.verdict == END_SILENTLY:
        log_refused_by(b, c, a.text)
    if a.verdict > 0:
        login_refuse(b, c, a.verdict)
        return
    if a.verdict == END_SILENTLY:
        b.stats.refused[REFUSED_ACCESS] += 1
        client_end(b, c, END_SILENT)
        return
    if peer_has_closed(c):
        client_end(b, c, END_LOST)
        return
    if owned_set(&c.pending_packet.text, a.text) != 0 or owned_set(&c.pending_packet.bytes, a.bytes) != 0:
        login_refuse(b, c, RC_SERVER_BUSY)
        return
    if a.extra.p != NULL:
        c.pending_packet.id_given = 1
        if owned_set(&c.pending_packet.id, a.extra) != 0:
            login_refuse(b, c, RC_SERVER_BUSY)
            return
    rc = connect_resume(b, c, LOGIN_ALLOWED if a.verdict == 0 else LOGIN_NOT_CHECKED if a.verdict == NOT_CHECKED else LOGIN_NO_OPINION)
    if rc:
        client_end(b, c, rc)
        return
    client_auth_request_end(b, c)
    pending_packet_resume(b, c)
    pending_packet_free(b, c)


cdef void connect_timed_out(Broker* b, Client* c) noexcept nogil:
    b.stats.refused[REFUSED_AUTH_TIMEOUT] += 1
    log_refusal(b, c, "no answer about the login in time")
    client_end(b, c, connect_refuse(b, c, RC_SERVER_UNAVAILABLE, CONNACK3_SERVER_UNAVAILABLE))
