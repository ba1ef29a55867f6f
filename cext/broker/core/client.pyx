"""Take clients from the pool, send them small packets, log about them, and mark them for their end. This module knows connections and small
packets. It does not know the content of sessions.

Invariant: no function frees or ends a client during other work. client_doom puts it into a list that the loop works off before the flush, so a
fan-out may fail on one client and continue with the next.
"""

from libc.errno cimport ECONNRESET, EPIPE
from libc.stdint cimport uint8_t, uint16_t, uint32_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free
from libc.string cimport memset, strerror, strlen, strncmp

from cext.base.slab cimport slab_give, slab_take
from cext.base.view cimport View
from cext.base.wheel cimport timer_armed, wheel_add, wheel_remove
from cext.broker.core.bridge_state cimport bridge_of
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport (
    AliasOut, AliasSlot, Aliases, CF_BRIDGE, CF_DOOMED, CF_REMOTE_BRIDGE, C_ENDED, C_NEW, Client, TIMER_CLIENT,
    TIMER_DENIED, TIMER_LOG_RATES,
)
from cext.broker.core.log cimport LOG_DEBUG, LOG_LINE_MAX, LOG_NOTICE, LOG_TRACE, LogAbout, log_push, log_push_about, log_wanted
from cext.broker.core.log_rate cimport (
    LINE_ACCEPTED, LINE_CONNECTED, LINE_DENIED, LINE_ENDED, LINE_KINDS, LINE_PROTOCOL, LINE_REFUSED, LOG_RATE_SETS, LOG_RATE_WAYS,
    LOG_RATE_WINDOW_S, LogRate, LogRates, log_rate_count, log_rate_mask, log_rates_clear, log_rates_new,
)
from cext.broker.core.pending_packet cimport method_of, names_free, path_of
from cext.codec.encode cimport ACK_SIZE_MAX, DISCONNECT_SIZE_MAX, auth_size, disconnect_elsewhere_size, encode_ack, encode_auth, encode_disconnect, encode_disconnect_elsewhere
from cext.codec.frame cimport (
    T_AUTH, T_CONNACK, T_DISCONNECT, T_PINGREQ, T_PINGRESP, T_PUBACK, T_PUBCOMP, T_PUBREC, T_PUBREL, T_SUBACK, T_SUBSCRIBE,
    T_UNSUBACK, T_UNSUBSCRIBE, V311, V5,
)
from cext.codec.reason cimport (
    RC_ADMINISTRATIVE_ACTION, RC_BAD_AUTHENTICATION_METHOD, RC_BAD_USERNAME_OR_PASSWORD, RC_KEEP_ALIVE_TIMEOUT, RC_MALFORMED,
    RC_BANNED, RC_CONNECTION_RATE_EXCEEDED, RC_NOT_AUTHORIZED, RC_PACKET_TOO_LARGE, RC_QOS_NOT_SUPPORTED, RC_QUOTA_EXCEEDED, RC_RECEIVE_MAXIMUM_EXCEEDED,
    RC_RETAIN_NOT_SUPPORTED, RC_SERVER_BUSY, RC_SERVER_SHUTTING_DOWN, RC_SERVER_UNAVAILABLE, RC_SESSION_TAKEN_OVER,
    RC_TOPIC_ALIAS_INVALID, RC_TOPIC_FILTER_INVALID, RC_TOPIC_NAME_INVALID, RC_UNSUPPORTED_PROTOCOL_VERSION,
)
from cext.net.conn_output cimport conn_room, conn_wrote
from cext.net.conn_state cimport Address, CONN_CLOSED, CONN_CLOSING, PROXY_ITSELF
from cext.net.upgrade cimport WRONG_ORIGIN, upgrade_wrong_text

cdef extern from "<arpa/inet.h>" nogil:
    const char* inet_ntop(int family, const void* a, char* out, unsigned int n)
    int AF_INET, AF_INET6, AF_UNIX


# ---------------------------------------------------------------- the pool

