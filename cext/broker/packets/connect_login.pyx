"""The login of a CONNECT: authentication method, user name and password, or anonymous access. If the control plane has to decide,
the packet becomes a pending packet (C_AUTHENTICATING); AUTH packets [v5 4.12] come in between (handle_auth.pyx). This module
knows the settings of listeners and auth requests. It does not know passwords.
"""

from libc.stdint cimport uint8_t, uint32_t
from libc.stdio cimport snprintf
from libc.stdlib cimport malloc
from libc.string cimport memcpy

from cext.base.view cimport View
from cext.base.wheel cimport wheel_remove
from cext.broker.auth.auth_requests cimport (
    ASK_CONNECT, AuthRequest, auth_request_end, auth_request_handle, auth_request_new, auth_request_send,
)
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport CF_IDENTIFIED, CF_TRUSTED, C_AUTHENTICATING, Client, PENDING_CONNECT, PendingPacket
from cext.broker.core.pending_packet cimport (
    PACKET_PENDING, names_take, owned_set, owned_view, pending_packet_free, pending_packet_new,
)
from cext.broker.core.stats cimport REFUSED_ACCESS, REFUSED_MEMORY
from cext.broker.lifecycle.session_lifecycle cimport client_end
from cext.broker.packets.connack cimport connect_refuse, log_refusal_why, log_refusal
from cext.broker.packets.connect_state cimport Connecting, LOGIN_ALLOWED, LOGIN_NO_OPINION, LOGIN_NOT_CHECKED
from cext.codec.decode cimport Connect, decode_connect
from cext.codec.frame cimport Frame, V5, frame_next
from cext.codec.properties cimport P_AUTH_METHOD, props_has
from cext.codec.reason cimport (
    CONNACK3_BAD_CREDENTIALS, CONNACK3_IDENTIFIER_REJECTED, CONNACK3_NOT_AUTHORIZED, CONNACK3_SERVER_UNAVAILABLE,
    RC_BAD_AUTHENTICATION_METHOD, RC_BAD_USERNAME_OR_PASSWORD, RC_CLIENTID_NOT_VALID, RC_CONNECTION_RATE_EXCEEDED,
    RC_NOT_AUTHORIZED, RC_SERVER_BUSY, RC_SERVER_UNAVAILABLE,
)

cdef extern from "<sys/socket.h>" nogil:
    ssize_t recv(int fd, void* p, size_t n, int flags)
    int MSG_PEEK, MSG_DONTWAIT

cdef enum:
    PLUGIN_SHOWN_MAX = 80       # bytes of a plugin's name in the log


cdef int not_authorised(Broker* b, Client* c, const Connect* p) noexcept nogil:
    """Refuse a login. Log why, if the reason is the configuration and not a wrong password."""
    b.stats.refused[REFUSED_ACCESS] += 1
    if not p.has_username:
        log_refusal_why(b, c, "it sent no user name, and allow_anonymous is false")
    elif not c.listener.security.authenticate:
        log_refusal_why(b, c, "allow_anonymous is false, and no password_file or plugin knows any user")
    return connect_refuse(b, c, RC_NOT_AUTHORIZED, CONNACK3_NOT_AUTHORIZED)


cdef inline bint is_checked(const Client* c, const Connect* p) noexcept nogil:
    """Return whether the control plane checks the credentials of this client."""
    return (c.listener.security.authenticate and (p.has_username or c.listener.security.authenticate_anonymous)
            and not c.flags & CF_IDENTIFIED)


cdef int pending_fill(Client* c, PendingPacket* pending, const Connecting* k) noexcept nogil:
    """Copy the packet, a client id that is not in it, and the authentication method. Returns -1 if there is no memory."""
    if (k.id_was_empty or c.listener.use_username_as_clientid) and owned_set(&pending.id, k.packet.client_id) != 0:
        return -1
    if k.packet.version == V5 and props_has(&k.packet.props, P_AUTH_METHOD) and (
            names_take(c) == NULL or owned_set(&c.names.method, k.packet.props.auth_method) != 0):
        return -1
    pending.frame = <uint8_t*>malloc(k.frame.total_len)
    if pending.frame == NULL:
        return -1
    memcpy(pending.frame, k.frame.start, k.frame.total_len)
    pending.frame_n = k.frame.total_len
    return 0


