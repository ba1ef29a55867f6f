# Encoders of the packets that a server sends. This module knows the bytes of packets. It does not know why they are sent, and
# does not allocate room for them.
# Invariant: each encoder writes as many bytes as its *_size function returns. Cost: one pass and one copy of each view.
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy
from cext.base.view cimport View
from cext.codec.field cimport prop_u16_put, prop_u32_put, u16_put, view_put
from cext.codec.frame cimport (
    T_AUTH, T_CONNACK, T_DISCONNECT, T_PINGRESP, T_PUBLISH, T_PUBREL, T_SUBACK, V5, varint_put, varint_size,
)
from cext.codec.properties cimport (
    P_ASSIGNED_CLIENT_ID, P_AUTH_DATA, P_AUTH_METHOD, P_MAXIMUM_PACKET_SIZE, P_MAXIMUM_QOS, P_MESSAGE_EXPIRY, P_RECEIVE_MAXIMUM,
    P_RETAIN_AVAILABLE, P_SERVER_KEEP_ALIVE, P_SERVER_REFERENCE, P_SESSION_EXPIRY, P_SUBSCRIPTION_ID, P_TOPIC_ALIAS, P_TOPIC_ALIAS_MAXIMUM,
)
from cext.codec.reason cimport RC_USE_ANOTHER_SERVER

cdef enum:
    REMAINING_MAX = 268435455   # [v5 1.5.5]


cdef inline uint8_t* prop_u8_put(uint8_t* out, int prop, uint8_t v) noexcept nogil:
    out[0] = <uint8_t>prop
    out[1] = v
    return out + 2


# Authentication method and data

cdef inline uint32_t auth_props_size(View method, View data) noexcept nogil:
    return (3 + method.n if method.n else 0) + (3 + data.n if data.p != NULL else 0)


cdef inline uint8_t* auth_props_put(uint8_t* out, View method, View data) noexcept nogil:
    if method.n:
        out[0] = P_AUTH_METHOD
        out = view_put(out + 1, method)
    if data.p != NULL:
        out[0] = P_AUTH_DATA
        out = view_put(out + 1, data)
    return out


cdef uint32_t auth_size(View method, View data) noexcept nogil:
    return 10 + auth_props_size(method, data)        # type, reason code, two lengths


cdef uint8_t* encode_auth(uint8_t* out, uint8_t rc, View method, View data) noexcept nogil:
    cdef uint32_t n = auth_props_size(method, data)
    out[0] = T_AUTH << 4
    out = varint_put(out + 1, 1 + varint_size(n) + n)
    out[0] = rc
    return auth_props_put(varint_put(out + 1, n), method, data)


# CONNACK

cdef uint32_t connack_props_size(const Connack* c) noexcept nogil:
    cdef uint32_t n = 2 if c.has_max_qos else 0
    if c.rc >= 0x80:
        return n
    n += 3 if c.alias_max else 0
    n += 3 if c.has_server_keep_alive else 0
    n += 3 + c.assigned_client_id.n if c.assigned_client_id.n else 0
    n += auth_props_size(c.auth_method, c.auth_data)
    n += 5 if c.has_session_expiry else 0
    n += 2 if c.retain_unavailable else 0
    n += 5 if c.packet_max else 0
    n += 3 if c.receive_max else 0
    return n


cdef uint8_t* connack_props_put(uint8_t* out, const Connack* c) noexcept nogil:
    # The order is that of Mosquitto 2.1. A refused client gets the Maximum QoS only.
    if c.rc >= 0x80:
        return prop_u8_put(out, P_MAXIMUM_QOS, c.max_qos)
    if c.has_server_keep_alive:
        out = prop_u16_put(out, P_SERVER_KEEP_ALIVE, c.server_keep_alive)
    if c.alias_max:
        out = prop_u16_put(out, P_TOPIC_ALIAS_MAXIMUM, c.alias_max)
    if c.assigned_client_id.n:
        out[0] = P_ASSIGNED_CLIENT_ID
        out = view_put(out + 1, c.assigned_client_id)
    out = auth_props_put(out, c.auth_method, c.auth_data)
    if c.has_session_expiry:
        out = prop_u32_put(out, P_SESSION_EXPIRY, c.session_expiry)
    if c.retain_unavailable:
        out = prop_u8_put(out, P_RETAIN_AVAILABLE, 0)
    if c.packet_max:
        out = prop_u32_put(out, P_MAXIMUM_PACKET_SIZE, c.packet_max)
    if c.receive_max:
        out = prop_u16_put(out, P_RECEIVE_MAXIMUM, c.receive_max)
    if c.has_max_qos:
        out = prop_u8_put(out, P_MAXIMUM_QOS, c.max_qos)
    return out


cdef uint32_t connack_size(const Connack* c) noexcept nogil:
    # Headers and lengths, then all other properties.
    return 12 + c.assigned_client_id.n + auth_props_size(c.auth_method, c.auth_data) + 32


cdef uint32_t connack_remaining(const Connack* c) noexcept nogil:
    cdef uint32_t n = connack_props_size(c)
    return 2 + varint_size(n) + n if c.version == V5 else 2


cdef uint32_t connack_bytes(const Connack* c) noexcept nogil:
    cdef uint32_t remaining = connack_remaining(c)
    return 1 + varint_size(remaining) + remaining


