"""Handle PUBACK, PUBREC, PUBREL and PUBCOMP [v5 3.4 to 3.7] [v3.1.1 3.4 to 3.7]: the progress of QoS 1 and 2 in both directions.
The states are in session/queue.pyx.
"""

from libc.stdint cimport uint64_t
from libc.stdio cimport snprintf

from cext.broker.core.broker cimport Broker
from cext.broker.core.client cimport log_line, log_packet, peer_line_wanted
from cext.broker.core.client_state cimport CF_BRIDGE, Client
from cext.broker.core.durable cimport changes_of
from cext.broker.core.jobs cimport jobs_unblock
from cext.broker.core.log cimport LOG_DEBUG, LOG_LINE_MAX, LOG_WARNING, log_wanted
from cext.broker.core.log_rate cimport LINE_PROTOCOL
from cext.broker.packets.handle_publish cimport publish_released
from cext.broker.persist.accounts cimport ACCOUNT_ACKNOWLEDGED
from cext.broker.persist.pending_acks cimport ack_after_all, ack_now, ack_when_committed
from cext.broker.persist.persist cimport pending_delivery_release, persist_reserve
from cext.broker.routing.pump cimport delivery_done, pump
from cext.codec.as_client cimport decode_server_ack
from cext.codec.decode cimport Ack, decode_ack
from cext.codec.frame cimport Frame, T_PUBACK, T_PUBCOMP, T_PUBREC, T_PUBREL
from cext.codec.reason cimport RC_PROTOCOL_ERROR, RC_QUOTA_EXCEEDED, RC_SUCCESS
from cext.session.queue cimport (
    D_RELEASED, D_SENT, Delivery, delivery_bytes, delivery_release, queue_find, queue_position, room_leave,
)
from cext.session.session cimport Session


cdef int handle_ack(Broker* b, Client* c, const Frame* f) noexcept nogil:
    cdef Ack a
    cdef int kind = f.first >> 4
    cdef int rc = decode_server_ack(f, c.version, &a) if c.flags & CF_BRIDGE else decode_ack(f, c.version, &a)
    if rc:
        return rc
    if log_wanted(&b.log, LOG_DEBUG):
        log_packet(b, c, "Received", kind, a.pid, a.rc)
    if kind == T_PUBREL:
        return publish_released(b, c, a.pid)
    return delivery_progress(b, c, &a, kind)


cdef int delivery_progress(Broker* b, Client* c, Ack* a, int kind) noexcept nogil:
    cdef Session* s = c.session
    cdef Delivery* d = queue_find(&s.queue, a.pid)
    cdef uint64_t changes
    if d == NULL:
        unknown_pid(b, c, a, kind)
        return 0
    if (kind == T_PUBACK) != ((d.qos & 3) == 1):
        return RC_PROTOCOL_ERROR         # acknowledged as the other QoS
    if kind == T_PUBREC and (a.rc < 0x80 or d.state == D_RELEASED):
        if d.state == D_SENT and not persist_reserve(b, s, 0):
            return RC_QUOTA_EXCEEDED
        if d.state == D_SENT:
            s.queue.inflight_bytes -= delivery_bytes(d)
            room_leave(&s.queue, d)
            delivery_release(&b.messages, &b.reactor.buffers, d)
            d.state = D_RELEASED
            changes = changes_of(b)
            pending_delivery_release(b, s, d, queue_position(&s.queue, d))
            ack_when_committed(b, c, T_PUBREL, a.pid, RC_SUCCESS, changes, NULL, 0)
        else:
            ack_after_all(b, c, T_PUBREL, a.pid)
        return 0
    if kind == T_PUBCOMP and d.state != D_RELEASED:
        return RC_PROTOCOL_ERROR
    s.queue.inflight -= 1
    delivery_done(b, s, d, ACCOUNT_ACKNOWLEDGED)
    if s.queue.next != s.queue.tail:
        pump(b, s, NULL)
    if s.jobs:
        jobs_unblock(b, s)
    return 0


cdef void unknown_pid(Broker* b, Client* c, Ack* a, int kind) noexcept nogil:
    """Handle an acknowledgement with an unknown packet id [v5 3.5.2.1, 4.3.3]."""
    if kind != T_PUBREC or a.rc >= 0x80:
        return
    if peer_line_wanted(b, c, LOG_WARNING, LINE_PROTOCOL):
        log_line(b, LOG_WARNING, snprintf(
            b.log.line, LOG_LINE_MAX, "Warning: Received PUBREC from %.*s for an unknown packet identifier %d.",
            <int>c.session.id_len, <const char*>c.session.client_id, <int>a.pid))
    ack_now(b, c, T_PUBREL, a.pid, RC_SUCCESS)       # as in Mosquitto: the client can complete its side
