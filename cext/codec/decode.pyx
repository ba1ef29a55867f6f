# Decoders: one for each packet that a client may send. The decoders are sans-IO: they take a frame and fill a struct with views
# into it, or return the reason code that the standard names. They know what a packet may contain. They do not know topics,
# sessions, limits or earlier packets.
# Invariant: a decoder accounts for every byte of the frame and reads nothing outside it. Cost: linear; no allocation.
#
# Where the standard names the reason code, it decides; COMPAT_ adds the code that Mosquitto sends (both end the client):
#   - SUBSCRIBE with QoS 3, with Retain Handling 3 or without a filter, and UNSUBSCRIBE without a filter: Protocol Error
#     [v5 3.8.3-2, 3.10.3-2, 3.8.3.1]; Mosquitto: Malformed.
#   - PUBLISH without topic and alias: Protocol Error [v5 3.3.2.1]; Mosquitto: Malformed.
#   - Wrong flags of DISCONNECT: Malformed [v5 3.14.1]; Mosquitto: Protocol Error.
# Where the standard leaves a choice, the decoders do as Mosquitto does:
#   - Packet id 0 is a Protocol Error, in SUBSCRIBE and UNSUBSCRIBE Malformed. Wrong flags of PUBREL are a Protocol Error.
#   - A block of properties that is cut short is Malformed, also if a property before the end does not belong there.
#   - A client id with bad UTF-8 gets 0x85 [v5 3.1.3-8].
#   - DISCONNECT may carry any reason code: the client is gone in any case.
# Two differences remain: AUTH without a reason code means Success, which only servers send (Mosquitto takes it as a
# continuation); level 0x85 (bridge bit with 5.0) is an unknown level (Mosquitto misreads the properties).
# MQTT 3.1 has no reserved flags ("not used"), and its SUBSCRIBE, UNSUBSCRIBE and PUBREL may carry DUP [v3.1 2.1].
from libc.stdint cimport uint8_t, uint16_t, uint32_t
from libc.string cimport memcmp
from cext.base.view cimport View
from cext.codec.field cimport be16, binary_take
from cext.codec.frame cimport Frame, T_AUTH, T_CONNECT, T_DISCONNECT, T_PUBLISH, T_PUBREL, V31, V311, V5
from cext.codec.properties cimport (
    IN_WILL, P_AUTH_DATA, P_AUTH_METHOD, P_TOPIC_ALIAS, Props, props_decode, props_has, props_last, props_none,
)
from cext.codec.reason cimport (
    RC_CLIENTID_NOT_VALID, RC_MALFORMED, COMPAT_MALFORMED, COMPAT_PROTOCOL_ERROR, RC_PROTOCOL_ERROR, RC_UNSUPPORTED_PROTOCOL_VERSION,
)
from cext.codec.utf8 cimport utf8_check

cdef extern from *:
    """
    /* Flags that the fixed header must carry [v5 2.1.3] (PUBLISH has its own), and those that 3.1 ignores. */
    static const unsigned char mosq_flags_must[16] = { [6] = 2, [8] = 2, [10] = 2 };
    static const unsigned char mosq_flags_ignored_31[16] = { [1] = 15, [6] = 15, [8] = 8, [10] = 8, [14] = 15 };
    /* Reason codes that a client may send, one bit per packet type [v5 3.4.2.1, 3.5.2.1, 3.6.2.1, 3.7.2.1, 3.15.2.1]. */
    enum { A = 1 << 4 | 1 << 5, R = 1 << 6 | 1 << 7, X = 1 << 15 };
    static const unsigned short mosq_reason_places[256] = {
        [0x00] = A | R, [0x10] = A, [0x18] = X, [0x19] = X, [0x80] = A, [0x83] = A, [0x87] = A, [0x90] = A, [0x91] = A,
        [0x92] = R, [0x97] = A, [0x99] = A
    };
    """
    const uint8_t mosq_flags_must[16]
    const uint8_t mosq_flags_ignored_31[16]
    const uint16_t mosq_reason_places[256]

cdef enum:
    # CONNECT flags [v5 3.1.2.3]
    C_RESERVED = 0x01
    C_CLEAN_START = 0x02
    C_WILL = 0x04
    C_WILL_QOS = 0x18
    C_WILL_RETAIN = 0x20
    C_PASSWORD = 0x40
    C_USERNAME = 0x80


