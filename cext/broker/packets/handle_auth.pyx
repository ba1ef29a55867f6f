"""Handle AUTH [v5 3.15, 4.12]: the steps of extended authentication, during CONNECT and for a connected client that authenticates
itself again. This module knows whose turn it is. The contents of the steps concern only the client and the plugin.

    CONNECT -> auth request -> 0x18: AUTH to the client -> AUTH from it -> auth request -> ...
            -> 0: CONNACK | else: CONNACK, refused
    AUTH 0x19 of a connected client -> auth request -> 0x18: AUTH to it -> AUTH 0x18 from it -> ...
            -> 0: AUTH 0 | else: DISCONNECT

While an auth request is open, the broker reads nothing from the client. Between the steps of a re-authentication the client keeps
its former rights.
"""

from libc.stdint cimport uint8_t
from libc.string cimport memcmp

from cext.base.view cimport View
from cext.base.wheel cimport wheel_remove
from cext.broker.auth.auth_requests cimport (
    ASK_AUTH, AuthAnswer, AuthRequest, auth_request_bytes, auth_request_handle, auth_request_new, auth_request_of,
    auth_request_send, client_auth_request_end,
)
from cext.broker.core.broker cimport Broker
from cext.broker.core.client cimport auth_send, log_packet
from cext.broker.core.client_state cimport CF_REAUTH, C_AUTHENTICATING, Client, PENDING_AUTH
from cext.broker.core.log cimport LOG_DEBUG, log_wanted
from cext.broker.core.pending_packet cimport (
    method_of, pending_packet_free, pending_packet_new, pending_packet_resume, pending_packet_wait,
)
from cext.broker.core.stats cimport REFUSED_ACCESS, REFUSED_AUTH_TIMEOUT
from cext.broker.lifecycle.session_lifecycle cimport client_end
from cext.codec.decode cimport Auth, decode_auth
from cext.codec.frame cimport Frame, T_AUTH, V5
from cext.codec.properties cimport P_AUTH_DATA, props_has
from cext.codec.reason cimport (
    RC_CONTINUE_AUTHENTICATION, RC_NOT_AUTHORIZED, RC_PROTOCOL_ERROR, RC_QUOTA_EXCEEDED, RC_REAUTHENTICATE, RC_SUCCESS,
)


cdef int check_turn(Client* c, Auth* a) noexcept nogil:
    if c.state == C_AUTHENTICATING:
        return 0 if a.rc == RC_CONTINUE_AUTHENTICATION else RC_PROTOCOL_ERROR
    if a.rc == RC_CONTINUE_AUTHENTICATION:
        return 0 if c.flags & CF_REAUTH else RC_PROTOCOL_ERROR
    if a.rc == RC_REAUTHENTICATE and not c.flags & CF_REAUTH and c.listener.security.extended:
        return 0                 # [v5 4.12.1-1]
    return RC_PROTOCOL_ERROR


cdef int handle_auth(Broker* b, Client* c, const Frame* f) noexcept nogil:
    cdef Auth a
    cdef View method
    cdef int rc
    method = method_of(c)
    if c.version != V5 or method.p == NULL:     # [v5 4.12.0-6] the client has not begun an authentication
        return RC_PROTOCOL_ERROR
    rc = decode_auth(f, c.version, &a)
    if rc:
        return rc
    if log_wanted(&b.log, LOG_DEBUG):
        log_packet(b, c, "Received", T_AUTH, -1, -1)
    if a.props.auth_method.n != method.n or memcmp(a.props.auth_method.p, method.p, method.n) != 0:
        return RC_PROTOCOL_ERROR         # [v5 4.12.0-5, 4.12.0-7]
    rc = check_turn(c, &a)
    return rc if rc else auth_request_step(b, c, &a)


cdef int auth_request_step(Broker* b, Client* c, Auth* a) noexcept nogil:
    cdef AuthRequest* q = auth_request_of(b, c.auth_request)
    if q == NULL:
        q = auth_request_new(b, ASK_AUTH, c, NULL, NULL)
        if q == NULL:
            return RC_QUOTA_EXCEEDED
        c.auth_request = auth_request_handle(q)
    q.kind = ASK_AUTH
    q.reauth = c.state != C_AUTHENTICATING
    if q.reauth:
        c.flags |= CF_REAUTH
    if not props_has(&a.props, P_AUTH_DATA):
        a.props.auth_data.p = NULL
    if auth_request_bytes(q, a.props.auth_data) != 0:
        return RC_QUOTA_EXCEEDED
    if c.pending_packet != NULL:
        pending_packet_wait(b, c)
        wheel_remove(&b.wheel, &c.timer)
    elif pending_packet_new(b, c, PENDING_AUTH) == NULL:
        return RC_QUOTA_EXCEEDED
    auth_request_send(b, q)
    return 0


cdef void auth_answered(Broker* b, Client* c, const AuthAnswer* a) noexcept nogil:
    if a.verdict == RC_CONTINUE_AUTHENTICATION or a.verdict == RC_SUCCESS:
        auth_send(b, c, <uint8_t>a.verdict, a.bytes)
        if a.verdict == RC_SUCCESS:
            c.flags &= ~<uint8_t>CF_REAUTH
            client_auth_request_end(b, c)
        pending_packet_resume(b, c)
        pending_packet_free(b, c)
        return
    b.stats.refused[REFUSED_ACCESS] += 1
    client_end(b, c, a.verdict if 0x80 <= a.verdict <= 0xFF else RC_NOT_AUTHORIZED)     # [v5 4.12.1-2]


cdef void auth_timed_out(Broker* b, Client* c) noexcept nogil:
    b.stats.refused[REFUSED_AUTH_TIMEOUT] += 1
    client_end(b, c, RC_NOT_AUTHORIZED)
