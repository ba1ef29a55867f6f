"""Validate a CONNECT packet before the login [v5 3.1] [v3.1.1 3.1] [v3.1 3.1]: protocol, the listener's versions, TLS identity,
client id, will. This module knows the rules of the packet. It does not know sessions or credentials.
"""

from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memcmp, memcpy

from cext.base.view cimport View
from cext.broker.auth.proxy_info cimport proxied_identity
from cext.broker.auth.tls_identity cimport tls_identity
from cext.broker.core.broker cimport Broker
from cext.broker.core.client cimport END_REFUSED
from cext.broker.core.client_state cimport CF_IDENTIFIED, CF_REMOTE_BRIDGE, CF_TRUSTED, Client
from cext.broker.core.pending_packet cimport owned_view
from cext.broker.lifecycle.passing cimport id_is_own
from cext.broker.packets.connack cimport connect_refuse, connect_refuse_5, connect_refuse_silently, log_refusal
from cext.broker.packets.connect_lines cimport log_malformed_connect, log_protocol_error
from cext.broker.packets.connect_state cimport Connecting, LOGIN_OPEN
from cext.codec.decode cimport CONNECT_HEAD, CONNECT_LOGIN, Connect, decode_connect
from cext.codec.frame cimport V5, V31, V311
from cext.codec.properties cimport P_MAXIMUM_PACKET_SIZE, props_has
from cext.codec.reason cimport (
    CONNACK3_BAD_CREDENTIALS, CONNACK3_IDENTIFIER_REJECTED, CONNACK3_NOT_AUTHORIZED, CONNACK3_PROTOCOL_VERSION,
    CONNACK3_SERVER_UNAVAILABLE, RC_BAD_USERNAME_OR_PASSWORD, RC_CLIENTID_NOT_VALID, RC_NOT_AUTHORIZED, RC_PACKET_TOO_LARGE, RC_PROTOCOL_ERROR,
    RC_QOS_NOT_SUPPORTED, RC_RETAIN_NOT_SUPPORTED, RC_SERVER_UNAVAILABLE, RC_TOPIC_NAME_INVALID, RC_UNSPECIFIED,
    RC_UNSUPPORTED_PROTOCOL_VERSION,
)
from cext.topic.name cimport name_check

cdef enum:
    ASSIGN_TRIES_MAX = 10_000    # with 64 workers, one connection in 10^68 needs more

cdef extern from "<sys/random.h>" nogil:
    ssize_t getrandom(void* p, size_t n, unsigned int flags)


cdef int check_version(Broker* b, Client* c, Connecting* k) noexcept nogil:
    cdef Connect* p = &k.packet
    cdef int rc = decode_connect(k.frame, p)
    if rc == RC_UNSUPPORTED_PROTOCOL_VERSION:
        log_malformed_connect(b, c, k.frame)
        # A level of 3.x under the wrong protocol name gets the answer in 3.x. An unknown level gets it in the latest version
        # [v3.1.1 3.1.2-2] [v5 3.1.2-2].
        c.version = V311 if V31 <= p.version <= V5 else V5
        connect_refuse(b, c, RC_UNSUPPORTED_PROTOCOL_VERSION, CONNACK3_PROTOCOL_VERSION)
        if c.version == V311:
            b.log.refused = RC_PROTOCOL_ERROR
        return END_REFUSED
    if rc:
        c.version = V5 if p.version == V5 else V311
        log_malformed_connect(b, c, k.frame)
        # [v5 3.1.4-1, 4.13.1] [v3.1.1 3.1.4-1] A CONNACK is optional; which errors get one is as in Mosquitto.
        if p.part == CONNECT_HEAD or p.part == CONNECT_LOGIN:
            return connect_refuse_silently(b, c, <uint8_t>rc)
        return connect_refuse_5(b, c, <uint8_t>rc)
    c.version = p.version
    c.packet_max = p.props.packet_max if c.version == V5 and props_has(&p.props, P_MAXIMUM_PACKET_SIZE) else 0
    if not (c.listener.versions >> p.version) & 1:
        return connect_refuse(b, c, RC_UNSUPPORTED_PROTOCOL_VERSION, CONNACK3_PROTOCOL_VERSION)
    return 0


cdef int check_identity(Broker* b, Client* c, Connecting* k) noexcept nogil:
    """Set the user name that the TLS connection or the proxy header proves, if the listener takes it from there."""
    cdef Connect* p = &k.packet
    if p.has_username and p.username.n == 0:
        p.has_username = 0       # an empty user name is none, as in Mosquitto
    if p.has_password and p.password.n == 0:
        p.has_password = 0       # nor is an empty password one: it must not fit the hash of an empty text
    c.flags &= ~<uint8_t>CF_IDENTIFIED       # checked again: a reload may have happened since the first pass
    if not tls_identity(c, p, k.tls_name) and not proxied_identity(c, p):
        return 0
    if p.client_id.n:
        b.log.connecting = p.client_id
    log_refusal(b, c, "bad username or password")
    return connect_refuse(b, c, RC_BAD_USERNAME_OR_PASSWORD, CONNACK3_BAD_CREDENTIALS)


cdef bint prefix_allowed(Broker* b, View id) noexcept nogil:
    """Return whether the id has the prefix of the option clientid_prefixes: one prefix, as in Mosquitto."""
    cdef View prefix = b.settings.clientid_prefixes
    return prefix.n == 0 or (id.n >= prefix.n and memcmp(id.p, prefix.p, prefix.n) == 0)


