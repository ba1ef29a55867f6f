"""Open a connection, from the attempt to CONNACK. This module knows the content of CONNECT and how a refusal is reported. It does not know the work
of an open bridge (connected.pyx, lifecycle.pyx), or when it is tried again, which the control plane decides.

    BRIDGE_DOWN --command--> BRIDGE_OPENING --on_opened--> BRIDGE_CONNECTING (CONNECT is sent) --CONNACK 0--> BRIDGE_UP
       |                           |                              \\--CONNACK not 0--> "refused", BRIDGE_DOWN
       \\-- error, deadline --------+--> "down", BRIDGE_DOWN

Invariant: each attempt ends with exactly one event, and one deadline covers all of it. No function here waits.
"""

from libc.errno cimport EALREADY, ENOMEM
from libc.stdint cimport uint8_t, uint32_t
from libc.stdio cimport snprintf
from libc.string cimport memset, strlen

from cext.base.view cimport View
from cext.base.wheel cimport wheel_add
from cext.bridge.connected cimport bridge_up
from cext.bridge.local cimport local_subscribe
from cext.broker.auth.bridge cimport bridge_notify
from cext.broker.core.bridge_state cimport (
    BRIDGE_CONNECTING, BRIDGE_DOWN, BRIDGE_EVENT_REFUSED, BRIDGE_OPENING, Bridge, BridgeCommand, BridgeSpec, bridge_of,
)
from cext.broker.core.broker cimport Broker
from cext.broker.core.client cimport END_ERRNO, END_SILENT, client_give, client_room, client_take, client_wrote, log_line
from cext.broker.core.client_state cimport CF_BRIDGE, C_OPENING, Client
from cext.broker.core.log cimport LOG_DEBUG, LOG_ERROR, LOG_LINE_MAX, LOG_NOTICE, log_wanted
from cext.broker.lifecycle.session_lifecycle cimport client_end
from cext.codec.as_client cimport ConnackIn, ConnectOut, connect_size, decode_connack, encode_connect
from cext.codec.frame cimport Frame, V311, V5
from cext.codec.reason cimport (
    CONNACK3_BAD_CREDENTIALS, CONNACK3_IDENTIFIER_REJECTED, CONNACK3_NOT_AUTHORIZED, CONNACK3_PROTOCOL_VERSION,
    CONNACK3_SERVER_UNAVAILABLE, RC_BAD_USERNAME_OR_PASSWORD, RC_BANNED, RC_CLIENTID_NOT_VALID, RC_NOT_AUTHORIZED,
    RC_PACKET_TOO_LARGE, RC_QOS_NOT_SUPPORTED, RC_QUOTA_EXCEEDED, RC_RETAIN_NOT_SUPPORTED, RC_SERVER_BUSY,
    RC_SERVER_UNAVAILABLE, RC_TOPIC_NAME_INVALID, RC_UNSUPPORTED_PROTOCOL_VERSION,
)
from cext.net.outward cimport Outward, conn_connect
from cext.net.conn cimport conn_open


cdef View text_view(const char* text) noexcept nogil:
    cdef View v
    v.p = <const uint8_t*>text
    v.n = <uint32_t>strlen(text)
    return v


# ---------------------------------------------------------------- the attempt

cdef int bridge_open(Broker* b, Bridge* l, BridgeCommand* a) noexcept nogil:
    cdef Client* c
    cdef int err
    if l.client != NULL:
        return EALREADY
    c = client_take(b)
    if c == NULL:
        return ENOMEM
    c.listener = &l.listener
    c.version = l.version
    if log_wanted(&b.log, LOG_NOTICE):
        log_line(b, LOG_NOTICE, snprintf(b.log.line, LOG_LINE_MAX, "Connecting bridge %.*s (%s:%d)", <int>l.spec.name.n,
                                         <const char*>l.spec.name.p, a.host, <int>a.remote.port))
    err = attempt_begin(b, l, a, c)
    if err:
        client_give(b, c)
        return err
    c.flags |= CF_BRIDGE
    c.state = C_OPENING
    c.conn.rx_ms = b.reactor.now_ms
    l.listener.n_connections += 1
    l.client = c
    l.state = BRIDGE_OPENING
    l.as_bridge = a.as_bridge and l.version != V5
    if l.spec.local_clean:
        local_subscribe(b, l)    # from the attempt on, messages wait for CONNACK; if it fails, local_clear drops them
    wheel_add(&b.wheel, &c.timer, b.reactor.now_ms + l.spec.connect_timeout_ms)
    if a.fd >= 0:
        bridge_opened(b, c, 0)
    return 0


