"""The lifecycle of clients and sessions. This module knows the moments at which a client or session begins to count and ends. It
does not know packets or where messages go.

    client:   C_NEW --CONNECT--> [C_AUTHENTICATING --answer-->] C_CONNECTED --any end--> C_ENDED
              --peer closed or LINGER_MS--> freed at the end of the turn
    session:  connected <--> offline (timer: will delay, then expiry) --> SESSION_ENDED --> freed
              before it is freed, in slices: shared deliveries go to other members, then its subscriptions are removed

Invariant: a session has at most one client. All ends go through client_end and session_end, so that one place handles the will,
the counters and the timers.
"""

from libc.stdint cimport uint8_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free
from libc.string cimport strlen

from cext.base.view cimport View
from cext.base.wheel cimport Timer, wheel_add, wheel_remove
from cext.broker.arrivals.wills cimport sent_will_again, sent_will_hold, sent_will_prepare
from cext.broker.auth.auth_requests cimport (
    ASK_ACL, AuthRequest, EVENT_DISCONNECTED, FOR_LATER, FOR_WILL, OFFLINE_BIT, auth_request_bytes, auth_request_end, auth_request_handle,
    auth_request_new, auth_request_send, client_auth_request_end, event_post,
)
from cext.broker.core.access cimport access_allows, session_names
from cext.broker.core.bounds cimport DROP_SLICE, LINGER_MS, WORK_END
from cext.broker.core.bridge_state cimport bridges_of
from cext.broker.core.broker cimport Broker
from cext.broker.core.client cimport (
    END_ERRNO, END_LOST, END_NORMAL, END_REFUSED, END_WITH_WILL, client_disconnect, log_ended, log_line, reason_text,
)
from cext.broker.core.client_state cimport CF_BRIDGE, CF_DOOMED, C_AUTHENTICATING, C_CONNECTED, C_ENDED, C_MOVING, C_NEW, C_RELAY, Client, Will
from cext.broker.core.durable cimport Durable, RestoredWill, durable_of
from cext.broker.core.job_state cimport JOB_DROP, Job
from cext.broker.core.link_state cimport links_of
from cext.broker.core.jobs cimport job_add, job_new, jobs_unblock
from cext.broker.core.listener cimport Security
from cext.broker.core.log cimport LOG_LINE_MAX, LOG_NOTICE, LOG_TRACE, LOG_WARNING, log_wanted
from cext.broker.core.newcomers cimport newcomer_leave, newcomers_resume
from cext.broker.core.pending_packet cimport pending_packet_free
from cext.broker.core.publication_state cimport Publication
from cext.broker.core.session_refs cimport session_security
from cext.broker.core.turn cimport turn_begin, turn_is_over
from cext.broker.core.stats cimport DROP_ACL_WRITE, DROP_MEMORY, DROP_SESSION_ENDED
from cext.broker.core.workers cimport relay_part
from cext.broker.links.own cimport own_online, own_routes_end
from cext.broker.persist.accounts cimport account_end, account_report
from cext.broker.persist.events cimport event_disconnected, event_expired
from cext.broker.persist.persist cimport (
    persist_session, persist_session_end, persist_waiting_will, persist_waiting_will_end, persist_will, persist_will_end,
)
from cext.broker.persist.publication cimport drop_unlogged, publication_fini, publication_of
from cext.broker.routing.deliver cimport deliver_gated
from cext.broker.routing.pump cimport session_clear
from cext.broker.routing.paged cimport memory_is_full, page_out_left
from cext.broker.routing.plugin_gate cimport plugin_gate_clear, plugin_gate_renew, plugin_gate_verdict
from cext.broker.routing.retain cimport retain_put
from cext.broker.routing.route cimport route
from cext.broker.routing.session_release cimport session_release
from cext.broker.routing.share cimport share_hand_over
from cext.broker.rules.acl cimport ACL_WRITE, topic_reserved
from cext.broker.trace.events cimport trace_closed
from cext.codec.reason cimport RC_KEEP_ALIVE_TIMEOUT, RC_SERVER_SHUTTING_DOWN
from cext.net.conn cimport conn_close, conn_finish
from cext.net.conn_state cimport CONN_CLOSED, CONN_PAUSED, Conn, conn_close_pending, conn_unsent
from cext.net.websocket cimport WS_GOING_AWAY
from cext.session.message cimport Message, message_unref
from cext.session.queue cimport queue_rewind
from cext.session.session cimport (
    EXPIRY_NEVER, SESSION_BRIDGE, SESSION_ENDED, SESSION_WILL_STORED, Session, sessions_remove, sessions_scan,
)
from cext.topic.index cimport index_remove_some