cdef Client* client_take(Broker* b) noexcept nogil:
    cdef Client* c = <Client*>slab_take(&b.clients)
    if c == NULL:
        return NULL
    c.timer.kind = TIMER_CLIENT
    c.conn.fd = -1
    c.version = V311             # until CONNECT
    return c


cdef void client_give(Broker* b, Client* c) noexcept nogil:
    wheel_remove(&b.wheel, &c.timer)
    aliases_free(c)
    names_free(c)
    slab_give(&b.clients, c)


cdef void client_doom(Broker* b, Client* c, int reason) noexcept nogil:
    if c.flags & CF_DOOMED or (c.state == C_ENDED and reason != END_LOST and reason < END_ERRNO):
        return
    c.flags |= CF_DOOMED
    c.doom_reason = <uint16_t>reason
    c.doomed_next = b.doomed
    b.doomed = c


cdef Aliases* aliases_of(Client* c) noexcept nogil:
    if c.aliases == NULL:
        c.aliases = <Aliases*>calloc(1, sizeof(Aliases))
    return c.aliases


cdef void aliases_begin(Client* c, uint16_t most) noexcept nogil:
    cdef uint32_t slots = 4
    cdef AliasOut* a
    if most == 0 or aliases_of(c) == NULL:
        return                   # without aliases, but otherwise normal
    a = &c.aliases.given
    a.max = most
    while slots < <uint32_t>a.max * 2:
        slots *= 2
    a.mask = slots - 1
    a.slots = <AliasSlot*>calloc(slots, sizeof(AliasSlot))


cdef void aliases_free(Client* c) noexcept nogil:
    cdef Aliases* a = c.aliases
    cdef uint32_t i
    if a == NULL:
        return
    if a.taken != NULL:
        for i in range(c.alias_max_in):
            free(a.taken[i].topic)
        free(a.taken)
    if a.given.slots != NULL:
        for i in range(a.given.mask + 1):
            free(a.given.slots[i].topic)
        free(a.given.slots)
    free(a)
    c.aliases = NULL


cdef View client_id_of(Client* c) noexcept nogil:
    cdef View v
    if c.session != NULL:
        v.p = c.session.client_id
        v.n = c.session.id_len
    else:
        v.p = <const uint8_t*>b""
        v.n = 0
    return v


cdef View username_of(Client* c) noexcept nogil:
    cdef View v
    v.p = NULL
    v.n = 0
    if c.session != NULL and c.session.username != NULL:
        v.p = <const uint8_t*>c.session.username
        v.n = <uint32_t>strlen(c.session.username)
    return v


# ---------------------------------------------------------------- small packets

cdef uint8_t* client_room(Broker* b, Client* c, uint32_t n) noexcept nogil:
    cdef uint8_t* p
    if c.conn.flags & (CONN_CLOSED | CONN_CLOSING):
        return NULL
    p = conn_room(&b.reactor, &c.conn, n)
    if p == NULL:
        client_doom(b, c, RC_QUOTA_EXCEEDED)
    return p


cdef void client_wrote(Broker* b, Client* c, uint8_t* end, uint8_t* start) noexcept nogil:
    conn_wrote(&b.reactor, &c.conn, <uint32_t>(end - start))
    b.stats.messages_out += 1
    if log_wanted(&b.log, LOG_TRACE):
        b.trace.sent(b, c, start, <uint32_t>(end - start))


cdef void client_ack(Broker* b, Client* c, int packet_type, uint16_t pid, uint8_t rc) noexcept nogil:
    cdef uint8_t* p = client_room(b, c, ACK_SIZE_MAX)
    cdef uint32_t n
    if p == NULL:
        return
    n = <uint32_t>(encode_ack(p, packet_type, c.version, pid, rc) - p)
    conn_wrote(&b.reactor, &c.conn, n)
    b.stats.messages_out += 1
    if log_wanted(&b.log, LOG_DEBUG | LOG_TRACE):
        if log_wanted(&b.log, LOG_TRACE):
            b.trace.sent(b, c, p, n)
        if log_wanted(&b.log, LOG_DEBUG):
            log_packet(b, c, "Sending", packet_type, pid, rc)