cdef inline bint flags_wrong(const Frame* f, int version) noexcept nogil:
    cdef int t = f.first >> 4
    cdef uint8_t wrong = (f.first & 15) ^ mosq_flags_must[t]
    if wrong == 0:
        return 0
    return version != V31 or wrong & ~mosq_flags_ignored_31[t] != 0


cdef inline bint string_take(const uint8_t** p, const uint8_t* end, View* out) noexcept nogil:
    return binary_take(p, end, out) and utf8_check(out.p, out.n) == 0


cdef inline void view_none(View* v) noexcept nogil:
    v.p = NULL
    v.n = 0


# CONNECT

cdef int connect_protocol(const uint8_t** p, const uint8_t* end, Connect* out) noexcept nogil:
    # Read protocol name and level [v5 3.1.2.1, 3.1.2.2] [v3.1 3.1] into out.version and out.bridge.
    cdef View name
    cdef int known
    cdef uint8_t level
    if not binary_take(p, end, &name):
        return RC_MALFORMED
    if name.n == 4 and memcmp(name.p, b"MQTT", 4) == 0:
        known = V311
    elif name.n == 6 and memcmp(name.p, b"MQIsdp", 6) == 0:
        known = V31
    else:
        return RC_PROTOCOL_ERROR
    if p[0] == end:
        return RC_MALFORMED
    level = p[0][0]
    p[0] += 1
    out.bridge = level >> 7
    out.version = level & 0x7F
    if out.version != known and not (known == V311 and level == V5):
        out.version = level
        return RC_UNSUPPORTED_PROTOCOL_VERSION
    return 0


cdef int connect_flags_read(uint8_t flags, Connect* out) noexcept nogil:
    cdef uint8_t qos = (flags & C_WILL_QOS) >> 3
    out.clean_start = (flags & C_CLEAN_START) != 0
    out.will = (flags & C_WILL) != 0
    out.will_qos = qos
    out.will_retain = (flags & C_WILL_RETAIN) != 0
    out.has_username = (flags & C_USERNAME) != 0
    out.has_password = (flags & C_PASSWORD) != 0
    if qos == 3:                                                    # [v5 3.1.2-12] [v3.1.1 3.1.2-14]
        return RC_MALFORMED
    if out.version != V31:
        if flags & C_RESERVED:                                      # [v5 3.1.2-3] [v3.1.1 3.1.2-3]
            return RC_MALFORMED
        if not out.will and flags & (C_WILL_QOS | C_WILL_RETAIN):   # [v5 3.1.2-11, -13] [v3.1.1 3.1.2-13, -15]
            return RC_MALFORMED
    if out.version != V5 and out.has_password and not out.has_username:     # [v3.1.1 3.1.2-22]
        return RC_MALFORMED
    return 0


cdef int connect_will(const uint8_t** p, const uint8_t* end, Connect* out) noexcept nogil:
    cdef int rc
    if not out.will:
        view_none(&out.will_topic)
        view_none(&out.will_payload)
        props_none(&out.will_props)
        out.will_qos = 0            # a 3.1 client may send these bits without the will flag
        out.will_retain = 0
        return 0
    if out.version == V5:
        rc = props_decode(p, end, IN_WILL, &out.will_props)
        if rc != 0:
            return rc
    else:
        props_none(&out.will_props)
    if not string_take(p, end, &out.will_topic) or not binary_take(p, end, &out.will_payload):
        return RC_MALFORMED
    return 0


cdef int connect_credentials(const uint8_t** p, const uint8_t* end, Connect* out) noexcept nogil:
    # [v3.1 3.1]: in 3.1 both fields may be missing although their flags are set; the remaining length takes precedence.
    if out.has_username and out.version == V31 and p[0] == end:
        out.has_username = 0
    if out.has_password and out.version == V31 and not out.has_username:
        out.has_password = 0
    view_none(&out.username)
    view_none(&out.password)
    if out.has_username and not string_take(p, end, &out.username):
        return RC_MALFORMED
    if out.has_password and out.version == V31 and p[0] == end:
        out.has_password = 0
    if out.has_password and not binary_take(p, end, &out.password):
        return RC_MALFORMED
    return 0


cdef int connect_id(const uint8_t** p, const uint8_t* end, Connect* out) noexcept nogil:
    # Read the client id. A field that is cut short is part of the head's errors: there is no id that could be refused.
    if not binary_take(p, end, &out.client_id):
        out.part = CONNECT_HEAD
        return RC_MALFORMED
    return RC_CLIENTID_NOT_VALID if utf8_check(out.client_id.p, out.client_id.n) != 0 else 0