cdef int attempt_begin(Broker* b, Bridge* l, BridgeCommand* a, Client* c) noexcept nogil:
    cdef Outward o
    cdef const BridgeSpec* spec = l.spec
    if a.fd >= 0:
        return conn_open(&b.reactor, &c.conn, a.fd, &a.remote)
    memset(&o, 0, sizeof(o))
    o.remote = a.remote
    o.remote_scope = a.remote_scope
    o.host = a.host
    o.tls_context = spec.tls_context
    o.bound = spec.bound
    o.bound_scope = spec.bound_scope
    o.user_timeout_ms = spec.user_timeout_ms
    o.keepalive_idle_s = spec.tcp_idle_s
    o.keepalive_interval_s = spec.tcp_interval_s
    o.keepalive_count = spec.tcp_count
    o.nodelay = 1
    return conn_connect(&b.reactor, &c.conn, &o)


cdef void bridge_opened(Broker* b, Client* c, int err) noexcept nogil:
    if err:
        client_end(b, c, END_ERRNO + err)
        return
    bridge_of(c).state = BRIDGE_CONNECTING
    connect_send(b, bridge_of(c), c)


cdef void connect_fill(Broker* b, Bridge* l, ConnectOut* k) noexcept nogil:
    cdef const BridgeSpec* spec = l.spec
    memset(k, 0, sizeof(ConnectOut))
    k.version = l.version
    k.bridge = l.as_bridge
    k.clean_start = spec.clean_start
    k.keepalive = spec.keepalive_s
    k.client_id = spec.remote_id
    k.has_username = spec.username.p != NULL
    k.username = spec.username
    k.has_password = spec.password.p != NULL and (k.has_username or l.version == V5)
    k.password = spec.password
    if l.version == V5:
        k.session_expiry = spec.session_expiry_s
        k.receive_max = spec.receive_max
        k.alias_max = spec.alias_max
        k.packet_max = spec.packet_max_in
    if spec.notifications and not spec.notify_local_only:
        k.has_will = 1
        k.will_topic = spec.notice
        k.will_payload = text_view(b"0")
        k.will_qos = l.will_qos
        k.will_retain = l.will_retain


cdef void connect_send(Broker* b, Bridge* l, Client* c) noexcept nogil:
    cdef ConnectOut k
    cdef uint8_t* p
    connect_fill(b, l, &k)
    p = client_room(b, c, connect_size(&k))
    if p == NULL:
        return
    client_wrote(b, c, encode_connect(p, &k), p)
    if log_wanted(&b.log, LOG_DEBUG):
        log_line(b, LOG_DEBUG, snprintf(b.log.line, LOG_LINE_MAX, "Bridge %.*s sending CONNECT", <int>k.client_id.n,
                                        <const char*>k.client_id.p))


# ---------------------------------------------------------------- the answer

cdef int handle_connack(Broker* b, Client* c, const Frame* f) noexcept nogil:
    cdef ConnackIn k
    cdef Bridge* l = bridge_of(c)
    cdef int rc = decode_connack(f, c.version, &k)
    if rc:
        return rc
    if log_wanted(&b.log, LOG_DEBUG):
        log_line(b, LOG_DEBUG, snprintf(b.log.line, LOG_LINE_MAX, "Received CONNACK on connection %.*s.", <int>l.spec.local_id.n,
                                        <const char*>l.spec.local_id.p))
    if k.rc:
        report_refused(b, l, &k)
        return END_SILENT
    bridge_up(b, l, c, &k)
    return 0