cdef void client_disconnect(Broker* b, Client* c, uint8_t rc) noexcept nogil:
    cdef uint8_t* p
    cdef uint32_t n = DISCONNECT_SIZE_MAX
    cdef View reference
    memset(&reference, 0, sizeof(reference))
    if c.version != V5:
        return
    if rc == RC_SERVER_SHUTTING_DOWN and b.moves:
        n = disconnect_elsewhere_size(b.settings.server_reference)
        if c.packet_max == 0 or n <= c.packet_max:              # [v5 3.1.2-24]
            reference = b.settings.server_reference
    p = client_room(b, c, n)
    if p == NULL:
        return
    if rc == RC_SERVER_SHUTTING_DOWN and b.moves:
        client_wrote(b, c, encode_disconnect_elsewhere(p, reference), p)
    else:
        client_wrote(b, c, encode_disconnect(p, rc), p)


cdef void auth_send(Broker* b, Client* c, uint8_t rc, View data) noexcept nogil:
    cdef uint8_t* p
    cdef View method = method_of(c)
    p = client_room(b, c, auth_size(method, data))
    if p == NULL:
        return
    client_wrote(b, c, encode_auth(p, rc, method, data), p)
    if log_wanted(&b.log, LOG_DEBUG):
        log_packet(b, c, "Sending", T_AUTH, -1, -1)


# ---------------------------------------------------------------- log lines

cdef int address_text(const Address* a, char* out, uint32_t n) noexcept nogil:
    if (a.family == AF_INET or a.family == AF_INET6) and inet_ntop(a.family, a.ip, out, n) != NULL:
        return <int>strlen(out)
    return snprintf(out, n, "%s", <const char*>b"")


cdef int client_address(const Client* c, char* out, uint32_t n) noexcept nogil:
    cdef View path = path_of(c)
    if path.p == NULL:
        return address_text(&c.conn.address, out, n)
    snprintf(out, n, "%.*s", <int>path.n, <const char*>path.p)
    return <int>strlen(out)


cdef void log_text(Broker* b, uint32_t type, const char* text) noexcept nogil:
    if log_wanted(&b.log, type):
        log_put(b, type, text, <int>strlen(text))


cdef void log_line(Broker* b, uint32_t type, int n) noexcept nogil:
    log_put(b, type, b.log.line, n if n < LOG_LINE_MAX else LOG_LINE_MAX - 1)


cdef void log_line_of(Broker* b, Client* c, uint32_t type, int n) noexcept nogil:
    cdef void* before = b.log.client
    b.log.client = c
    log_line(b, type, n)
    b.log.client = before


cdef void log_put(Broker* b, uint32_t type, const char* text, int n) noexcept nogil:
    cdef char where[ADDRESS_TEXT_MAX]
    cdef LogAbout about
    cdef View id
    cdef Client* c = <Client*>b.log.client
    if not b.log.json:
        log_push(&b.log, type, b.reactor.now_s, text, n)
        return
    memset(&about, 0, sizeof(about))
    id.p = NULL
    if c != NULL:
        id = client_id_of(c)
        about.id_n = <uint16_t>id.n
        about.port = c.conn.address.port
        about.listener = <uint16_t>c.listener.port
        about.address_n = <uint16_t>client_address(c, where, sizeof(where))
    log_push_about(&b.log, type, text, n, &about, id.p, where)


