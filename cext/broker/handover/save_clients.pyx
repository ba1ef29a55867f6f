"""Decide which connections move, and write them: their layers, unread input, unsent output, facts of CONNECT, topic aliases. This module does not
know the reader of the file.
"""

from libc.errno cimport ENOMEM
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport realloc
from libc.string cimport memset

from cext.base.view cimport View
from cext.broker.core.client_state cimport (
    AliasOut, CF_BRIDGE, CF_REAUTH, CF_TRUSTED, C_AUTHENTICATING, C_CONNECTED, C_ENDED, C_NEW, Client, PENDING_CONNECT, PENDING_FILTERS,
)
from cext.broker.core.handover_state cimport MOVES, STAYS_AUTH, STAYS_BEGUN, STAYS_BRIDGE, STAYS_ENDING, STAYS_HANDSHAKE, STAYS_TLS
from cext.broker.core.pending_packet cimport method_of, path_of, proxied_of
from cext.broker.handover.image cimport ITEM_ALIAS, ITEM_CLIENT, ITEM_SECRETS, ImageAlias, ImageClient, ImageSecrets, MOVED_CLIENT_FLAGS, NO_DESCRIPTOR
from cext.broker.handover.saving cimport Saving, bytes_put, message_saved, part_put, struct_put
from cext.net.conn_state cimport CONN_CLOSED, CONN_CLOSING, CONN_CONNECTING, CONN_OPENING, CONN_SHUT, Seg, TransportContext
from cext.net.web cimport WEB_OPEN, WEB_UPGRADE
from cext.net.websocket cimport WsDecoder


# ---------------------------------------------------------------- what moves

cdef bint web_moves(const Client* c) noexcept nogil:
    """A WebSocket moves while it is open, and before the first byte of its request."""
    if c.conn.web == NULL:
        return 1
    if c.conn.web.stage == WEB_OPEN:
        return not c.conn.web.over
    return c.conn.web.stage == WEB_UPGRADE and c.conn.web.request_n == 0 and c.conn.web.proxy_version == 0


cdef uint32_t transport_save(const Client* c, uint8_t* out, uint32_t n) noexcept nogil:
    return c.conn.transport.ops.save(&c.conn, c.listener.moves_tls, out, n)


cdef bint transport_moves(const Client* c) noexcept nogil:
    return c.conn.transport == NULL or transport_save(c, NULL, 0) != 0


cdef int connection_stays(const Client* c) noexcept nogil:
    cdef bint begins = c.state == C_NEW or c.state == C_AUTHENTICATING
    if c.flags & CF_BRIDGE:
        return STAYS_BRIDGE
    if c.conn.flags & (CONN_CLOSED | CONN_CLOSING | CONN_SHUT | CONN_CONNECTING | CONN_OPENING) or c.flags & CF_TRUSTED:
        return STAYS_ENDING
    if not transport_moves(c):
        return STAYS_HANDSHAKE if c.state == C_NEW else STAYS_TLS
    if not web_moves(c):
        return STAYS_BEGUN if begins else STAYS_ENDING
    if c.flags & CF_REAUTH:
        return STAYS_AUTH
    if c.state == C_AUTHENTICATING:      # CONNECT is handled again; an exchange of AUTH packets cannot be
        return MOVES if c.pending_packet != NULL and c.pending_packet.kind == PENDING_CONNECT and (c.names == NULL or c.names.method.p == NULL) else STAYS_AUTH
    if c.state == C_CONNECTED and c.pending_packet != NULL and c.pending_packet.kind == PENDING_FILTERS:
        # it is handled again from its begin
        return MOVES if c.pending_packet.n_done == 0 and not c.pending_packet.acknowledged else STAYS_BEGUN
    return MOVES if begins or c.state == C_CONNECTED else STAYS_ENDING


cdef bint client_stays(const Client* c) noexcept nogil:
    return c.state != C_ENDED and not c.conn.flags & CONN_CLOSED and connection_stays(c) != MOVES


# ---------------------------------------------------------------- what of them moves

cdef uint32_t descriptor_saved(Saving* v, int fd) noexcept nogil:
    cdef uint32_t cap = v.fds_cap * 2 if v.fds_cap else 256
    cdef int32_t* fds
    if v.h.n_fds == v.fds_cap:
        fds = <int32_t*>realloc(v.h.fds, <size_t>cap * sizeof(int32_t))
        if fds == NULL:
            v.w.error = ENOMEM
            return 0
        v.h.fds = fds
        v.fds_cap = cap
    v.h.fds[v.h.n_fds] = fd
    v.h.n_fds += 1
    return v.h.n_fds - 1


cdef void facts_fill(Saving* v, const Client* c, ImageClient* r) noexcept nogil:
    memset(r, 0, sizeof(ImageClient))
    r.will = message_saved(v, c.will.message) if c.will != NULL else 0
    if c.will != NULL:
        r.will_delay_s = c.will.delay_s
        r.will_expiry_s = c.will.expiry_s
        r.will_has_expiry = c.will.has_expiry
    r.origin = c.listener.origin
    r.rx_ms = c.conn.rx_ms
    r.address = c.conn.address
    r.packet_max = c.packet_max
    r.keepalive_s = c.keepalive_s
    r.alias_max_in = c.alias_max_in
    r.alias_max_out = c.aliases.given.max if c.aliases != NULL else 0
    r.window = c.window
    r.receive_max = c.receive_max
    r.version = c.version
    r.flags = c.flags & <uint8_t>MOVED_CLIENT_FLAGS