cdef enum:
    READY_AGAIN_MS = 50         # pause of a session's timer while the worker is not ready


# ---------------------------------------------------------------- wills

cdef void will_free(Broker* b, Will* w) noexcept nogil:
    if w != NULL:
        message_unref(&b.messages, &b.reactor.buffers, w.message)
        free(w)


cdef void will_publish(Broker* b, Message* m, Session* s) noexcept nogil:
    """Publish a will [v5 3.1.2-8, 3.1.2-14, 3.1.2-15], and record that. If a plugin must decide about it first, it waits with a record of
    its own: its session may end, or have another will, before the plugin decides. The caller keeps its reference."""
    cdef int allowed = will_verdict(b, m, s)
    if allowed >= 0:
        will_decided(b, m, s, allowed, s.store_session_id or s.flags & SESSION_WILL_STORED)
    elif not will_wait(b, m, s, 0):
        drop_unlogged(b, s, DROP_ACL_WRITE if b.stopping else DROP_MEMORY, m.topic)
    persist_will_end(b, s)


cdef int will_verdict(Broker* b, Message* m, Session* s) noexcept nogil:
    """Return whether the session may publish its will; -1 = a plugin must decide."""
    cdef Security* security = session_security(s)
    if security == NULL:
        return 1
    if topic_reserved(m.topic):
        return 0
    return plugin_gate_verdict(b, s, m.topic, ACL_WRITE) if security.authorize else access_allows(b, s, m.topic, ACL_WRITE)


cdef AuthRequest* will_request(Broker* b, Message* m, Session* s, int purpose) noexcept nogil:
    """Return a new request whether a will may be published; NULL = no memory."""
    cdef AuthRequest* q = auth_request_new(b, ASK_ACL, NULL, s, m)
    if q == NULL or auth_request_bytes(q, m.topic) != 0:
        if q != NULL:
            auth_request_end(b, q)
        return NULL
    q.purpose = <uint8_t>purpose
    q.access = ACL_WRITE
    q.qos = m.qos
    q.retain = m.retain
    return q


cdef bint will_wait(Broker* b, Message* m, Session* s, uint64_t number) noexcept nogil:
    """Ask plugins about a will. While the broker stops, no plugin can answer: the next start asks. `number`: that of its record; 0 = it has
    none. Returns 0 without memory for the request, or if nothing can keep the will until the next start."""
    cdef AuthRequest* q
    if b.stopping:
        return persist_waiting_will(b, s, m, number, 0) != 0
    q = will_request(b, m, s, FOR_WILL)
    if q == NULL:
        return 0
    q.waiting_will = persist_waiting_will(b, s, m, number, auth_request_handle(q))
    auth_request_send(b, q)
    return 1


cdef void will_ask_early(Broker* b, Message* m, Session* s) noexcept nogil:
    cdef AuthRequest* q = will_request(b, m, s, FOR_LATER) if will_verdict(b, m, s) < 0 else NULL
    if q != NULL:
        auth_request_send(b, q)


cdef void will_answered(Broker* b, AuthRequest* q, bint allowed) noexcept nogil:
    will_decided(b, q.message, q.session, allowed, q.waiting_will != 0)
    persist_waiting_will_end(b, q.waiting_will)