cdef void log_connected(Broker* b, Client* c, bint clean, int keepalive_s) noexcept nogil:
    cdef char where[ADDRESS_TEXT_MAX]
    cdef View id = client_id_of(c)
    cdef View user = username_of(c)
    cdef uint32_t type = LOG_DEBUG if c.conn.address.by_proxy == PROXY_ITSELF else LOG_NOTICE
    if not b.settings.connection_messages or not peer_line_wanted(b, c, type, LINE_CONNECTED):
        return
    client_address(c, where, sizeof(where))
    log_line_of(b, c, type, snprintf(
        b.log.line, LOG_LINE_MAX, "New %s connected from %s:%d as %.*s (p%d, c%d, k%d%s%.*s%s).",
        <const char*>b"bridge" if c.flags & CF_REMOTE_BRIDGE else <const char*>b"client", where, <int>c.conn.address.port,
        <int>id.n, <const char*>id.p, <int>c.version, <int>clean, keepalive_s,
        <const char*>b", u'" if user.p != NULL else <const char*>b"", <int>user.n,
        <const char*>user.p if user.p != NULL else <const char*>b"", <const char*>b"'" if user.p != NULL else <const char*>b""))


cdef bint was_closed(int reason) noexcept nogil:
    return reason == END_LOST or reason == END_ERRNO + ECONNRESET or reason == END_ERRNO + EPIPE


cdef const char* reason_text(int reason) noexcept nogil:
    """Return why a client ended; NULL for a normal end. The texts are Mosquitto's."""
    if reason == END_NORMAL or reason == END_WITH_WILL:
        return NULL
    if was_closed(reason):
        return "connection closed by client"
    if reason >= END_ERRNO:
        return strerror(reason - END_ERRNO)
    if reason == END_UPGRADE + WRONG_ORIGIN:
        return "non-matching http origin"
    if reason > END_UPGRADE:
        return upgrade_wrong_text(reason - END_UPGRADE)
    if reason == RC_KEEP_ALIVE_TIMEOUT:
        return "exceeded timeout"
    if reason == RC_SESSION_TAKEN_OVER:
        return "session taken over"
    if reason == RC_NOT_AUTHORIZED:
        return "not authorised"
    if reason == RC_MALFORMED:
        return "malformed packet"
    if reason == RC_PACKET_TOO_LARGE:
        return "oversize packet"
    if reason == RC_ADMINISTRATIVE_ACTION:
        return "administrative action"
    if reason == RC_SERVER_SHUTTING_DOWN:
        return "server shutting down"
    if reason == RC_RECEIVE_MAXIMUM_EXCEEDED:
        return "receive maximum exceeded"
    if reason == RC_TOPIC_ALIAS_INVALID:
        return "topic alias invalid"
    if reason == RC_TOPIC_NAME_INVALID:
        return "topic name invalid"
    if reason == RC_TOPIC_FILTER_INVALID:
        return "topic filter invalid"
    if reason == RC_QOS_NOT_SUPPORTED:
        return "bad socket read/write: Requested QoS not supported on server"
    if reason == RC_RETAIN_NOT_SUPPORTED:
        return "bad socket read/write: Retain not supported"
    if reason == RC_QUOTA_EXCEEDED:
        return "quota exceeded"
    return "protocol error"


cdef const char* refusal_text(uint8_t rc) noexcept nogil:
    """Return why a CONNECT was refused, for the reason code that a v5 client receives."""
    if rc == RC_UNSUPPORTED_PROTOCOL_VERSION or rc == RC_BAD_AUTHENTICATION_METHOD or rc == RC_QOS_NOT_SUPPORTED or rc == RC_RETAIN_NOT_SUPPORTED:
        return "used disallowed feature (QoS too high, retain not supported, or bad AUTH method)"
    # scanners of logs that ban an address look for these words
    if rc == RC_BAD_USERNAME_OR_PASSWORD or rc == RC_CONNECTION_RATE_EXCEEDED or rc == RC_BANNED:
        return "not authorised"
    if rc == RC_PACKET_TOO_LARGE:
        return "oversize payload"
    if rc == RC_SERVER_UNAVAILABLE:
        return "server unavailable"
    if rc == RC_SERVER_BUSY:
        return "server busy"
    if rc == 0:
        return "bad socket read/write: Invalid input"    # 3.x, keepalive
    return reason_text(rc)


