# The client's side of the codec: encoders for packets that a client sends, decoders for packets that a server sends. This module
# knows the bytes of packets. It does not know topics, sessions, limits, or why a bridge connects.
# Invariant: the sizes are exact; the decoders account for every byte of a frame and read nothing outside
# it. Cost: linear; no allocation.
#
# The decoders are less strict with servers than with clients where that does no harm: they accept any failure code, because a
# bridge must not break over a code that the packet's clause does not list (Mosquitto sends 0x95 in PUBACK).
from libc.stdint cimport uint8_t, uint16_t, uint32_t
from cext.base.view cimport View
from cext.codec.decode cimport Ack
from cext.codec.field cimport be16, prop_u16_put, prop_u32_put, u16_put, view_put
from cext.codec.frame cimport (
    Frame, T_CONNACK, T_CONNECT, T_DISCONNECT, T_PINGREQ, T_PUBREL, T_SUBACK, T_SUBSCRIBE, T_UNSUBSCRIBE, V31, V311, V5,
    varint_put, varint_size,
)
from cext.codec.properties cimport (
    P_MAXIMUM_PACKET_SIZE, P_RECEIVE_MAXIMUM, P_SESSION_EXPIRY, P_TOPIC_ALIAS_MAXIMUM, props_decode, props_last, props_none,
)
from cext.codec.reason cimport RC_MALFORMED, RC_PROTOCOL_ERROR


# CONNECT

cdef uint32_t connect_props_size(const ConnectOut* c) noexcept nogil:
    return ((5 if c.session_expiry else 0) + (3 if c.receive_max else 0) + (5 if c.packet_max else 0) + (3 if c.alias_max else 0))


cdef uint32_t connect_remaining(const ConnectOut* c) noexcept nogil:
    cdef uint32_t n = (8 if c.version == V31 else 6) + 4 + 2 + c.client_id.n
    cdef uint32_t props
    if c.version == V5:
        props = connect_props_size(c)
        n += varint_size(props) + props
    if c.has_will:
        n += 4 + c.will_topic.n + c.will_payload.n + (1 if c.version == V5 else 0)
    if c.has_username:
        n += 2 + c.username.n
    if c.has_password:
        n += 2 + c.password.n
    return n


cdef uint32_t connect_size(const ConnectOut* c) noexcept nogil:
    cdef uint32_t n = connect_remaining(c)
    return 1 + varint_size(n) + n


cdef uint8_t connect_flags_out(const ConnectOut* c) noexcept nogil:
    cdef uint8_t flags = 0
    if c.clean_start:
        flags |= 0x02
    if c.has_will:
        flags |= 0x04 | <uint8_t>(c.will_qos << 3) | (0x20 if c.will_retain else 0)
    if c.has_password:
        flags |= 0x40
    if c.has_username:
        flags |= 0x80
    return flags


cdef uint8_t* encode_connect(uint8_t* out, const ConnectOut* c) noexcept nogil:
    cdef View name
    name.p = <const uint8_t*>b"MQIsdp" if c.version == V31 else <const uint8_t*>b"MQTT"
    name.n = 6 if c.version == V31 else 4
    out[0] = T_CONNECT << 4
    out = view_put(varint_put(out + 1, connect_remaining(c)), name)
    out[0] = c.version | (0x80 if c.bridge and c.version != V5 else 0)
    out[1] = connect_flags_out(c)
    out = u16_put(out + 2, c.keepalive)
    if c.version == V5:
        out = varint_put(out, connect_props_size(c))
        if c.alias_max:                     # the order of Mosquitto's bridges
            out = prop_u16_put(out, P_TOPIC_ALIAS_MAXIMUM, c.alias_max)
        if c.session_expiry:
            out = prop_u32_put(out, P_SESSION_EXPIRY, c.session_expiry)
        if c.receive_max:
            out = prop_u16_put(out, P_RECEIVE_MAXIMUM, c.receive_max)
        if c.packet_max:
            out = prop_u32_put(out, P_MAXIMUM_PACKET_SIZE, c.packet_max)
    out = view_put(out, c.client_id)
    if c.has_will:
        if c.version == V5:
            out = varint_put(out, 0)
        out = view_put(view_put(out, c.will_topic), c.will_payload)
    if c.has_username:
        out = view_put(out, c.username)
    if c.has_password:
        out = view_put(out, c.password)
    return out


# SUBSCRIBE, UNSUBSCRIBE, PINGREQ

cdef inline uint32_t items_remaining(int version, View filter) noexcept nogil:
    return 2 + (1 if version == V5 else 0) + 2 + filter.n


cdef inline uint8_t* items_put(uint8_t* out, int packet_type, int version, uint16_t pid, View filter, uint32_t remaining) noexcept nogil:
    out[0] = <uint8_t>(packet_type << 4 | 2)
    out = u16_put(varint_put(out + 1, remaining), pid)
    if version == V5:
        out = varint_put(out, 0)
    return view_put(out, filter)


