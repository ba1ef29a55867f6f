"""Dispatch bytes to the packet handlers. This module knows frames and the state of a client, not the meaning of a packet.

In each turn the reactor calls it once per connection with the bytes that arrived. It handles frame after frame until the bytes,
the turn budget or the client ends. The rest waits in the connection's buffer: an unfinished frame for its remaining bytes, whole
frames for the next turn.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf

from cext.broker.core.bridge_state cimport bridges_of
from cext.broker.core.broker cimport Broker
from cext.broker.core.client cimport ADDRESS_TEXT_MAX, END_SILENT, client_address, log_line, peer_line_wanted
from cext.broker.core.client_state cimport CF_BRIDGE, CF_DOOMED, C_AUTHENTICATING, C_ENDED, C_NEW, C_OPENING, Client, client_of
from cext.broker.core.log cimport LOG_INFORMATION, LOG_LINE_MAX, LOG_NOTICE
from cext.broker.core.log_rate cimport LINE_PROTOCOL
from cext.broker.core.pending_packet cimport PACKET_PENDING
from cext.broker.core.turn cimport turn_input_limit
from cext.broker.lifecycle.reload_hold cimport connect_held
from cext.broker.lifecycle.session_lifecycle cimport client_end
from cext.broker.packets.handle_ack cimport handle_ack
from cext.broker.packets.handle_auth cimport handle_auth
from cext.broker.packets.handle_connect cimport handle_connect
from cext.broker.packets.handle_disconnect cimport handle_disconnect, handle_pingreq
from cext.broker.packets.handle_publish cimport handle_publish
from cext.broker.packets.handle_subscribe cimport handle_subscribe, handle_unsubscribe
from cext.broker.persist.publication cimport memory_short
from cext.broker.trace.events cimport trace_received
from cext.codec.frame cimport (
    Frame, T_AUTH, T_CONNECT, T_DISCONNECT, T_PINGREQ, T_PINGRESP, T_PUBACK, T_PUBLISH, T_SUBACK, T_SUBSCRIBE, T_UNSUBACK,
    T_UNSUBSCRIBE, frame_next,
)
from cext.codec.reason cimport RC_MALFORMED, COMPAT_MALFORMED, COMPAT_PROTOCOL_ERROR, RC_PROTOCOL_ERROR, RC_QUOTA_EXCEEDED
from cext.net.conn cimport conn_resume
from cext.net.conn_state cimport CONN_HUNGRY, CONN_PAUSED, Conn, INPUT_FIRST_BYTES

cdef enum:
    WORK_FRAME = 2               # cost of a frame in units of work, beside its deliveries
    # a Remaining Length of 100,000, as in Mosquitto: the packet may be stored while the control plane decides
    CONNECT_BYTES_MAX = 100_004
    TLS_HANDSHAKE = 0x16         # the first byte of a TLS connection


cdef int handle_packet(Broker* b, Client* c, const Frame* f) noexcept nogil:
    cdef int kind = f.first >> 4
    if c.state == C_NEW:         # [v5 3.1.0-1]
        return handle_connect(b, c, f) if kind == T_CONNECT else first_not_connect(b, c, f)
    if c.state == C_AUTHENTICATING and kind != T_AUTH:   # [v5 3.1.4-6] no other packet before CONNACK, except DISCONNECT
        return END_SILENT if kind == T_DISCONNECT else RC_PROTOCOL_ERROR
    if c.state == C_OPENING:
        return bridges_of(b).ops.packet(b, c, f)
    if kind == T_PUBLISH:
        return handle_publish(b, c, f)
    if T_PUBACK <= kind < T_SUBSCRIBE:
        return handle_ack(b, c, f)
    if c.flags & CF_BRIDGE:        # packets that only a server sends
        return bridges_of(b).ops.packet(b, c, f)
    if kind == T_PINGREQ:
        return handle_pingreq(b, c, f)
    if kind == T_SUBSCRIBE:
        return handle_subscribe(b, c, f)
    if kind == T_UNSUBSCRIBE:
        return handle_unsubscribe(b, c, f)
    if kind == T_DISCONNECT:
        return handle_disconnect(b, c, f)
    if kind == T_AUTH:
        return handle_auth(b, c, f)
    if kind == T_CONNECT:
        return handle_connect(b, c, f)
    return server_packet(f)


cdef int server_packet(const Frame* f) noexcept nogil:
    """Return the reason code for a packet that only a server sends. The answers are those of Mosquitto: wrong flags are malformed,
    and a PINGRESP with a body is closed without a packet."""
    cdef int kind = f.first >> 4
    if kind == T_PINGRESP and f.body_len:
        return END_SILENT
    return RC_MALFORMED if f.first & 15 and (kind == T_PINGRESP or kind == T_SUBACK or kind == T_UNSUBACK) else RC_PROTOCOL_ERROR


cdef inline int reason_choose(Broker* b, int rc) noexcept nogil:
    """Return the reason to end a client: where Mosquitto names another reason code than the standard, `compat` decides."""
    if b.settings.compat and rc & (COMPAT_MALFORMED | COMPAT_PROTOCOL_ERROR):
        return RC_MALFORMED if rc & COMPAT_MALFORMED else RC_PROTOCOL_ERROR
    return rc & ~(COMPAT_MALFORMED | COMPAT_PROTOCOL_ERROR)


cdef inline uint32_t connect_max(Broker* b) noexcept nogil:
    return CONNECT_BYTES_MAX if b.settings.packet_max == 0 or b.settings.packet_max > CONNECT_BYTES_MAX else b.settings.packet_max


cdef int reserved_packet(Broker* b, Client* c) noexcept nogil:
    """Log a packet of the reserved type 0 [v5 2.1.2] and return the reason code."""
    cdef char where[ADDRESS_TEXT_MAX]
    if peer_line_wanted(b, c, LOG_INFORMATION, LINE_PROTOCOL):
        client_address(c, where, sizeof(where))
        log_line(b, LOG_INFORMATION, snprintf(b.log.line, LOG_LINE_MAX, "Protocol error from %s:%d: RESERVED packet.", where,
                                              <int>c.conn.address.port))
    return RC_PROTOCOL_ERROR


cdef int first_not_connect(Broker* b, Client* c, const Frame* f) noexcept nogil:
    cdef char where[ADDRESS_TEXT_MAX]
    client_address(c, where, sizeof(where))
    if f.first == TLS_HANDSHAKE:
        if peer_line_wanted(b, c, LOG_NOTICE, LINE_PROTOCOL):
            log_line(b, LOG_NOTICE, snprintf(
                b.log.line, LOG_LINE_MAX, "Client from %s:%d appears to be using TLS to connect to a non-TLS listener.", where,
                <int>c.conn.address.port))
    elif peer_line_wanted(b, c, LOG_INFORMATION, LINE_PROTOCOL):
        log_line(b, LOG_INFORMATION, snprintf(
            b.log.line, LOG_LINE_MAX, "Protocol error from %s:%d: First packet not CONNECT (%02X).", where,
            <int>c.conn.address.port, <int>f.first))
    return END_SILENT


cdef size_t dispatch(void* broker, Conn* conn, const uint8_t* p, size_t n) noexcept nogil:
    cdef Broker* b = <Broker*>broker
    cdef size_t used
    b.log.client = client_of(conn)
    used = dispatch_input(b, conn, p, n)
    b.log.client = NULL
    b.log.connecting.p = NULL
    return used


cdef size_t dispatch_input(Broker* b, Conn* conn, const uint8_t* p, size_t n) noexcept nogil:
    cdef Client* c = client_of(conn)
    cdef Frame f
    cdef int rc
    cdef size_t used = 0
    cdef uint64_t limit = turn_input_limit(b)
    conn.in_need = 0
    if c.flags & CF_DOOMED:
        return n                 # the client ends in this turn: its packets must not be acknowledged any more
    if c.pending_packet != NULL and c.pending_packet.waits:
        conn.flags |= CONN_PAUSED        # another module had resumed reading from the client
    while used < n:
        if conn.flags & CONN_PAUSED:
            return used
        if b.work >= limit:
            conn_resume(&b.reactor, conn)    # the rest next turn: other connections come first
            return used
        # also before the frame is complete: the broker does not wait for a packet that is wrong in any case
        if c.state == C_NEW and (p[used] >> 4 != T_CONNECT or p[used] == TLS_HANDSHAKE):
            f.first = p[used]
            rc = first_not_connect(b, c, &f)
        elif p[used] < 16:
            rc = reserved_packet(b, c)
        else:
            rc = frame_next(p + used, n - used, b.settings.packet_max if c.state != C_NEW else connect_max(b), &f)
            if rc == 0:
                conn.in_need = f.total_len
                if f.total_len <= INPUT_FIRST_BYTES or not memory_short(b, 0):
                    return used
                rc = RC_QUOTA_EXCEEDED   # no room for the rest of a large packet
            if rc == RC_MALFORMED:
                rc = END_SILENT          # a Remaining Length of five bytes: closed without a packet, as in Mosquitto
            if rc == 1 and c.state == C_NEW and connect_held(b):
                conn.flags |= CONN_PAUSED
                return used
            if rc == 1:
                b.stats.messages_in += 1
                b.work += WORK_FRAME
                rc = handle_packet(b, c, &f)
                if rc == PACKET_PENDING:         # it is handled again later
                    b.stats.messages_in -= 1
                    return used
                used += f.total_len
        if rc:
            client_end(b, c, reason_choose(b, rc))
        if c.state == C_ENDED or c.flags & CF_DOOMED:
            return n
        if conn.out_bytes > b.settings.max_output_bytes:
            # the client does not read the broker's answers: read no more requests from it
            conn.flags |= CONN_PAUSED | CONN_HUNGRY
    return used


cdef size_t dispatch_traced(void* broker, Conn* conn, const uint8_t* p, size_t n) noexcept nogil:
    """Do the same while there is a trace: each packet goes into the traces before it is handled, and only once if it must wait."""
    cdef Broker* b = <Broker*>broker
    cdef Client* c = client_of(conn)
    cdef Frame f
    cdef size_t used = 0, taken
    cdef uint64_t limit = turn_input_limit(b)
    while used < n and not c.flags & CF_DOOMED and not conn.flags & CONN_PAUSED and p[used] >= 16:
        if b.work >= limit:
            conn_resume(&b.reactor, conn)
            return used
        if frame_next(p + used, n - used, b.settings.packet_max if c.state != C_NEW else connect_max(b), &f) != 1:
            break
        if not c.traced:
            trace_received(b, c, &f)
            c.traced = 1
        taken = dispatch(broker, conn, p + used, f.total_len)
        if taken == 0:
            return used
        c.traced = 0
        used += taken
        if c.state == C_ENDED:
            return n
    return used + dispatch(broker, conn, p + used, n - used) if used < n else used
