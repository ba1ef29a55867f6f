"""The session of a CONNECT: limits, keepalive, will, take-over, expiry. This module knows sessions and their records. It does not
know the login.
"""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy, strlen

from cext.base.view cimport View
from cext.broker.core.access cimport session_mounted_at
from cext.broker.core.broker cimport Broker
from cext.broker.core.client cimport log_line, peer_line_wanted
from cext.broker.core.client_state cimport CF_TRUSTED, Client, TIMER_SESSION, Will
from cext.broker.core.durable cimport durable_refuses
from cext.broker.core.log cimport LOG_LINE_MAX, LOG_NOTICE
from cext.broker.core.log_rate cimport LINE_CONNECTED
from cext.broker.core.session_refs cimport session_client, session_security
from cext.broker.core.settings cimport TAKEOVER_WILL_ALL, TAKEOVER_WILL_V5
from cext.broker.core.stats cimport REFUSED_CLIENTS, REFUSED_DISK, REFUSED_MEMORY
from cext.broker.core.workers cimport others_sessions
from cext.broker.lifecycle.session_lifecycle cimport client_end, session_attach, session_due, session_end, will_discard, will_free
from cext.broker.packets.connack cimport connect_refuse, connect_refuse_5, log_refusal
from cext.broker.packets.connect_state cimport Connecting
from cext.broker.persist.persist cimport persist_client_will, persist_reserve, persist_session, store_session_id_reserve
from cext.broker.persist.publication cimport memory_reserve, memory_short
from cext.broker.routing.plugin_gate cimport plugin_gate_renew
from cext.codec.decode cimport Connect
from cext.codec.frame cimport V5
from cext.codec.properties cimport (
    P_MESSAGE_EXPIRY, P_SESSION_EXPIRY, P_WILL_DELAY, props_forward_put, props_forward_size, props_has,
)
from cext.codec.reason cimport (
    CONNACK3_IDENTIFIER_REJECTED, CONNACK3_SERVER_UNAVAILABLE, RC_CLIENTID_NOT_VALID, RC_QUOTA_EXCEEDED, RC_SERVER_BUSY,
    RC_SESSION_TAKEN_OVER,
)
from cext.session.message cimport RECORD_ROOM, message_new
from cext.session.queue cimport inbox_inherit
from cext.session.session cimport (
    EXPIRY_NEVER, SESSION_BRIDGE, SESSION_ORIGIN_UNKNOWN, SESSION_RECHECK, SESSION_STRANGER, SESSION_TRUSTED, Session, session_new, session_text, sessions_add,
    sessions_find,
)


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


cdef bint same_user(const Session* s, Connect* p) noexcept nogil:
    if s.username == NULL or not p.has_username:
        return s.username == NULL and not p.has_username
    return strlen(s.username) == p.username.n and memcmp(s.username, p.username.p, p.username.n) == 0


cdef const char* mismatch_of(const Session* s, const Client* c, Connect* p) noexcept nogil:
    """Return why the session must not go to this client; NULL = it may. Its filters and queued topics begin with the mount point of the listener
    where it began, and the rules of its user decided about them. A session of unknown origin goes to the first client that resumes it."""
    if s.flags & SESSION_ORIGIN_UNKNOWN:
        return NULL
    if not same_user(s, p):
        return "it belongs to another user name"
    if not session_mounted_at(s, c.listener):
        return "it belongs to another mount point"
    return NULL


cdef bint session_reserve(Broker* b, Client* c, Connect* p, Session* existing) noexcept nogil:
    """Reserve the records of all changes of this CONNECT: its session and will, and the end of an existing session. Returns 0 if
    there is no memory."""
    cdef uint64_t bytes = 2 * RECORD_ROOM + <uint64_t>p.client_id.n + p.username.n + c.listener.mount_point.n
    if p.will:
        bytes += <uint64_t>p.will_topic.n + p.will_payload.n + p.will_props.raw.n
    if existing != NULL:
        bytes += RECORD_ROOM + <uint64_t>existing.id_len + (strlen(existing.username) if existing.username != NULL else 0)
    return store_session_id_reserve(b) and persist_reserve(b, NULL, bytes)


