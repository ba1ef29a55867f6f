"""Process the answers of the control plane, and the time-outs of auth requests. This module knows which client or session waited;
the room of each packet knows how it continues.

An answer finds its auth request by handle, or it is stale: late, given twice, or for a client that is gone. The number of answers
per turn is limited, so that other clients notice nothing when ten thousand clients log in at once.
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memset

from cext.base.view cimport View
from cext.base.wheel cimport Timer, wheel_add
from cext.broker.auth.auth_requests cimport (
    ANSWERS_PER_TURN, ASK_ACL, ASK_AGAIN, ASK_AUTH, ASK_CONNECT, ASK_CONTROL, ASK_KICK_USERS, ASK_MESSAGE_IN, ASK_MESSAGE_OUT, ASK_NATIVES,
    ASK_PUBLISH, ASK_WAIT, AuthAnswer, AuthRequest, FOR_DELIVERY, FOR_PACKET, FOR_WILL, answers_next, auth_request_answered,
    auth_request_client, auth_request_end, auth_request_of, auth_request_send, auth_requests_at, auth_requests_end,
    auth_requests_flush,
)
from cext.broker.core.bounds cimport LEND_MIN_BYTES
from cext.broker.core.broker cimport Broker
from cext.broker.core.client cimport log_text
from cext.broker.core.client_state cimport CF_DOOMED, C_AUTHENTICATING, C_ENDED, Client, PENDING_PUBLISH
from cext.broker.core.jobs cimport jobs_unblock
from cext.broker.core.log cimport LOG_ERROR
from cext.broker.core.pending_packet cimport pending_packet_free, pending_packet_resume
from cext.broker.core.publication_state cimport Publication, SCOPE_LOCAL
from cext.broker.core.session_refs cimport session_security
from cext.broker.lifecycle.kick cimport kick_users
from cext.broker.lifecycle.session_lifecycle cimport will_answered
from cext.broker.packets.authorize cimport BY_RULES, packet_answered, publish_changed
from cext.broker.packets.connect_state cimport NOT_CHECKED
from cext.broker.packets.handle_auth cimport auth_answered, auth_timed_out
from cext.broker.packets.handle_connect cimport connect_answered, connect_timed_out
from cext.broker.packets.handle_control cimport control_answered
from cext.broker.persist.publication cimport publication_fini, publication_init
from cext.broker.routing.deliver cimport deliver, deliver_gated
from cext.broker.routing.plugin_gate cimport (
    ACL_SUBSCRIBE, plugin_gate_again, plugin_gate_answered, plugin_gate_changed, plugin_gate_learn, plugin_gate_settled, plugin_gate_waiting,
)
from cext.broker.routing.retain cimport retain_put
from cext.broker.routing.route cimport route
from cext.broker.routing.session_release cimport session_release
from cext.session.message cimport MESSAGE_AGAIN, Message, message_new, message_unref
from cext.session.session cimport SESSION_ENDED, Session, sessions_find


cdef bint answers_serve(Broker* b) noexcept nogil:
    cdef AuthAnswer* a
    cdef int _
    b.answers_due = 0
    auth_requests_flush(b)
    for _ in range(ANSWERS_PER_TURN):
        a = answers_next(b)
        if a == NULL:
            return 0
        if not answer_take(b, a):
            b.stats.answers_stale += 1
        free(a)
    b.answers_due = 1
    return 1


cdef bint answer_take(Broker* b, const AuthAnswer* a) noexcept nogil:
    """Process one answer. Returns 0 if it is stale."""
    cdef AuthRequest* q
    if a.kind == ASK_PUBLISH:
        publish_for_control_plane(b, a)
        return 1
    if a.kind == ASK_KICK_USERS:
        if kick_users(b, a.bytes, a.verdict != 0) != 0:
            log_text(b, LOG_ERROR, "Error: No memory to disconnect users whose rights have changed.")
        return 1
    if a.kind == ASK_CONTROL:
        return control_answered(b, a)
    q = auth_request_of(b, a.handle)
    if q == NULL or not q.is_open:
        return 0
    if a.kind == ASK_WAIT:
        return auth_request_postpone(b, q, a.verdict)
    if a.kind == ASK_AGAIN or (q.epoch != b.access_epoch and (q.kind == ASK_CONNECT or q.kind == ASK_ACL)):
        ask_again(b, q)                  # the answer is from before a reload and may be wrong now; what became of a message counts
        return 1
    if q.kind == ASK_CONNECT or q.kind == ASK_AUTH:
        return a.kind == ASK_CONNECT and client_answered(b, q, a)
    if a.kind != q.kind:
        return 0
    auth_request_answered(b, q)
    auth_request_settle(b, q, a)
    return 1


cdef void ask_again(Broker* b, AuthRequest* q) noexcept nogil:
    """Ask again, under the configuration in force. If it has no plugin to ask, its rules decide. The steps of an extended authentication
    belong to the plugin that began it."""
    cdef AuthAnswer no_opinion
    auth_request_answered(b, q)
    if q.epoch == b.access_epoch or q.kind == ASK_AUTH:
        auth_request_unanswered(b, q)
    elif q.kind == ASK_MESSAGE_OUT:
        plugin_gate_again(b, q)
        auth_request_over(b, q)
    elif q.kind == ASK_MESSAGE_IN or is_about_publish(b, q):
        publish_again(b, q)
    elif still_needed(b, q):
        q.natives_asked = 0
        auth_request_send(b, q)
    else:
        memset(&no_opinion, 0, sizeof(no_opinion))
        no_opinion.verdict = NOT_CHECKED if q.kind == ASK_CONNECT else -1
        if q.kind == ASK_ACL:
            auth_request_settle(b, q, &no_opinion)
        else:
            client_answered(b, q, &no_opinion)


cdef bint is_about_publish(Broker* b, AuthRequest* q) noexcept nogil:
    cdef Client* c = waiting_client(b, q)
    return c != NULL and q.session == NULL and c.pending_packet.kind == PENDING_PUBLISH


cdef void publish_again(Broker* b, AuthRequest* q) noexcept nogil:
    """Handle a client's PUBLISH from the start: its rights, too, may have changed, and what plugins want to know of it."""
    cdef Client* c = auth_request_client(b, q)
    if is_about_publish(b, q):
        pending_packet_resume(b, c)
        pending_packet_free(b, c)
    auth_request_end(b, q)