cdef int decode_connect(const Frame* f, Connect* out) noexcept nogil:
    cdef const uint8_t* p = f.body
    cdef const uint8_t* end = p + f.body_len
    cdef int rc
    out.part = CONNECT_HEAD
    rc = connect_protocol(&p, end, out)
    if rc != 0:
        return rc
    if flags_wrong(f, out.version) or end - p < 3:
        return RC_MALFORMED
    rc = connect_flags_read(p[0], out)
    if rc != 0:
        return rc
    out.keepalive = be16(p + 1)
    p += 3
    out.part = CONNECT_PROPERTIES
    if out.version == V5:
        rc = props_decode(&p, end, T_CONNECT, &out.props)
        if rc != 0:
            return rc
        if props_has(&out.props, P_AUTH_DATA) and not props_has(&out.props, P_AUTH_METHOD):     # [v5 3.1.2.11.10]
            return RC_PROTOCOL_ERROR
    else:
        props_none(&out.props)
    out.part = CONNECT_ID
    rc = connect_id(&p, end, out)
    if rc != 0:
        return rc
    out.part = CONNECT_WILL
    rc = connect_will(&p, end, out)
    if rc != 0:
        return rc
    out.part = CONNECT_LOGIN
    rc = connect_credentials(&p, end, out)
    if rc != 0:
        return rc
    out.part = CONNECT_END
    return 0 if p == end else RC_MALFORMED


# PUBLISH

cdef int publish_props(const uint8_t* p, const uint8_t* end, Publish* out) noexcept nogil:
    cdef int rc = props_decode(&p, end, T_PUBLISH, &out.props)
    if rc != 0:
        return rc
    if out.topic.n == 0 and not props_has(&out.props, P_TOPIC_ALIAS):     # [v5 3.3.2.1]
        return RC_PROTOCOL_ERROR | COMPAT_MALFORMED
    out.payload.p = p
    out.payload.n = <uint32_t>(end - p)
    return 0


# Reason codes

cdef inline bint reason_allowed(uint8_t rc, int packet_type) noexcept nogil:
    return (mosq_reason_places[rc] >> packet_type) & 1


cdef int reason_decode(const uint8_t* p, const uint8_t* end, int packet_type, uint8_t* reason, Props* props) noexcept nogil:
    # Decode the end of a packet: a reason code, then properties unless the packet ends there [v5 3.4.2.2.1, 3.14.2.2.1].
    reason[0] = p[0]
    if packet_type != T_DISCONNECT and not reason_allowed(reason[0], packet_type):
        return RC_PROTOCOL_ERROR
    p += 1
    return 0 if p == end else props_last(p, end, packet_type, props)


# PUBACK, PUBREC, PUBREL, PUBCOMP

cdef int decode_ack(const Frame* f, int version, Ack* out) noexcept nogil:
    cdef const uint8_t* p = f.body
    cdef const uint8_t* end = p + f.body_len
    cdef int t = f.first >> 4
    if flags_wrong(f, version):             # [v5 3.6.1-1]
        return RC_PROTOCOL_ERROR if t == T_PUBREL else RC_MALFORMED
    if f.body_len < 2:
        return RC_MALFORMED
    out.pid = be16(p)
    out.rc = 0
    props_none(&out.props)
    if out.pid == 0:
        return RC_PROTOCOL_ERROR
    if f.body_len == 2:
        return 0
    if version != V5:
        return RC_MALFORMED
    return reason_decode(p + 2, end, t, &out.rc, &out.props)


# SUBSCRIBE, UNSUBSCRIBE

cdef int decode_items_head(const Frame* f, int version, Subscribe* out) noexcept nogil:
    cdef const uint8_t* p = f.body
    cdef const uint8_t* end = p + f.body_len
    cdef int rc
    if flags_wrong(f, version) or f.body_len < 2:   # [v5 3.8.1-1, 3.10.1-1] [v3.1.1 3.8.1-1, 3.10.1-1]
        return RC_MALFORMED
    out.pid = be16(p)
    p += 2
    if out.pid == 0:
        return RC_MALFORMED
    if version == V5:
        rc = props_decode(&p, end, f.first >> 4, &out.props)
        if rc != 0:
            return rc
    else:
        props_none(&out.props)
    if p == end and version != V31:                 # [v5 3.8.3-2, 3.10.3-2] [v3.1.1 3.8.3-3, 3.10.3-2]
        return RC_PROTOCOL_ERROR | COMPAT_MALFORMED
    out.items.p = p
    out.items.n = <uint32_t>(end - p)
    return 0