cdef uint32_t subscribe_size(int version, View filter) noexcept nogil:
    cdef uint32_t n = items_remaining(version, filter) + 1
    return 1 + varint_size(n) + n


cdef uint8_t* encode_subscribe(uint8_t* out, int version, uint16_t pid, View filter, uint8_t options) noexcept nogil:
    out = items_put(out, T_SUBSCRIBE, version, pid, filter, items_remaining(version, filter) + 1)
    out[0] = options
    return out + 1


cdef uint32_t unsubscribe_size(int version, View filter) noexcept nogil:
    cdef uint32_t n = items_remaining(version, filter)
    return 1 + varint_size(n) + n


cdef uint8_t* encode_unsubscribe(uint8_t* out, int version, uint16_t pid, View filter) noexcept nogil:
    return items_put(out, T_UNSUBSCRIBE, version, pid, filter, items_remaining(version, filter))


cdef uint8_t* encode_pingreq(uint8_t* out) noexcept nogil:
    out[0] = T_PINGREQ << 4
    out[1] = 0
    return out + 2


# Packets from a server

cdef int decode_connack(const Frame* f, int version, ConnackIn* out) noexcept nogil:
    cdef const uint8_t* p = f.body
    cdef const uint8_t* end = p + f.body_len
    props_none(&out.props)
    if f.first & 15 or f.body_len < 2:
        return RC_MALFORMED
    if p[0] > 1 and version != V31:         # [v5 3.2.2.1] [v3.1.1 3.2.2.1]
        return RC_MALFORMED
    out.session_present = p[0] & 1 if version != V31 else 0
    out.rc = p[1]
    out.version = <uint8_t>version
    if out.rc and out.session_present:      # [v5 3.2.2-6] [v3.1.1 3.2.2-4]
        return RC_PROTOCOL_ERROR
    if version != V5 or f.body_len == 2:
        if f.body_len != 2:
            return RC_MALFORMED
        if version == V5:
            out.version = V311              # a server that does not support 5.0
            if out.rc == 0 or out.rc > 5:
                return RC_MALFORMED
        return 0
    if 0 < out.rc < 0x80:
        return RC_PROTOCOL_ERROR
    return props_last(p + 2, end, T_CONNACK, &out.props)


cdef int decode_suback(const Frame* f, int version, Suback* out) noexcept nogil:
    cdef const uint8_t* p = f.body
    cdef const uint8_t* end = p + f.body_len
    cdef int t = f.first >> 4
    cdef int rc
    props_none(&out.props)
    if f.first & 15 or f.body_len < 2:
        return RC_MALFORMED
    out.pid = be16(p)
    p += 2
    if out.pid == 0:
        return RC_PROTOCOL_ERROR
    if version == V5:
        rc = props_decode(&p, end, t, &out.props)
        if rc != 0:
            return rc
    out.codes.p = p
    out.codes.n = <uint32_t>(end - p)
    if version != V5 and t != T_SUBACK:
        return 0 if out.codes.n == 0 else RC_MALFORMED
    return 0 if out.codes.n else RC_MALFORMED


cdef int decode_server_disconnect(const Frame* f, int version, ServerDisconnect* out) noexcept nogil:
    cdef const uint8_t* p = f.body
    cdef const uint8_t* end = p + f.body_len
    out.rc = 0
    props_none(&out.props)
    if version != V5:                       # [v3.1.1 3.14] only clients send DISCONNECT
        return RC_PROTOCOL_ERROR
    if f.first & 15:
        return RC_MALFORMED
    if f.body_len == 0:
        return 0
    out.rc = p[0]
    if 0 < out.rc < 0x80:
        return RC_PROTOCOL_ERROR
    if f.body_len == 1:
        return 0
    return props_last(p + 1, end, T_DISCONNECT, &out.props)


cdef int decode_server_ack(const Frame* f, int version, Ack* out) noexcept nogil:
    cdef const uint8_t* p = f.body
    cdef const uint8_t* end = p + f.body_len
    cdef int t = f.first >> 4
    cdef uint8_t flags = 2 if t == T_PUBREL else 0
    out.rc = 0
    props_none(&out.props)
    if f.body_len < 2 or ((f.first & 15) != flags and not (version == V31 and t == T_PUBREL)):
        return RC_MALFORMED
    out.pid = be16(p)
    if out.pid == 0:
        return RC_PROTOCOL_ERROR
    if f.body_len == 2:
        return 0
    if version != V5:
        return RC_MALFORMED
    out.rc = p[2]
    if 0 < out.rc < 0x80 and out.rc != 0x10:
        return RC_PROTOCOL_ERROR
    if f.body_len == 3:
        return 0
    return props_last(p + 3, end, t, &out.props)