cdef int assign_id(Broker* b, Client* c, uint8_t* out, View* id) noexcept nogil:
    """Make a client id of auto_id_prefix and a random UUID in capitals. Returns -1 if there are no random bytes."""
    cdef uint8_t random[16]
    cdef const char* hexadecimal = "0123456789ABCDEF"
    cdef uint32_t n = c.listener.auto_id_prefix.n, i
    if getrandom(random, 16, 0) != 16:
        return -1
    random[6] = (random[6] & 0x0F) | 0x40
    random[8] = (random[8] & 0x3F) | 0x80
    if n:
        memcpy(out, c.listener.auto_id_prefix.p, n)
    for i in range(16):
        if i == 4 or i == 6 or i == 8 or i == 10:
            out[n] = c'-'
            n += 1
        out[n] = hexadecimal[random[i] >> 4]
        out[n + 1] = hexadecimal[random[i] & 15]
        n += 2
    id.p = out
    id.n = n
    return 0


cdef int own_id_assign(Broker* b, Client* c, uint8_t* out, View* id) noexcept nogil:
    """Do the same until the id belongs to this worker: on average as many times as there are workers."""
    cdef int _
    for _ in range(ASSIGN_TRIES_MAX):
        if assign_id(b, c, out, id) != 0:
            return -1
        if id_is_own(b, id[0]):
            return 0
    return -1


cdef int check_id(Broker* b, Client* c, Connecting* k) noexcept nogil:
    """Check the client id [v5 3.1.3-4..8] [v3.1.1 3.1.3-6..9] [v3.1 3.1] and set p.client_id to the id that the session gets. As in
    Mosquitto, the rules apply to the id that was sent or assigned, also if the user name then replaces it."""
    cdef Connect* p = &k.packet
    cdef bint by_username = c.listener.use_username_as_clientid
    if k.login != LOGIN_OPEN and c.pending_packet.id_given:
        p.client_id = owned_view(&c.pending_packet.id)
        if not id_is_own(b, p.client_id):       # its session would be at a worker where no other client finds it
            log_refusal(b, c, "a plugin gave it a client identifier that belongs to another worker")
            return connect_refuse(b, c, RC_CLIENTID_NOT_VALID, CONNACK3_IDENTIFIER_REJECTED)
        return 0
    if p.client_id.n == 0:
        if p.version == V31 or (p.version == V311 and not p.clean_start) or not c.listener.allow_zero_length_clientid:
            log_protocol_error(b, c, "v3.1 CONNECT with zero length clientid" if p.version == V31 else
                               "CONNECT with zero length clientid when forbidden")
            return connect_refuse(b, c, RC_UNSPECIFIED, CONNACK3_IDENTIFIER_REJECTED)    # 0x80, as Mosquitto sends
        if k.login != LOGIN_OPEN:
            p.client_id = owned_view(&c.pending_packet.id)       # the id that the auth request contained
        elif own_id_assign(b, c, b.log.assigned, &p.client_id) != 0:
            return connect_refuse(b, c, RC_SERVER_UNAVAILABLE, CONNACK3_SERVER_UNAVAILABLE)
    # With use_username_as_clientid the pending packet has the user name, and the first pass has checked the assigned id.
    if not (k.id_was_empty and by_username and k.login != LOGIN_OPEN) and not prefix_allowed(b, p.client_id) \
            and not c.flags & CF_TRUSTED:
        log_refusal(b, c, "client identifier without an allowed prefix")
        return connect_refuse(b, c, RC_NOT_AUTHORIZED, CONNACK3_NOT_AUTHORIZED)
    if by_username:
        if not p.has_username:
            return connect_refuse(b, c, RC_NOT_AUTHORIZED, CONNACK3_NOT_AUTHORIZED)
        p.client_id = p.username
    return 0


cdef int check_will_flags(Broker* b, Client* c, const Connect* p) noexcept nogil:
    """Check what CONNACK would announce. As in Mosquitto, it comes before the client id."""
    if p.will and p.will_retain and not b.settings.retain_available:     # [v5 3.2.2-13]
        log_refusal(b, c, "will retain not supported")
        return connect_refuse_5(b, c, RC_RETAIN_NOT_SUPPORTED)
    if p.will and p.will_qos > c.listener.max_qos:       # [v5 3.2.2-12]
        log_refusal(b, c, "will QoS not supported")
        return connect_refuse_5(b, c, RC_QOS_NOT_SUPPORTED)
    return 0


cdef int check_will(Broker* b, Client* c, Connect* p) noexcept nogil:
    if not p.will:
        return 0
    if name_check(p.will_topic.p, p.will_topic.n) != 0:
        log_refusal(b, c, "will topic not valid")
        return connect_refuse_5(b, c, RC_TOPIC_NAME_INVALID)
    if b.settings.message_size_limit and p.will_payload.n > b.settings.message_size_limit:
        log_refusal(b, c, "will payload too large")
        return connect_refuse(b, c, RC_PACKET_TOO_LARGE, CONNACK3_NOT_AUTHORIZED)
    return 0


cdef int connect_validate(Broker* b, Client* c, Connecting* k) noexcept nogil:
    cdef int rc = check_version(b, c, k)
    if rc:
        return rc
    k.id_was_empty = k.packet.client_id.n == 0
    if k.packet.bridge:
        c.flags |= CF_REMOTE_BRIDGE
    rc = check_will_flags(b, c, &k.packet)
    rc = rc or check_identity(b, c, k)
    rc = rc or check_id(b, c, k)
    rc = rc or check_will(b, c, &k.packet)
    if rc == 0:
        b.log.connecting = k.packet.client_id
    return rc