cdef uint8_t* encode_connack(uint8_t* out, const Connack* c) noexcept nogil:
    cdef uint32_t n = connack_props_size(c), remaining = connack_remaining(c)
    out[0] = T_CONNACK << 4
    out = varint_put(out + 1, remaining)
    out[0] = 1 if c.session_present else 0
    out[1] = c.rc
    out += 2
    if c.version == V5:
        out = varint_put(out, n)
        if n:
            out = connack_props_put(out, c)
    return out


# Acknowledgements, DISCONNECT, PINGRESP

cdef uint8_t* encode_ack(uint8_t* out, int packet_type, int version, uint16_t pid, uint8_t rc) noexcept nogil:
    out[0] = <uint8_t>(packet_type << 4 | (2 if packet_type == T_PUBREL else 0))
    out[1] = 2
    u16_put(out + 2, pid)
    if rc == 0 or version != V5:
        return out + 4
    out[1] = 3
    out[4] = rc
    return out + 5


cdef uint8_t* encode_disconnect(uint8_t* out, uint8_t rc) noexcept nogil:
    out[0] = T_DISCONNECT << 4
    out[1] = 0
    if rc == 0:                     # [v5 3.14.2.1]
        return out + 2
    out[1] = 1
    out[2] = rc
    return out + 3


cdef uint32_t disconnect_elsewhere_size(View reference) noexcept nogil:
    cdef uint32_t n = 3 + reference.n
    return 2 + varint_size(1 + varint_size(n) + n) + varint_size(n) + n if reference.n else 3


cdef uint8_t* encode_disconnect_elsewhere(uint8_t* out, View reference) noexcept nogil:
    cdef uint32_t n = 3 + reference.n if reference.n else 0
    if n == 0:
        return encode_disconnect(out, RC_USE_ANOTHER_SERVER)
    out[0] = T_DISCONNECT << 4
    out = varint_put(out + 1, 1 + varint_size(n) + n)
    out[0] = RC_USE_ANOTHER_SERVER
    out = varint_put(out + 1, n)
    out[0] = P_SERVER_REFERENCE     # [v5 3.14.2.2.5]
    return view_put(out + 1, reference)


cdef uint8_t* encode_pingresp(uint8_t* out) noexcept nogil:
    out[0] = T_PINGRESP << 4
    out[1] = 0
    return out + 2


cdef uint32_t suback_size(int version, uint32_t n_codes) noexcept nogil:
    # For an UNSUBACK of 3.x the result is an upper bound.
    cdef uint32_t remaining = (3 if version == V5 else 2) + n_codes
    return 1 + varint_size(remaining) + remaining


cdef uint8_t* encode_suback(uint8_t* out, int packet_type, int version, uint16_t pid, const uint8_t* codes,
                            uint32_t n_codes) noexcept nogil:
    if version != V5 and packet_type != T_SUBACK:
        n_codes = 0                 # [v3.1.1 3.11]
    out[0] = <uint8_t>(packet_type << 4)
    out = varint_put(out + 1, (3 if version == V5 else 2) + n_codes)
    out = u16_put(out, pid)
    if version == V5:
        out[0] = 0
        out += 1
    if n_codes:
        memcpy(out, codes, n_codes)
    return out + n_codes


# PUBLISH

cdef uint32_t publish_props_size(const PublishHead* h) noexcept nogil:
    cdef uint32_t n = h.props.n, i
    if h.has_expiry:
        n += 5
    if h.alias:
        n += 3
    for i in range(h.n_sub_ids):
        n += 1 + varint_size(h.sub_ids[i])
    return n


cdef uint8_t* publish_props_put(uint8_t* out, const PublishHead* h) noexcept nogil:
    # Order: forwarded properties, expiry, alias, subscription identifiers, as in Mosquitto 2.1.
    cdef uint32_t i
    out = varint_put(out, publish_props_size(h))
    if h.props.n:
        memcpy(out, h.props.p, h.props.n)
        out += h.props.n
    if h.has_expiry:
        out = prop_u32_put(out, P_MESSAGE_EXPIRY, h.expiry)
    if h.alias:
        out = prop_u16_put(out, P_TOPIC_ALIAS, h.alias)
    for i in range(h.n_sub_ids):
        out[0] = P_SUBSCRIPTION_ID
        out = varint_put(out + 1, h.sub_ids[i])
    return out


cdef uint32_t publish_head_size(const PublishHead* h, uint32_t* remaining) noexcept nogil:
    cdef uint32_t head = 2 + h.topic.n + (2 if h.qos else 0)
    cdef uint32_t n
    if h.version == V5:
        n = publish_props_size(h)
        head += varint_size(n) + n
    if h.topic.n > 65535 or <uint64_t>head + h.payload_len > REMAINING_MAX:
        return 0
    remaining[0] = head + h.payload_len
    return 1 + varint_size(remaining[0]) + head


cdef uint8_t* publish_head_put(uint8_t* out, const PublishHead* h, uint32_t remaining, uint32_t* pid_at) noexcept nogil:
    cdef uint8_t* start = out
    out[0] = <uint8_t>(T_PUBLISH << 4 | h.dup << 3 | h.qos << 1 | h.retain)
    out = view_put(varint_put(out + 1, remaining), h.topic)
    if h.qos:
        if pid_at != NULL:
            pid_at[0] = <uint32_t>(out - start)
        out = u16_put(out, h.pid)
    if h.version == V5:
        out = publish_props_put(out, h)
    return out