cdef void report_refused(Broker* b, Bridge* l, const ConnackIn* k) noexcept nogil:
    """Report a refusal. The detail of the event: the code as it came, a blank, the reason."""
    cdef char detail[128]
    cdef const char* why = refusal5(k.rc) if k.version == V5 else refusal3(k.rc)
    if k.version != V5 and l.version == V5 and k.rc == CONNACK3_PROTOCOL_VERSION:
        refused_v5(b, l)
        return
    if k.rc == RC_RETAIN_NOT_SUPPORTED:
        l.will_retain = 0        # the next attempt requests less
    elif k.rc == RC_QOS_NOT_SUPPORTED and l.will_qos:
        l.will_qos -= 1
    if log_wanted(&b.log, LOG_ERROR):
        log_line(b, LOG_ERROR, snprintf(b.log.line, LOG_LINE_MAX, "Connection Refused: %s", why))
    snprintf(detail, sizeof(detail), "%d %s", <int>k.rc, why)
    l.state = BRIDGE_DOWN          # so that its end is not reported as well
    bridge_notify(b, l, BRIDGE_EVENT_REFUSED, text_view(detail))


cdef void refused_v5(Broker* b, Bridge* l) noexcept nogil:
    """Use 3.1.1 from now on, until the configuration of the bridge changes: the remote broker answered in the format of 3.x."""
    if log_wanted(&b.log, LOG_NOTICE):
        log_line(b, LOG_NOTICE, snprintf(
            b.log.line, LOG_LINE_MAX, "Warning: Remote bridge %.*s does not support MQTT v5.0, reconnecting using MQTT v3.1.1.",
            <int>l.spec.name.n, <const char*>l.spec.name.p))
    l.version = V311
    l.state = BRIDGE_DOWN
    bridge_notify(b, l, BRIDGE_EVENT_REFUSED, text_view(b"1 MQTT v5.0 is not supported (will retry)"))


cdef const char* refusal3(uint8_t rc) noexcept nogil:
    if rc == CONNACK3_PROTOCOL_VERSION:
        return "unacceptable protocol version"
    if rc == CONNACK3_IDENTIFIER_REJECTED:
        return "identifier rejected"
    if rc == CONNACK3_SERVER_UNAVAILABLE:
        return "broker unavailable"
    if rc == CONNACK3_BAD_CREDENTIALS:
        return "bad user name or password"
    if rc == CONNACK3_NOT_AUTHORIZED:
        return "not authorised"
    return "unknown reason"


cdef const char* refusal5(uint8_t rc) noexcept nogil:
    if rc == RC_RETAIN_NOT_SUPPORTED:
        return "retain not available (will retry)"
    if rc == RC_QOS_NOT_SUPPORTED:
        return "QoS not supported (will retry)"
    if rc == RC_UNSUPPORTED_PROTOCOL_VERSION:
        return "Unsupported Protocol Version"
    if rc == RC_CLIENTID_NOT_VALID:
        return "Client Identifier not valid"
    if rc == RC_BAD_USERNAME_OR_PASSWORD:
        return "Bad User Name or Password"
    if rc == RC_NOT_AUTHORIZED:
        return "Not authorized"
    if rc == RC_SERVER_UNAVAILABLE:
        return "Server unavailable"
    if rc == RC_SERVER_BUSY:
        return "Server busy"
    if rc == RC_BANNED:
        return "Banned"
    if rc == RC_TOPIC_NAME_INVALID:
        return "Topic Name invalid"
    if rc == RC_PACKET_TOO_LARGE:
        return "Packet too large"
    if rc == RC_QUOTA_EXCEEDED:
        return "Quota exceeded"
    return "unknown reason"
