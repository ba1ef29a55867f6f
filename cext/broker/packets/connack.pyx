"""Send CONNACK [v5 3.2] [v3.1.1 3.2]: accept a client, or refuse it and log the reason. This module knows reason codes and the
contents of CONNACK. It does not know the checks.
"""

from libc.stdint cimport uint8_t, uint16_t, uint32_t
from libc.stdio cimport snprintf
from libc.string cimport memset

from cext.base.view cimport View
from cext.broker.core.broker cimport Broker
from cext.broker.core.client cimport (
    ADDRESS_TEXT_MAX, END_REFUSED, END_SILENT, client_address, client_id_of, client_room, client_wrote, log_line,
    peer_line_wanted,
)
from cext.broker.core.client_state cimport Client
from cext.broker.core.log cimport LOG_DEBUG, LOG_LINE_MAX, LOG_NOTICE, log_wanted
from cext.broker.core.log_rate cimport LINE_DENIED, LINE_REFUSED
from cext.broker.core.pending_packet cimport method_of, owned_view
from cext.broker.packets.connect_state cimport Connecting
from cext.broker.persist.events cimport event_refused
from cext.codec.encode cimport Connack, connack_bytes, connack_size, encode_connack
from cext.codec.frame cimport V5
from cext.codec.reason cimport RC_PACKET_TOO_LARGE


cdef void log_connack(Broker* b, Client* c, const Connack* k) noexcept nogil:
    cdef char where[ADDRESS_TEXT_MAX]
    cdef View id = client_id_of(c) if c.session != NULL else b.log.connecting
    if id.p == NULL:
        id.p = <const uint8_t*>where         # no client id yet: its address
        id.n = <uint32_t>client_address(c, where, sizeof(where))
    log_line(b, LOG_DEBUG, snprintf(b.log.line, LOG_LINE_MAX, "Sending CONNACK to %.*s (%d, %d)", <int>id.n, <const char*>id.p,
                                    <int>k.session_present, <int>k.rc))


cdef bint too_large(const Client* c, const Connack* k) noexcept nogil:
    """Return whether the packet exceeds the client's Maximum Packet Size."""
    return c.packet_max != 0 and connack_bytes(k) > c.packet_max


cdef int connack_send(Broker* b, Client* c, Connack* k) noexcept nogil:
    cdef uint8_t* p
    k.version = c.version
    if too_large(c, k):          # [v5 3.1.2-24]
        return -1
    p = client_room(b, c, connack_size(k))
    if p == NULL:
        return -1
    client_wrote(b, c, encode_connack(p, k), p)
    if log_wanted(&b.log, LOG_DEBUG):
        log_connack(b, c, k)
    return 0


cdef inline void put_max_qos(const Client* c, Connack* k) noexcept nogil:
    """Name the highest QoS [v5 3.2.2-9]. As in Mosquitto, also to a client that is refused: its will may be the reason."""
    if c.listener.max_qos < 2:
        k.has_max_qos = 1
        k.max_qos = c.listener.max_qos


cdef int connack_prepare(Broker* b, Client* c, Connecting* k) noexcept nogil:
    cdef Connack* a = &k.connack
    a.version = c.version
    a.alias_max = c.listener.alias_max_in
    a.packet_max = b.settings.packet_max
    c.receive_max = a.receive_max = <uint16_t>b.settings.receive_maximum
    a.retain_unavailable = not b.settings.retain_available
    if k.id_was_empty and c.version == V5:
        a.assigned_client_id = k.packet.client_id        # [v5 3.2.2-16]
    if method_of(c).p != NULL:
        a.auth_method = method_of(c)     # [v5 4.12.0-6]
        a.auth_data = owned_view(&c.pending_packet.bytes)
    put_max_qos(c, a)
    if not too_large(c, a):
        return 0
    log_refusal(b, c, "the Maximum Packet Size is less than CONNACK needs")
    return connect_refuse_silently(b, c, RC_PACKET_TOO_LARGE)


cdef int connect_refuse(Broker* b, Client* c, uint8_t rc5, uint8_t rc3) noexcept nogil:
    cdef Connack k
    event_refused(b, c, rc5)
    b.log.was_refused = 1
    b.log.refused = rc5
    memset(&k, 0, sizeof(Connack))
    k.rc = rc5 if c.version == V5 else rc3
    put_max_qos(c, &k)
    connack_send(b, c, &k)
    return END_REFUSED


cdef int connect_refuse_silently(Broker* b, Client* c, uint8_t rc5) noexcept nogil:
    event_refused(b, c, rc5)
    return END_SILENT


cdef int connect_refuse_5(Broker* b, Client* c, uint8_t rc5) noexcept nogil:
    return connect_refuse(b, c, rc5, 0) if c.version == V5 else connect_refuse_silently(b, c, rc5)


cdef void log_refusal(Broker* b, Client* c, const char* reason) noexcept nogil:
    log_refusal_line(b, c, reason, LINE_REFUSED)


cdef void log_refusal_why(Broker* b, Client* c, const char* reason) noexcept nogil:
    log_refusal_line(b, c, reason, LINE_DENIED)


cdef void log_refusal_line(Broker* b, Client* c, const char* reason, int kind) noexcept nogil:
    cdef char where[ADDRESS_TEXT_MAX]
    if peer_line_wanted(b, c, LOG_NOTICE, kind):
        client_address(c, where, sizeof(where))
        log_line(b, LOG_NOTICE, snprintf(b.log.line, LOG_LINE_MAX, "Client from %s:%d refused: %s.", where,
                                         <int>c.conn.address.port, reason))
