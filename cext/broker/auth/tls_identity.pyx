"""Find the identity of a client by its TLS connection. This module knows the listener's rules and log lines. It does not know TLS: the transport of
the connection returns the identity."""

from libc.stdint cimport uint8_t, uint32_t
from libc.stdio cimport snprintf
from libc.string cimport memcpy

from cext.base.slab cimport slab_at, slab_end
from cext.base.view cimport View
from cext.broker.core.broker cimport Broker
from cext.broker.core.client cimport client_doom, line_allowed, log_line, peer_line_wanted
from cext.broker.core.client_state cimport CF_IDENTIFIED, C_ENDED, Client, client_of
from cext.broker.core.log cimport LOG_ERROR, LOG_LINE_MAX, LOG_NOTICE, log_wanted
from cext.broker.core.log_rate cimport LINE_CONNECTED, LINE_PROTOCOL
from cext.broker.core.pending_packet cimport proxied_of
from cext.codec.decode cimport Connect
from cext.codec.reason cimport RC_ADMINISTRATIVE_ACTION
from cext.codec.utf8 cimport utf8_check
from cext.net.conn_state cimport (
    CONN_CLOSED, CONN_MOVED, Conn, PEER_CIPHER, PEER_COMMON_NAME, PEER_IDENTITY, PEER_PROTOCOL, PEER_SUBJECT, TransportContext,
)

cdef enum:
    RECHECKS_PER_TURN = 16       # each takes about 0.1 ms of public key operations
    IDENTITY_LOOKS_PER_TURN = 4096


cdef int tls_name(const Client* c, uint8_t* room) noexcept nogil:
    """Return the bytes of the user name that the TLS connection proves, which another worker may have checked (CONN_MOVED); 0 or less if there is
    none."""
    cdef View name = proxied_of(c)
    cdef int n
    if c.conn.transport == NULL:
        if name.n > TLS_NAME_MAX:
            return 0
        if name.n:
            memcpy(room, name.p, name.n)
        return <int>name.n
    n = c.conn.transport.ops.describe(&c.conn, PEER_IDENTITY, room, TLS_NAME_MAX)
    if n < 0:
        n = c.conn.transport.ops.describe(&c.conn, PEER_COMMON_NAME if c.listener.use_identity_as_username else PEER_SUBJECT, room, TLS_NAME_MAX)
    return n


cdef bint tls_names(const Client* c) noexcept nogil:
    """Return whether the listener takes the user name from TLS. A connection that has moved has its TLS in another worker."""
    if c.conn.transport == NULL and not (c.conn.flags & CONN_MOVED and c.listener.tls_context != NULL):
        return 0
    return c.listener.use_identity_as_username or c.listener.use_subject_as_username


cdef bint tls_identity(Client* c, Connect* p, uint8_t* room) noexcept nogil:
    """Take the user name from the connection. As in Mosquitto, user name and password of the packet are ignored."""
    cdef int n
    if not tls_names(c):
        return 0
    p.has_username = p.has_password = 0
    p.password.n = 0
    n = tls_name(c, room)
    if n <= 0 or utf8_check(room, <uint32_t>n) != 0:
        return 1
    c.flags |= CF_IDENTIFIED
    p.has_username = 1
    p.username.p = room
    p.username.n = <uint32_t>n
    return 0


cdef void tls_identity_fields(Client* c, View* fields, uint8_t* room) noexcept nogil:
    cdef int what, n, at = 0
    if proxied_of(c).p != NULL:
        fields[0] = proxied_of(c)
    if c.conn.transport == NULL:
        return
    for what in range(3):
        n = c.conn.transport.ops.describe(&c.conn, PEER_COMMON_NAME + what, room + at, <uint32_t>(IDENTITY_BYTES - at))
        if n >= 0:
            fields[what].p = room + at
            fields[what].n = <uint32_t>n
            at += n


cdef void log_negotiated_tls(Broker* b, Client* c, View id) noexcept nogil:
    cdef uint8_t protocol[32]
    cdef uint8_t cipher[128]
    cdef int n, m
    if c.conn.transport == NULL or not b.settings.connection_messages or not peer_line_wanted(b, c, LOG_NOTICE, LINE_CONNECTED):
        return
    n = c.conn.transport.ops.describe(&c.conn, PEER_PROTOCOL, protocol, sizeof(protocol))
    m = c.conn.transport.ops.describe(&c.conn, PEER_CIPHER, cipher, sizeof(cipher))
    if n < 0 or m < 0:
        return
    log_line(b, LOG_NOTICE, snprintf(b.log.line, LOG_LINE_MAX, "Client %.*s negotiated %.*s cipher %.*s", <int>id.n,
                                     <const char*>id.p, n, <const char*>protocol, m, <const char*>cipher))


cdef void log_transport_error(void* broker, Conn* conn, const char* text) noexcept nogil:
    cdef Broker* b = <Broker*>broker
    if log_wanted(&b.log, LOG_ERROR) and line_allowed(b, &conn.address, LINE_PROTOCOL):
        log_line(b, LOG_ERROR, snprintf(b.log.line, LOG_LINE_MAX, "%s", text))


# ---------------------------------------------------------------- after a reload

cdef TransportContext* listener_context(void* broker, Conn* conn) noexcept nogil:
    return client_of(conn).listener.tls_context


cdef void recheck_begin(Broker* b) noexcept nogil:
    b.rechecks = 1
    b.recheck_at = 0


cdef bint recheck_slice(Broker* b) noexcept nogil:
    cdef uint32_t end = slab_end(&b.clients), looked = 0, checked = 0
    cdef Client* c
    while b.recheck_at < end and looked < IDENTITY_LOOKS_PER_TURN and checked < RECHECKS_PER_TURN:
        c = <Client*>slab_at(&b.clients, b.recheck_at)
        b.recheck_at += 1
        looked += 1
        if c == NULL or c.conn.transport == NULL or c.listener.tls_context == NULL or c.state == C_ENDED or c.conn.flags & CONN_CLOSED:
            continue
        checked += 1
        if not c.listener.tls_context.verifies(c.listener.tls_context, &c.conn):
            client_doom(b, c, RC_ADMINISTRATIVE_ACTION)
    b.rechecks = b.recheck_at < end
    return b.rechecks