cdef int check_limits(Broker* b, Client* c, Connect* p) noexcept nogil:
    cdef Session* existing = sessions_find(&b.sessions, p.client_id)
    if existing != NULL and existing.flags & SESSION_BRIDGE:
        log_refusal(b, c, "client identifier of a bridge")
        return connect_refuse(b, c, RC_CLIENTID_NOT_VALID, CONNACK3_IDENTIFIER_REJECTED)
    if c.flags & CF_TRUSTED:
        return 0
    if existing == NULL and b.settings.global_max_clients >= 0 and (
            b.sessions.count + others_sessions(b) >= <uint64_t>b.settings.global_max_clients):
        b.stats.refused[REFUSED_CLIENTS] += 1
        log_refusal(b, c, "global_max_clients exceeded")
        return connect_refuse_5(b, c, RC_SERVER_BUSY)
    if existing == NULL and memory_short(b, memory_reserve(b)):
        b.stats.refused[REFUSED_MEMORY] += 1
        log_refusal(b, c, "memory_limit reached")
        return connect_refuse(b, c, RC_QUOTA_EXCEEDED, CONNACK3_SERVER_UNAVAILABLE)
    if b.durable != NULL and (expiry_of(b, p) or (existing != NULL and existing.store_session_id)):
        if durable_refuses(b) and (existing == NULL or p.clean_start or mismatch_of(existing, c, p) != NULL):
            b.stats.refused[REFUSED_DISK] += 1
            log_refusal(b, c, "the session cannot be persisted: the disk is full or fails")
            return connect_refuse(b, c, RC_QUOTA_EXCEEDED, CONNACK3_SERVER_UNAVAILABLE)
        if not session_reserve(b, c, p, existing):
            b.stats.refused[REFUSED_MEMORY] += 1
            log_refusal(b, c, "no memory to persist the session")
            return connect_refuse(b, c, RC_QUOTA_EXCEEDED, CONNACK3_SERVER_UNAVAILABLE)
    return 0


cdef int check_keepalive(Broker* b, Client* c, Connecting* k) noexcept nogil:
    cdef uint32_t max_s = b.settings.max_keepalive_s
    c.keepalive_s = k.packet.keepalive
    if max_s == 0 or c.flags & CF_TRUSTED or (k.packet.keepalive != 0 and k.packet.keepalive <= max_s):
        return 0
    if c.version != V5:          # 3.x cannot inform the client of another value
        log_refusal(b, c, "keepalive over max_keepalive")
        return connect_refuse(b, c, 0, CONNACK3_IDENTIFIER_REJECTED)
    c.keepalive_s = <uint16_t>max_s
    k.connack.has_server_keep_alive = 1  # [v5 3.2.2-21]
    k.connack.server_keep_alive = <uint16_t>max_s
    return 0


cdef void expiry_announce(Broker* b, Connecting* k) noexcept nogil:
    cdef uint32_t expiry_s = expiry_of(b, &k.packet)
    if props_has_expiry(&k.packet) and expiry_s < k.packet.props.session_expiry:
        k.connack.has_session_expiry = 1         # [v5 3.2.2.3.2] less than the client requested
        k.connack.session_expiry = expiry_s


cdef int will_take(Broker* b, Client* c, Connect* p) noexcept nogil:
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


cdef void queue_recheck_begin(Session* s, Connect* p) noexcept nogil:
    """Mark queued deliveries for a check of the rules, as in Mosquitto: the rules may be other ones now."""
    s.flags &= ~<uint32_t>(SESSION_RECHECK | SESSION_STRANGER)
    if s.security != NULL and session_security(s).guards and s.queue.pending:
        s.flags |= SESSION_RECHECK
        if not same_user(s, p):      # only with an unknown origin
            s.flags |= SESSION_STRANGER