cdef void will_decided(Broker* b, Message* m, Session* s, bint allowed, bint stored) noexcept nogil:
    """stored: the will has a record, which the caller ends after this."""
    cdef Publication p
    if not allowed:
        drop_unlogged(b, s, DROP_ACL_WRITE, m.topic)
        return
    publication_of(&p, m)
    p.source = s
    if m.retain and b.settings.retain_available:
        retain_put(b, &p)
    sent_will_prepare(b, &p, stored)
    route(b, &p, NULL)
    sent_will_hold(b, &p)
    publication_fini(b, &p)


cdef void session_will(Broker* b, Session* s) noexcept nogil:
    cdef Message* m = s.will
    if m == NULL:
        return
    if m.expires_ms and s.will_due_ms > b.reactor.now_ms:
        m.expires_ms -= s.will_due_ms - b.reactor.now_ms     # the session ends before the delay: the interval begins now [v5 3.1.3.2.4]
    s.will = NULL
    s.will_due_ms = 0
    will_publish(b, m, s)
    message_unref(&b.messages, &b.reactor.buffers, m)


cdef void restored_will_serve(Broker* b, RestoredWill* w) noexcept nogil:
    """Decide about a will that waited for a plugin when the last process ended, under the rules in force."""
    cdef Session* s = w.session
    cdef Message* m = s.will
    cdef int allowed = 0 if w.sent else will_verdict(b, m, s)
    if w.sent:
        sent_will_again(b, w)
    s.will = NULL
    if w.sent:
        pass
    elif allowed >= 0:
        will_decided(b, m, s, allowed, 1)
        persist_waiting_will_end(b, w.number)
    elif not will_wait(b, m, s, w.number):
        drop_unlogged(b, s, DROP_MEMORY, m.topic)
    message_unref(&b.messages, &b.reactor.buffers, m)
    session_release(b, s)
    free(w)


cdef void restored_serve(void* ctx, Session* s) noexcept nogil:
    """Send the will of a restored session if it is due, and ask plugins again about deliveries that wait for them."""
    cdef Broker* b = <Broker*>ctx
    if s.plugin_gate != NULL and s.client == NULL and s.security != b.denied:      # otherwise when its client is there
        b.work += WORK_END
        plugin_gate_renew(b, s)
        deliver_gated(b, s)
    if s.flags & SESSION_WILL_STORED and s.client == NULL:
        b.work += WORK_END
        session_end(b, s)        # it stands for a client that was connected, and sends its will
    elif s.will != NULL and s.will_due_ms <= b.reactor.now_ms:
        b.work += WORK_END
        session_will(b, s)


cdef bint restored_wills_slice(Broker* b) noexcept nogil:
    cdef Durable* t = durable_of(b)
    cdef RestoredWill* w
    turn_begin(b)
    while t != NULL and t.restored_wills != NULL and b.jobs == NULL and not turn_is_over(b):
        w = t.restored_wills
        t.restored_wills = w.next
        b.work += WORK_END
        restored_will_serve(b, w)
    if t != NULL and t.restored_wills != NULL:
        return 1
    while b.wills_restored and b.jobs == NULL and not turn_is_over(b):       # one large fan-out after the other
        b.work += 1
        b.wills_cursor = sessions_scan(&b.sessions, b.wills_cursor, restored_serve, b)
        b.wills_restored = b.wills_cursor != 0
    if not b.wills_restored:
        newcomers_resume(b)
    return b.wills_restored


cdef inline bint will_delays(const Will* w, const Session* s) noexcept nogil:
    return w.delay_s != 0 and s.expiry_s != 0


cdef bint will_is_delayed(const Client* c) noexcept nogil:
    return c.will != NULL and will_delays(c.will, c.session)


cdef void will_send_now(Broker* b, Client* c) noexcept nogil:
    cdef Will* w = c.will
    if w == NULL:
        return
    c.will = NULL
    if w.has_expiry:
        w.message.expires_ms = b.reactor.now_ms + <uint64_t>w.expiry_s * 1000
    will_publish(b, w.message, c.session)
    will_free(b, w)