cdef bint still_needed(Broker* b, AuthRequest* q) noexcept nogil:
    """Return whether a login or an access still has an authority to decide it after a reload."""
    cdef Client* c = auth_request_client(b, q)
    cdef Session* s = q.session if q.session != NULL else c.session if c != NULL else NULL
    if q.kind == ASK_CONNECT:
        return c != NULL and (c.listener.security.authenticate or c.listener.security.extended)
    return s != NULL and s.security != NULL and session_security(s).authorize


cdef bint auth_request_postpone(Broker* b, AuthRequest* q, int seconds) noexcept nogil:
    """Postpone the deadline of a login that waits in the broker's own queue, so that the wait does not cause a refusal. Access
    checks and messages are not postponed: they stop a client that is already connected."""
    if (q.kind != ASK_CONNECT and q.kind != ASK_AUTH) or waiting_client(b, q) == NULL:
        return 0
    wheel_add(&b.wheel, &q.timer, b.reactor.now_ms + <uint64_t>seconds * 1000)
    return 1


cdef void auth_request_settle(Broker* b, AuthRequest* q, const AuthAnswer* a) noexcept nogil:
    """Apply an answer to any auth request except a login; a NULL = no answer came. Ends the auth request."""
    cdef Client* c = waiting_client(b, q)
    if q.kind == ASK_ACL:
        verdict_apply(b, q, c, a)
    elif q.kind == ASK_MESSAGE_IN and c != NULL:
        if q.epoch != b.access_epoch and c.session.security != NULL and not session_security(c.session).authorize:
            c.pending_packet.allowed = BY_RULES      # the rules have changed since the message came; a plugin's verdict stays
        publish_changed(b, c, a)
    elif q.kind == ASK_MESSAGE_OUT:
        delivery_changed(b, q, a)
    elif q.kind == ASK_CONTROL and c != NULL:
        pending_packet_resume(b, c)       # the packet is handled again
    auth_request_over(b, q)


cdef void auth_request_over(Broker* b, AuthRequest* q) noexcept nogil:
    """End an auth request. The deliveries that waited for it go on."""
    cdef Session* s = q.session
    auth_request_end(b, q)
    if s != NULL:
        if plugin_gate_waiting(s) and not s.flags & SESSION_ENDED:
            deliver_gated(b, s)
            jobs_unblock(b, s)
        session_release(b, s)


cdef void verdict_apply(Broker* b, AuthRequest* q, Client* c, const AuthAnswer* a) noexcept nogil:
    cdef Session* s = q.session if q.session != NULL else c.session if c != NULL else NULL
    cdef View topic
    cdef bint allowed = 0
    topic.p = q.bytes
    topic.n = q.n
    if s == NULL:
        return                   # its client is gone
    if a != NULL:                # without an answer it is denied, but the broker may ask again
        allowed = plugin_gate_settled(b, s, topic, q.access, a.verdict)
        if (q.session == NULL or q.turn == s.access_turn) and (
                q.purpose >= FOR_WILL or s.security == NULL or not session_security(s).each) and (
                q.access < ACL_SUBSCRIBE or s.security == NULL or not session_security(s).filters):
            plugin_gate_learn(b, s, topic, q.access, allowed)
    if q.purpose == FOR_PACKET and c != NULL:
        packet_answered(b, c, q, allowed, a)
    elif q.purpose == FOR_DELIVERY:
        plugin_gate_answered(b, q, allowed)
    elif q.purpose == FOR_WILL:
        will_answered(b, q, allowed)