cdef int origin_set(Session* s, const Client* c, Connect* p) noexcept nogil:
    """Let the session remember its user name and its mount point. Returns -1 if there is no memory."""
    cdef View mount = c.listener.mount_point
    if not same_user(s, p) and username_set(s, p) != 0:
        return -1
    if not session_mounted_at(s, c.listener):
        free(s.mount_point)
        s.mount_point = session_text(mount) if mount.n else NULL
        if mount.n and s.mount_point == NULL:
            return -1
    s.flags &= ~<uint32_t>SESSION_ORIGIN_UNKNOWN
    return 0


cdef int username_set(Session* s, Connect* p) noexcept nogil:
    free(s.username)
    s.username = session_text(p.username) if p.has_username else NULL
    return -1 if p.has_username and s.username == NULL else 0


cdef bint will_sent_at_takeover(const Broker* b, const Client* c) noexcept nogil:
    """Return whether the will of a client is sent when a new connection takes over its session and continues it. The client is
    still there in the eyes of its users: Mosquitto sends no will. [v5 3.1.4-3] asks for it, and [v3.1.1 3.1.2-8] can be read so."""
    if b.settings.takeover_will == TAKEOVER_WILL_V5:
        return c.version == V5
    return b.settings.takeover_will == TAKEOVER_WILL_ALL


cdef Session* session_for(Broker* b, Client* c, Connect* p, uint8_t* present) noexcept nogil:
    """Return the session of this client id [v5 3.1.2-4..6, 3.1.4-3]; a connection that has it is taken over. NULL = no memory.
    *present is set to 1 if the session existed."""
    cdef Session* s = sessions_find(&b.sessions, p.client_id)
    if s != NULL and s.client != NULL:
        if not p.clean_start and s.expiry_s and not will_sent_at_takeover(b, session_client(s)):
            will_discard(b, session_client(s))
        client_end(b, session_client(s), RC_SESSION_TAKEN_OVER)
        s = sessions_find(&b.sessions, p.client_id)
    elif s != NULL and session_due(b, s):
        s = NULL                 # its timer waits for the links, as this CONNECT did
    if s != NULL and not p.clean_start and mismatch_of(s, c, p) != NULL:
        if peer_line_wanted(b, c, LOG_NOTICE, LINE_CONNECTED):
            log_line(b, LOG_NOTICE, snprintf(b.log.line, LOG_LINE_MAX, "The stored session of client %.*s is discarded: %s. %u messages were queued.",
                                             <int>s.id_len, <const char*>s.client_id, mismatch_of(s, c, p), s.queue.pending))
        session_end(b, s)
        s = NULL
    elif s != NULL and p.clean_start:
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
    s.origin = c.listener.origin
    s.access_epoch = b.access_epoch - 1      # forces a check: the session may have another user now
    if c.flags & CF_TRUSTED:
        s.flags |= SESSION_TRUSTED
        s.security = NULL
        s.origin = 0
    return s


cdef Session* session_take(Broker* b, Client* c, Connecting* k) noexcept nogil:
    cdef Session* s = session_for(b, c, &k.packet, &k.connack.session_present)
    if s != NULL:
        queue_recheck_begin(s, &k.packet)
        if origin_set(s, c, &k.packet) == 0:
            return s
    will_free(b, c.will)
    c.will = NULL
    if s != NULL and not k.connack.session_present:
        session_end(b, s)
    k.connack.session_present = 0
    return NULL


cdef void session_begin(Broker* b, Client* c, Session* s, Connecting* k) noexcept nogil:
    session_attach(b, s, c)
    s.access_turn += 1
    inbox_inherit(&s.inbox)
    plugin_gate_renew(b, s)
    s.expiry_s = expiry_of(b, &k.packet)
    persist_session(b, s)
    if c.will != NULL:
        persist_client_will(b, s, c.will)