cdef void will_discard(Broker* b, Client* c) noexcept nogil:
    if c.will != NULL:
        will_free(b, c.will)
        c.will = NULL
        persist_will_end(b, c.session)


cdef void will_at_disconnect(Broker* b, Client* c, int reason) noexcept nogil:
    """Handle the will of a client that disconnected: discard it, send it, or leave it with the session until its delay is
    over."""
    cdef Will* w = c.will
    cdef Session* s = c.session
    cdef uint64_t start_ms
    if w == NULL:
        return
    c.will = NULL
    if reason != END_NORMAL:
        start_ms = b.reactor.now_ms
        if will_delays(w, s):
            s.will = w.message
            w.message.refs += 1
            s.will_due_ms = start_ms + <uint64_t>w.delay_s * 1000
            if w.has_expiry:
                w.message.expires_ms = s.will_due_ms + <uint64_t>w.expiry_s * 1000
            persist_will(b, s, w.message, w.delay_s, s.will_due_ms)
            will_free(b, w)
            return
        if w.has_expiry:
            w.message.expires_ms = start_ms + <uint64_t>w.expiry_s * 1000
        will_publish(b, w.message, s)
    else:
        persist_will_end(b, s)
    will_free(b, w)


# ---------------------------------------------------------------- clients

cdef bint was_lost(int reason) noexcept nogil:
    return reason == END_LOST or reason >= END_ERRNO


cdef bint closes_at_once(Conn* conn, int reason) noexcept nogil:
    """Return whether the socket can be closed at once, because there is nothing to send. A WebSocket sends Close first, also to a
    peer that has sent one or that broke the rules."""
    if was_lost(reason):
        return not (conn_close_pending(conn) and conn.web.over)
    return not conn_unsent(conn) and (reason == END_NORMAL or reason == END_WITH_WILL) and not conn_close_pending(conn)


cdef void plugin_notify_disconnected(Broker* b, Client* c, int reason) noexcept nogil:
    cdef View id, user, reason_view
    cdef const char* text = reason_text(reason)
    cdef Security* security = session_security(c.session)
    if security == NULL or not security.events:
        return
    session_names(c.session, &id, &user)
    reason_view.p = <const uint8_t*>text
    reason_view.n = <uint32_t>strlen(text) if text != NULL else 0
    event_post(b, c, EVENT_DISCONNECTED, id, user, reason_view, 2, <uint32_t>reason | <uint64_t>(c.session.expiry_s != 0) << OFFLINE_BIT)


cdef const char* end_text(int reason) noexcept nogil:
    if reason == END_REFUSED:
        return "refused"
    if reason == END_WITH_WILL:
        return "disconnected with will"
    return reason_text(reason)


cdef void client_end(Broker* b, Client* c, int reason) noexcept nogil:
    cdef uint8_t old_state = c.state
    if old_state == C_ENDED:
        conn_close(&b.reactor, &c.conn)
        return
    if old_state == C_CONNECTED:
        if 0x80 <= reason <= 0xFF:
            b.stats.protocol_disconnects += 1
            if c.flags & CF_BRIDGE:
                bridges_of(b).ops.disconnect(b, c, reason)
            else:
                client_disconnect(b, c, <uint8_t>reason)
        log_ended(b, c, reason)
        plugin_notify_disconnected(b, c, reason)
        event_disconnected(b, c, reason)
    elif old_state != C_RELAY:
        log_ended(b, c, reason)
        if 0x80 <= reason <= 0xFF:
            b.stats.protocol_disconnects += 1
    if log_wanted(&b.log, LOG_TRACE):
        trace_closed(b, c, end_text(reason))
    c.state = C_ENDED
    if old_state == C_RELAY:
        relay_part(b, c)
    newcomer_leave(b, c)
    wheel_remove(&b.wheel, &c.timer)
    client_auth_request_end(b, c)
    pending_packet_free(b, c)
    # the socket first: messages of the will and of the session's end must not go to it
    if closes_at_once(&c.conn, reason):
        conn_close(&b.reactor, &c.conn)
    else:
        if reason == RC_SERVER_SHUTTING_DOWN and c.conn.web != NULL:
            c.conn.web.close_status = WS_GOING_AWAY
        conn_finish(&b.reactor, &c.conn)
        wheel_add(&b.wheel, &c.timer, b.reactor.now_ms + LINGER_MS)
    if old_state == C_CONNECTED:
        client_detach(b, c, reason)
    if c.flags & CF_BRIDGE:
        bridges_of(b).ops.ended(b, c, reason)