cdef void client_fill(Saving* v, Client* c, ImageClient* r) noexcept nogil:
    facts_fill(v, c, r)
    r.fd = descriptor_saved(v, c.conn.fd)
    if c.conn.web != NULL:
        r.web = c.conn.web.stage
        r.close_sent = c.conn.web.close_sent
        if c.conn.web.stage == WEB_OPEN:
            r.ws_n = <uint8_t>(<size_t>&(<WsDecoder*>NULL).control + c.conn.web.parser.ws.control_n)
            r.framed = c.conn.web.framed
    r.in_need = c.conn.in_need
    r.proxied_n = proxied_of(c).n
    r.path_n = path_of(c).n
    r.method_n = method_of(c).n
    r.transport_n = transport_save(c, NULL, 0) if c.conn.transport != NULL else 0


cdef void alias_save(Saving* v, uint16_t alias, bint given, const uint8_t* topic, uint32_t n) noexcept nogil:
    cdef ImageAlias r
    cdef uint8_t* out
    memset(&r, 0, sizeof(r))
    r.alias = alias
    r.given = given
    out = <uint8_t*>struct_put(v, ITEM_ALIAS, sizeof(r), n)
    if out != NULL:
        bytes_put(bytes_put(out, &r, sizeof(r)), topic, n)


cdef void aliases_save(Saving* v, Client* c) noexcept nogil:
    cdef AliasOut* a
    cdef uint32_t i
    if c.aliases == NULL:
        return
    if c.aliases.taken != NULL:
        for i in range(c.alias_max_in):
            if c.aliases.taken[i].topic != NULL:
                alias_save(v, <uint16_t>(i + 1), 0, c.aliases.taken[i].topic, c.aliases.taken[i].n)
    a = &c.aliases.given
    if a.slots != NULL:
        for i in range(a.mask + 1):
            if a.slots[i].topic != NULL:
                alias_save(v, a.slots[i].alias, 1, a.slots[i].topic, a.slots[i].n)


cdef void secrets_save(Saving* v) noexcept nogil:
    cdef ImageSecrets r
    cdef TransportContext* x
    cdef uint8_t* out
    cdef uint32_t i, n
    for i in range(v.b.n_listeners):
        x = v.b.listeners[i].tls_context
        n = x.secrets_save(x, NULL, 0) if x != NULL else 0
        if n == 0:
            continue
        r.origin = v.b.listeners[i].origin
        out = <uint8_t*>struct_put(v, ITEM_SECRETS, sizeof(r), n)
        if out != NULL:
            x.secrets_save(x, bytes_put(out, &r, sizeof(r)), n)


cdef void client_save(Saving* v, Client* c) noexcept nogil:
    cdef ImageClient r
    cdef View pending, unread
    cdef uint8_t* out
    cdef Seg* seg
    pending.p = unread.p = NULL
    pending.n = unread.n = 0
    client_fill(v, c, &r)
    if c.state == C_AUTHENTICATING:      # its CONNECT is handled again
        pending.p = c.pending_packet.frame
        pending.n = c.pending_packet.frame_n
    if c.conn.in_buf != NULL:
        unread.p = c.conn.in_buf + c.conn.in_off
        unread.n = c.conn.in_len - c.conn.in_off
    if pending.n:
        r.in_need = 0
    r.in_n = pending.n + unread.n
    r.out_n = c.conn.out_bytes
    out = <uint8_t*>struct_put(v, ITEM_CLIENT, sizeof(r), <uint64_t>r.ws_n + r.proxied_n + r.path_n + r.method_n + r.transport_n + r.in_n + r.out_n)
    if out == NULL:
        return
    out = bytes_put(out, &r, sizeof(r))
    if r.ws_n:
        out = bytes_put(out, &c.conn.web.parser.ws, r.ws_n)
    out = part_put(out, proxied_of(c))
    out = part_put(out, path_of(c))
    out = part_put(out, method_of(c))
    if r.transport_n:
        transport_save(c, out, r.transport_n)
        out += r.transport_n
    out = part_put(part_put(out, pending), unread)
    seg = c.conn.out_head
    while seg != NULL:
        out = bytes_put(out, seg.p + seg.off, seg.len - seg.off)
        seg = seg.next
    aliases_save(v, c)
    v.h.counts.connections += 1


cdef void client_left_save(Saving* v, Client* c) noexcept nogil:
    cdef ImageClient r
    cdef uint8_t* out
    facts_fill(v, c, &r)
    r.fd = NO_DESCRIPTOR
    out = <uint8_t*>struct_put(v, ITEM_CLIENT, sizeof(r), 0)
    if out != NULL:
        bytes_put(out, &r, sizeof(r))