cdef void delivery_changed(Broker* b, AuthRequest* q, const AuthAnswer* a) noexcept nogil:
    cdef Message* m = NULL
    if a != NULL and a.verdict > 0:
        m = message_new(&b.messages, a.text, a.extra if a.extra.p != NULL else q.message.props, a.bytes)
        if m != NULL:
            m.qos = a.qos
            m.retain = a.retain
            m.expires_ms = q.message.expires_ms
            m.source_hash = q.message.source_hash
            m.flags |= q.message.flags & MESSAGE_AGAIN
    plugin_gate_changed(b, q, m, a != NULL and a.verdict > 0)
    if m != NULL:
        message_unref(&b.messages, &b.reactor.buffers, m)


cdef void publish_for_control_plane(Broker* b, const AuthAnswer* a) noexcept nogil:
    """Publish a message of the control plane. No access rule applies to it, unless it is for one session."""
    cdef Publication p
    cdef Session* s
    publication_init(&p)
    p.topic = a.text
    p.payload = a.bytes
    p.props = a.extra
    p.qos = a.qos
    p.retain = a.retain and b.settings.retain_available
    p.shaped = p.payload.n < LEND_MIN_BYTES
    p.scope = SCOPE_LOCAL if a.here and b.links != NULL else 0
    if a.verdict:
        p.expires_ms = b.reactor.now_ms + <uint64_t>a.verdict * 1000
    if a.target.p != NULL:
        s = sessions_find(&b.sessions, a.target)
        if s != NULL:
            deliver(b, s, &p, p.qos, 0, NULL, 0)
        publication_fini(b, &p)
        return
    if p.retain:
        retain_put(b, &p)
    route(b, &p, NULL)
    publication_fini(b, &p)


cdef Client* waiting_client(Broker* b, AuthRequest* q) noexcept nogil:
    """Return the client that waits for this auth request; NULL = it is gone or is about to end."""
    cdef Client* c = auth_request_client(b, q)
    return c if c != NULL and c.pending_packet != NULL and c.state != C_ENDED and not c.flags & CF_DOOMED else NULL


cdef bint client_answered(Broker* b, AuthRequest* q, const AuthAnswer* a) noexcept nogil:
    cdef Client* c = waiting_client(b, q)
    if c == NULL:
        return 0
    auth_request_answered(b, q)
    if a.verdict == ASK_NATIVES:
        q.pause_checked = 1
        auth_request_send(b, q)
        return 1
    b.log.client = c
    if c.state == C_AUTHENTICATING:
        connect_answered(b, c, a)
    else:
        auth_answered(b, c, a)
    b.log.client = NULL
    b.log.connecting.p = NULL    # the name was a view into the packet that is done
    return 1


# ---------------------------------------------------------------- time-out

cdef inline AuthRequest* auth_request_of_timer(Timer* t) noexcept nogil:
    return <AuthRequest*>(<char*>t - <size_t>&(<AuthRequest*>NULL).timer)


cdef void auth_request_timer(Broker* b, Timer* t) noexcept nogil:
    cdef AuthRequest* q = auth_request_of_timer(t)
    b.stats.auth_request_timeouts += 1
    auth_request_answered(b, q)
    auth_request_unanswered(b, q)


cdef void auth_request_unanswered(Broker* b, AuthRequest* q) noexcept nogil:
    """Refuse, deny or drop, because there is no answer."""
    cdef Client* c
    if q.kind == ASK_CONNECT or q.kind == ASK_AUTH:
        c = waiting_client(b, q)
        if c == NULL:
            auth_request_end(b, q)
        elif c.state == C_AUTHENTICATING:
            connect_timed_out(b, c)
        else:
            auth_timed_out(b, c)
    else:
        auth_request_settle(b, q, NULL)


cdef void auth_requests_forget(Broker* b) noexcept nogil:
    cdef AuthRequest* q
    cdef Session* s
    cdef uint32_t i
    for i in range(auth_requests_end(b)):
        q = auth_requests_at(b, i)
        if q == NULL:
            continue
        s = q.session
        auth_request_end(b, q)
        if s != NULL:
            session_release(b, s)