cdef void client_detach(Broker* b, Client* c, int reason) noexcept nogil:
    cdef Session* s = c.session
    b.stats.clients_connected -= 1
    own_online(b, s, -1)
    s.client = NULL
    if <int>(s.queue.next - s.unsent) > 0:
        s.unsent = s.queue.next          # an earlier connection may have sent more than this one
    queue_rewind(&s.queue)
    jobs_unblock(b, s)
    will_at_disconnect(b, c, reason)
    c.session = NULL
    if s.expiry_s == 0:
        session_end(b, s)
        return
    s.ends_ms = 0 if s.expiry_s == EXPIRY_NEVER else b.reactor.now_ms + <uint64_t>s.expiry_s * 1000
    persist_session(b, s)
    account_report(b, s)
    session_watch(b, s)
    if s.store_session_id and memory_is_full(b):
        page_out_left(b, s)


cdef void end_doomed_clients(Broker* b) noexcept nogil:
    cdef Client* c
    cdef bint one = 1            # at least one per call
    while b.doomed != NULL and (one or not turn_is_over(b)):
        one = 0
        b.work += WORK_END
        c = b.doomed
        b.doomed = c.doomed_next
        c.doomed_next = NULL
        c.flags &= ~<uint8_t>CF_DOOMED
        if not c.conn.flags & CONN_CLOSED:
            client_end(b, c, c.doom_reason)


cdef void client_watch(Broker* b, Client* c) noexcept nogil:
    """Arm the keepalive timer at one and a half times the keepalive [v5 3.1.2-22]; without a keepalive there is no timer."""
    if c.keepalive_s:
        wheel_add(&b.wheel, &c.timer, c.conn.rx_ms + <uint64_t>c.keepalive_s * 1500)
    else:
        wheel_remove(&b.wheel, &c.timer)


cdef inline Client* client_of_timer(Timer* t) noexcept nogil:
    return <Client*>(<uint8_t*>t - <size_t>&(<Client*>NULL).timer)


cdef inline Session* session_of_timer(Timer* t) noexcept nogil:
    return <Session*>(<uint8_t*>t - <size_t>&(<Session*>NULL).timer)


cdef void client_timer_fired(Broker* b, Timer* t) noexcept nogil:
    cdef Client* c = client_of_timer(t)
    if c.state == C_ENDED:
        conn_close(&b.reactor, &c.conn)      # the peer had its time to read the last packets
    elif c.flags & CF_BRIDGE:
        bridges_of(b).ops.client_timer(b, c)
    elif c.state == C_NEW or c.state == C_AUTHENTICATING or c.state == C_MOVING:
        client_end(b, c, RC_KEEP_ALIVE_TIMEOUT)
    elif c.conn.flags & CONN_PAUSED:
        c.conn.rx_ms = b.reactor.now_ms          # the broker itself does not read from this client
        client_watch(b, c)
    elif c.conn.rx_ms + <uint64_t>c.keepalive_s * 1500 > b.reactor.now_ms:
        client_watch(b, c)       # data has come since: a read only notes the time
    else:
        client_end(b, c, RC_KEEP_ALIVE_TIMEOUT)


# ---------------------------------------------------------------- sessions

cdef void session_watch(Broker* b, Session* s) noexcept nogil:
    cdef uint64_t due_ms = s.ends_ms
    if s.will != NULL and (due_ms == 0 or s.will_due_ms < due_ms):
        due_ms = s.will_due_ms
    if due_ms:
        wheel_add(&b.wheel, &s.timer, due_ms)