cdef int login_request(Broker* b, Client* c, Connecting* k) noexcept nogil:
    """Ask the control plane about the login, and keep a copy of the packet as the client's pending packet."""
    cdef PendingPacket* pending = pending_packet_new(b, c, PENDING_CONNECT)
    cdef AuthRequest* q = NULL
    if pending != NULL:
        q = auth_request_new(b, ASK_CONNECT, c, NULL, NULL)
    if q == NULL or pending_fill(c, pending, k) != 0:
        if q != NULL:
            auth_request_end(b, q)
        pending_packet_free(b, c)
        b.stats.refused[REFUSED_MEMORY] += 1
        return connect_refuse(b, c, RC_SERVER_BUSY, CONNACK3_SERVER_UNAVAILABLE)
    c.state = C_AUTHENTICATING
    c.auth_request = auth_request_handle(q)
    wheel_remove(&b.wheel, &c.timer)     # the auth request has a deadline of its own
    auth_request_send(b, q)
    return PACKET_PENDING


cdef int login_check(Broker* b, Client* c, Connecting* k) noexcept nogil:
    cdef Connect* p = &k.packet
    cdef bint has_method = p.version == V5 and props_has(&p.props, P_AUTH_METHOD)
    if has_method and (c.flags & CF_TRUSTED or not c.listener.security.extended):
        log_refusal(b, c, "bad authentication method")
        return connect_refuse(b, c, RC_BAD_AUTHENTICATION_METHOD, 0)     # [v5 4.12.0-1]
    if c.flags & CF_TRUSTED:
        return 0
    if k.login == LOGIN_NO_OPINION:
        return 0 if c.listener.allow_anonymous and not p.has_username else not_authorised(b, c, p)
    if k.login == LOGIN_NOT_CHECKED:
        return 0 if c.listener.allow_anonymous else not_authorised(b, c, p)
    if k.login == LOGIN_ALLOWED:
        if c.pending_packet.text.p != NULL:
            p.has_username = c.pending_packet.text.n != 0
            p.username = owned_view(&c.pending_packet.text)
        return 0
    if has_method or is_checked(c, p):
        return login_request(b, c, k)
    # Without a component that checks user names, any user name is accepted if anonymous clients are allowed, as in Mosquitto.
    if c.listener.allow_anonymous and (not p.has_username or not c.listener.security.authenticate):
        return 0
    if c.flags & CF_IDENTIFIED:
        return 0
    return not_authorised(b, c, p)


cdef bint peer_has_closed(Client* c) noexcept nogil:
    """Return whether the peer has closed the connection. The broker did not read from the client while it waited. Data that the
    client sent before it closed still counts."""
    cdef uint8_t byte
    return c.conn.in_buf == NULL and c.conn.web == NULL and recv(c.conn.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0


cdef void log_name_of_pending(Broker* b, Client* c) noexcept nogil:
    """Set the client id that the log line shows for the pending CONNECT."""
    cdef Frame f
    cdef Connect p
    if frame_next(c.pending_packet.frame, c.pending_packet.frame_n, 0, &f) == 1 and decode_connect(&f, &p) == 0 and p.client_id.n:
        b.log.connecting = p.client_id


cdef void log_refused_by(Broker* b, Client* c, View plugin) noexcept nogil:
    cdef char why[PLUGIN_SHOWN_MAX + 40]
    if plugin.p != NULL:
        log_name_of_pending(b, c)
        snprintf(why, sizeof(why), "the plugin %.*s refuses the login", <int>min(plugin.n, <uint32_t>PLUGIN_SHOWN_MAX), <const char*>plugin.p)
        log_refusal_why(b, c, why)


cdef void login_refuse(Broker* b, Client* c, int rc) noexcept nogil:
    """Refuse a login with the reason code of the control plane. 3.x knows six of the codes. A wrong password gets the same code
    as an unknown user, as in Mosquitto."""
    cdef uint8_t rc5 = <uint8_t>rc if 0x80 <= rc <= 0xFF else RC_NOT_AUTHORIZED
    cdef uint8_t rc3 = CONNACK3_NOT_AUTHORIZED
    if rc5 == RC_CLIENTID_NOT_VALID:
        rc3 = CONNACK3_IDENTIFIER_REJECTED
    elif rc5 == RC_SERVER_UNAVAILABLE or rc5 == RC_SERVER_BUSY or rc5 == RC_CONNECTION_RATE_EXCEEDED:
        rc3 = CONNACK3_SERVER_UNAVAILABLE
    elif rc5 == RC_BAD_USERNAME_OR_PASSWORD:
        rc3 = CONNACK3_BAD_CREDENTIALS
    b.stats.refused[REFUSED_ACCESS] += 1
    log_name_of_pending(b, c)
    if rc5 == RC_CONNECTION_RATE_EXCEEDED:
        log_refusal(b, c, "too many logins of its user name or address have failed, see auth_backoff")
    client_end(b, c, connect_refuse(b, c, rc5, rc3))
    b.log.connecting.p = NULL
