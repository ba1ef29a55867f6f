"""Handle the filters of a SUBSCRIBE or UNSUBSCRIBE in slices: one packet of 2 MB contains half a million filters.

The packet stays in the connection's input, as it does while a plugin decides about it, and is handled again in a later turn. The
pending packet remembers the reason codes so far and the place behind the last filter. Filters take effect one by one, and the
acknowledgement follows the last one [v5 3.8.4, 3.10.4].
"""

from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport Client, PENDING_FILTERS, PendingPacket
from cext.broker.core.durable cimport changes_of
from cext.broker.core.pending_packet cimport PACKET_PENDING, pending_packet_free, pending_packet_new, pending_packet_resume, pending_packet_wait
from cext.broker.core.session_refs cimport session_security
from cext.broker.core.turn cimport turn_input_limit
from cext.broker.arrivals.waits cimport wait_for_routes
from cext.broker.packets.authorize cimport filters_decide
from cext.broker.routing.plugin_gate cimport ACL_SUBSCRIBE
from cext.codec.decode cimport decode_items_head, decode_subscribe, decode_unsubscribe
from cext.codec.frame cimport Frame
from cext.codec.reason cimport RC_QUOTA_EXCEEDED

cdef enum:
    FILTER_BYTES_MIN = 3         # smallest filter in a packet: a length, and one byte in UNSUBSCRIBE


cdef inline PendingPacket* begun(Client* c) noexcept nogil:
    """Return the pending packet if filters of it were handled."""
    return c.pending_packet if c.pending_packet != NULL and c.pending_packet.codes != NULL else NULL


cdef inline void skip(FilterSlice* t, uint32_t left) noexcept nogil:
    t.packet.items.p += t.packet.items.n - left
    t.packet.items.n = left


cdef int filters_open(Broker* b, Client* c, const Frame* f, uint8_t access, FilterSlice* t) noexcept nogil:
    cdef PendingPacket* k = begun(c)
    cdef int rc
    if k != NULL:
        rc = decode_items_head(f, c.version, &t.packet)
    elif access == ACL_SUBSCRIBE:
        rc = decode_subscribe(f, c.version, &t.packet)
    else:
        rc = decode_unsubscribe(f, c.version, &t.packet)
    if rc == 0 and c.session.security != NULL and session_security(c.session).authorize:
        rc = filters_decide(b, c, &t.packet, access)
    if rc:
        return rc
    t.n = t.acknowledged = t.routes = 0
    t.codes = t.small
    t.changes = changes_of(b)
    t.limit = turn_input_limit(b)
    if k != NULL:
        t.codes = k.codes
        t.n = k.n_done
        t.changes = k.changes
        t.acknowledged = k.acknowledged
        t.routes = k.routes
        skip(t, k.done_left)
    elif t.packet.items.n > FILTER_BYTES_MIN * sizeof(t.small):
        t.codes = <uint8_t*>malloc(t.packet.items.n // FILTER_BYTES_MIN + 1)
        if t.codes == NULL:
            return RC_QUOTA_EXCEEDED
    return 0


cdef void filters_rewind(FilterSlice* t, const Frame* f, int version) noexcept nogil:
    decode_items_head(f, version, &t.packet)
    t.n = 0
    t.acknowledged = 1


cdef int filters_keep(Broker* b, Client* c, const FilterSlice* t) noexcept nogil:
    cdef PendingPacket* k = c.pending_packet
    if k == NULL:
        k = pending_packet_new(b, c, PENDING_FILTERS)
    if k != NULL and k.codes == NULL:
        k.codes = t.codes
        if t.codes == t.small:
            k.codes = <uint8_t*>malloc(sizeof(t.small))
            if k.codes != NULL:
                memcpy(k.codes, t.small, sizeof(t.small))
    if k == NULL or k.codes == NULL:
        return RC_QUOTA_EXCEEDED
    k.n_done = t.n
    k.done_left = t.packet.items.n
    k.changes = t.changes
    k.acknowledged = t.acknowledged
    k.routes = t.routes
    return PACKET_PENDING


cdef bint filters_failed(Client* c, FilterSlice* t, const Frame* f) noexcept nogil:
    if c.pending_packet != NULL and c.pending_packet.timed_out:
        c.pending_packet.timed_out = 0
        t.routes = ROUTES_FAILED
        decode_items_head(f, c.version, &t.packet)
        t.n = 0
    return t.routes == ROUTES_FAILED


cdef int filters_await_routes(Broker* b, Client* c, FilterSlice* t, bint retained) noexcept nogil:
    cdef int rc
    cdef bint current = t.routes == ROUTES_ASKED
    if t.routes == ROUTES_NONE or t.routes >= ROUTES_KNOWN:
        return 0
    t.routes = ROUTES_ASKED if retained and not current else ROUTES_KNOWN
    rc = filters_keep(b, c, t)
    if rc != PACKET_PENDING:
        return rc
    pending_packet_wait(b, c)
    return PACKET_PENDING if wait_for_routes(b, c, retained, current) else RC_QUOTA_EXCEEDED


cdef int filters_end(Broker* b, Client* c, FilterSlice* t, int rc) noexcept nogil:
    if rc == 0 and t.packet.items.n:
        rc = filters_keep(b, c, t)
        if rc == PACKET_PENDING:
            pending_packet_resume(b, c)
            return rc
    if rc == PACKET_PENDING:
        return rc                    # other workers do not know the routes yet
    if t.codes != t.small and begun(c) == NULL:
        free(t.codes)
    pending_packet_free(b, c)
    return rc