cdef int options_check(uint8_t options, const View* topic_filter, int version) noexcept nogil:
    # Check the byte after each filter [v5 3.8.3.1] [v3.1.1 3.8.3-4].
    if version != V5:
        return RC_MALFORMED if options > 2 else 0
    if options & 0xC0:                              # [v5 3.8.3-5]
        return RC_MALFORMED
    if options & 0x03 == 0x03 or options & 0x30 == 0x30:
        return RC_PROTOCOL_ERROR | COMPAT_MALFORMED
    if options & 0x04 and topic_filter.n >= 7 and memcmp(topic_filter.p, b"$share/", 7) == 0:   # [v5 3.8.3-4]
        return RC_PROTOCOL_ERROR
    return 0


cdef int decode_subscribe(const Frame* f, int version, Subscribe* out) noexcept nogil:
    cdef int rc = decode_items_head(f, version, out)
    cdef const uint8_t* p
    cdef const uint8_t* end
    cdef View topic_filter
    if rc != 0:
        return rc
    p = out.items.p
    end = p + out.items.n
    while p < end:
        if not string_take(&p, end, &topic_filter) or p == end:
            return RC_MALFORMED
        rc = options_check(p[0], &topic_filter, version)
        if rc != 0:
            return rc
        p += 1
    return 0


cdef int decode_unsubscribe(const Frame* f, int version, Subscribe* out) noexcept nogil:
    cdef int rc = decode_items_head(f, version, out)
    cdef const uint8_t* p
    cdef const uint8_t* end
    cdef View topic_filter
    if rc != 0:
        return rc
    p = out.items.p
    end = p + out.items.n
    while p < end:
        if not string_take(&p, end, &topic_filter):
            return RC_MALFORMED
    return 0


cdef bint unsubscribe_next(Subscribe* s, View* filter_out) noexcept nogil:
    cdef const uint8_t* p = s.items.p
    cdef const uint8_t* end = p + s.items.n
    if s.items.n == 0:
        return 0
    binary_take(&p, end, filter_out)
    s.items.p = p
    s.items.n = <uint32_t>(end - p)
    return 1


cdef bint subscribe_next(Subscribe* s, SubscribeItem* out) noexcept nogil:
    if not unsubscribe_next(s, &out.filter):
        return 0
    out.options = s.items.p[0]
    s.items.p += 1
    s.items.n -= 1
    return 1


# DISCONNECT, AUTH, PINGREQ

cdef int decode_disconnect(const Frame* f, int version, Disconnect* out) noexcept nogil:
    cdef const uint8_t* p = f.body
    cdef const uint8_t* end = p + f.body_len
    out.rc = 0
    props_none(&out.props)
    if flags_wrong(f, version):             # [v5 3.14.1-1] [v3.1.1 3.14.1-1]
        return RC_MALFORMED | COMPAT_PROTOCOL_ERROR
    if f.body_len == 0:
        return 0
    if version != V5:
        return RC_MALFORMED
    return reason_decode(p, end, T_DISCONNECT, &out.rc, &out.props)


cdef int decode_auth(const Frame* f, int version, Auth* out) noexcept nogil:
    cdef const uint8_t* p = f.body
    cdef const uint8_t* end = p + f.body_len
    cdef int rc
    out.rc = 0
    props_none(&out.props)
    if version != V5:
        return RC_PROTOCOL_ERROR
    if flags_wrong(f, version):             # [v5 3.15.1-1]
        return RC_MALFORMED
    if f.body_len != 0:
        out.rc = p[0]
    if not reason_allowed(out.rc, T_AUTH):
        return RC_PROTOCOL_ERROR
    rc = props_last(p + 1, end, T_AUTH, &out.props)
    if rc == 0 and not props_has(&out.props, P_AUTH_METHOD):    # [v5 3.15.2.2.2]
        rc = RC_PROTOCOL_ERROR
    return rc


cdef int decode_empty(const Frame* f) noexcept nogil:
    return RC_MALFORMED if f.first & 15 or f.body_len != 0 else 0