cdef void session_timer_fired(Broker* b, Timer* t) noexcept nogil:
    cdef Session* s = session_of_timer(t)
    if b.links != NULL and not links_of(b).ready:        # it does not know yet which workers have subscribers of the will
        wheel_add(&b.wheel, t, b.reactor.now_ms + READY_AGAIN_MS)
        return
    if not session_due(b, s):
        session_watch(b, s)


cdef bint session_due(Broker* b, Session* s) noexcept nogil:
    """Send the will of an offline session if it is due, and end the session if it has expired [v5 3.1.2-23]. Return whether it has ended."""
    if s.will != NULL and s.will_due_ms <= b.reactor.now_ms:
        session_will(b, s)
    if s.ends_ms == 0 or s.ends_ms > b.reactor.now_ms:
        return 0
    if log_wanted(&b.log, LOG_NOTICE):
        log_line(b, LOG_NOTICE, snprintf(b.log.line, LOG_LINE_MAX, "Expiring client %.*s due to timeout.",
                                         <int>s.id_len, <const char*>s.client_id))
    if s.flags & SESSION_BRIDGE and s.queue.pending and log_wanted(&b.log, LOG_WARNING):
        log_line(b, LOG_WARNING, snprintf(
            b.log.line, LOG_LINE_MAX,
            "Warning: No bridge has the client id %.*s any more: %u messages that waited for it are lost.",
            <int>s.id_len, <const char*>s.client_id, s.queue.pending))
    b.stats.clients_expired += 1
    event_expired(b, s)
    session_end(b, s)
    return 1


cdef bint session_connect(Broker* b, Session* s, Client* c) noexcept nogil:
    cdef bint had_will = s.will != NULL
    wheel_remove(&b.wheel, &s.timer)
    s.ends_ms = 0
    if had_will:
        message_unref(&b.messages, &b.reactor.buffers, s.will)
        s.will = NULL
        s.will_due_ms = 0
    s.client = c
    c.session = s
    return had_will


cdef void session_attach(Broker* b, Session* s, Client* c) noexcept nogil:
    if session_connect(b, s, c):
        persist_will_end(b, s)
    own_online(b, s, 1)


cdef void session_end(Broker* b, Session* s) noexcept nogil:
    cdef Job* j
    sessions_remove(&b.sessions, s)
    wheel_remove(&b.wheel, &s.timer)
    s.jobs += 1                  # the will may start jobs of its own
    session_will(b, s)
    s.jobs -= 1
    if s.n_shares == 0:
        persist_session_end(b, s)
    s.flags |= SESSION_ENDED
    jobs_unblock(b, s)           # a replay sees that its session has ended
    if not cleanup_slice(b, s):
        j = job_new(b, JOB_DROP, NULL)
        if j != NULL:
            j.session = s
            s.jobs += 1
            job_add(b, j)
            return
        while not cleanup_slice(b, s):
            pass                 # no memory for a job: all at once
    session_release(b, s)


cdef bint cleanup_slice(Broker* b, Session* s) noexcept nogil:
    """Run one cleanup slice of an ended session. Returns 1 when all is done. At a shutdown no other member is left, so nothing is
    handed over."""
    if s.n_shares and not b.stopping and not share_hand_over(b, s, DROP_SLICE):
        return 0
    if s.n_shares:
        persist_session_end(b, s)  # the deliveries that were handed over are recorded
        s.n_shares = 0
    session_clear(b, s, DROP_SESSION_ENDED)
    plugin_gate_clear(b, s)
    account_end(b, s)
    own_routes_end(b, s, DROP_SLICE)
    return index_remove_some(b.index, &s.owner, DROP_SLICE) < DROP_SLICE or s.owner.head == NULL


cdef bint drop_slice(Broker* b, Job* j) noexcept nogil:
    return cleanup_slice(b, j.session)