cdef bint is_health_check(Broker* b, const Client* c, int reason) noexcept nogil:
    """Return whether a connection that ends was only a check by a load balancer: no byte came on it, or the proxy itself was the
    client. An end for another reason than that the client has closed it may be trouble."""
    if b.settings.compat or (not was_closed(reason) and reason_text(reason) != NULL):
        return 0
    return c.conn.address.by_proxy == PROXY_ITSELF or (c.state == C_NEW and c.conn.rx_ms == 0 and c.conn.transport == NULL)


cdef void log_ended(Broker* b, Client* c, int reason) noexcept nogil:
    cdef char where[ADDRESS_TEXT_MAX]
    cdef uint32_t type = LOG_NOTICE
    cdef const char* why = refusal_text(b.log.refused) if reason == END_REFUSED else reason_text(reason)
    cdef View id = client_id_of(c) if c.session != NULL or b.log.connecting.p == NULL else b.log.connecting
    if c.flags & CF_BRIDGE and c.session == NULL:
        id = bridge_of(c).spec.local_id
    if reason == END_REFUSED:
        if not b.log.was_refused:
            return               # an earlier line has logged the reason
        b.log.was_refused = 0
    if reason != END_REFUSED and is_health_check(b, c, reason):
        type = LOG_DEBUG
    if not b.settings.connection_messages or not peer_line_wanted(b, c, type, LINE_REFUSED if reason == END_REFUSED else LINE_ENDED):
        return
    client_address(c, where, sizeof(where))
    if id.n == 0:
        id.p = <const uint8_t*>where     # no id yet: its address
        id.n = <uint32_t>strlen(where)
    if why == NULL:
        log_line_of(b, c, type, snprintf(b.log.line, LOG_LINE_MAX, "Client %.*s [%s:%d] disconnected.", <int>id.n,
                                         <const char*>id.p, where, <int>c.conn.address.port))
    else:
        log_line_of(b, c, type, snprintf(b.log.line, LOG_LINE_MAX, "Client %.*s [%s:%d] disconnected: %s%s", <int>id.n,
                                         <const char*>id.p, where, <int>c.conn.address.port, why,
                                         <const char*>b"" if strncmp(why, "bad socket", 10) == 0 else <const char*>b"."))


cdef bint denial_logged(Broker* b) noexcept nogil:
    if b.settings.log_denied_per_s == 0:
        return 0
    if not timer_armed(&b.denied_timer):
        b.denied_timer.kind = TIMER_DENIED
        b.denied_n = 0
        wheel_add(&b.wheel, &b.denied_timer, b.reactor.now_ms + 1000)
    b.denied_n += 1
    return b.denied_n <= b.settings.log_denied_per_s


cdef void denials_sum(Broker* b) noexcept nogil:
    if b.denied_n > b.settings.log_denied_per_s:
        log_line(b, LOG_NOTICE, snprintf(b.log.line, LOG_LINE_MAX, "%u more denials were not logged.",
                                         <unsigned int>(b.denied_n - b.settings.log_denied_per_s)))


cdef bint line_allowed(Broker* b, const Address* a, int kind) noexcept nogil:
    if b.settings.log_connections_max == 0:
        return 1
    if b.log_rates == NULL:
        b.log_rates = log_rates_new()
    if b.log_rates == NULL:
        return 1
    if not timer_armed(&b.log_rates_timer):
        b.log_rates_timer.kind = TIMER_LOG_RATES
        wheel_add(&b.wheel, &b.log_rates_timer, b.reactor.now_ms + LOG_RATE_WINDOW_S * 1000)
    return log_rate_count(<LogRates*>b.log_rates, a, kind, b.settings.log_connections_max)


cdef bint peer_line_wanted(Broker* b, const Client* c, uint32_t type, int kind) noexcept nogil:
    return log_wanted(&b.log, type) and line_allowed(b, &c.conn.address, kind)


cdef const char* line_kind_text(int kind) noexcept nogil:
    if kind == LINE_ACCEPTED:
        return "new connections"
    if kind == LINE_DENIED:
        return "denied connections"
    if kind == LINE_PROTOCOL:
        return "protocol errors"
    if kind == LINE_CONNECTED:
        return "connected clients"
    return "disconnected clients" if kind == LINE_ENDED else "refused logins"


cdef void log_left_out(Broker* b, uint32_t n, int kind, const char* network, const char* mask) noexcept nogil:
    if n and log_wanted(&b.log, LOG_NOTICE):
        log_line(b, LOG_NOTICE, snprintf(b.log.line, LOG_LINE_MAX, "%u more lines about %s from %s%s in the last %d s were not logged.",
                                         <unsigned int>n, line_kind_text(kind), network, mask, <int>LOG_RATE_WINDOW_S))


cdef void lines_sum(Broker* b) noexcept nogil:
    cdef LogRates* t = <LogRates*>b.log_rates
    cdef LogRate* slot
    cdef char where[ADDRESS_TEXT_MAX]
    cdef int i
    for i in range(LOG_RATE_SETS * LOG_RATE_WAYS):
        slot = &t.slots[i]
        if slot.left_out:
            if address_text(&slot.network, where, sizeof(where)) == 0:
                snprintf(where, sizeof(where), "local sockets")
            log_left_out(b, slot.left_out, slot.kind, where, log_rate_mask(slot.network.family))
    for i in range(LINE_KINDS):
        log_left_out(b, t.left_out[i], i, "other networks", "")
    log_rates_clear(t)


cdef const char* packet_name(int packet_type) noexcept nogil:
    if packet_type == T_PUBACK:
        return "PUBACK"
    if packet_type == T_PUBREC:
        return "PUBREC"
    if packet_type == T_PUBREL:
        return "PUBREL"
    if packet_type == T_PUBCOMP:
        return "PUBCOMP"
    if packet_type == T_PINGREQ:
        return "PINGREQ"
    if packet_type == T_PINGRESP:
        return "PINGRESP"
    if packet_type == T_SUBSCRIBE:
        return "SUBSCRIBE"
    if packet_type == T_SUBACK:
        return "SUBACK"
    if packet_type == T_UNSUBSCRIBE:
        return "UNSUBSCRIBE"
    if packet_type == T_UNSUBACK:
        return "UNSUBACK"
    if packet_type == T_DISCONNECT:
        return "DISCONNECT"
    if packet_type == T_CONNACK:
        return "CONNACK"
    return "AUTH" if packet_type == T_AUTH else "packet"


cdef void log_packet(Broker* b, Client* c, const char* what, int packet_type, int pid, int rc) noexcept nogil:
    cdef View id = client_id_of(c)
    cdef const char* way = "to" if what[0] == c'S' else "from"
    cdef const char* name = packet_name(packet_type)
    cdef int n
    if pid < 0:
        n = snprintf(b.log.line, LOG_LINE_MAX, "%s %s %s %.*s", what, name, way, <int>id.n, <const char*>id.p)
    elif what[0] == c'R' and (packet_type == T_PUBACK or packet_type == T_PUBCOMP):
        n = snprintf(b.log.line, LOG_LINE_MAX, "%s %s %s %.*s (Mid: %d, RC:%d)", what, name, way, <int>id.n, <const char*>id.p, pid, rc)
    elif what[0] == c'R':
        n = snprintf(b.log.line, LOG_LINE_MAX, "%s %s %s %.*s (Mid: %d)", what, name, way, <int>id.n, <const char*>id.p, pid)
    elif packet_type == T_PUBACK or packet_type == T_PUBREC:
        n = snprintf(b.log.line, LOG_LINE_MAX, "%s %s %s %.*s (m%d, rc%d)", what, name, way, <int>id.n, <const char*>id.p, pid, rc)
    else:
        n = snprintf(b.log.line, LOG_LINE_MAX, "%s %s %s %.*s (m%d)", what, name, way, <int>id.n, <const char*>id.p, pid)
    log_line_of(b, c, LOG_DEBUG, n)
