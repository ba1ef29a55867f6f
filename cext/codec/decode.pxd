# One decoder for each packet that a client may send. The decoders are sans-IO: each takes a complete Frame and fills a struct
# with views into it. Each returns 0, or the reason code with which the caller must end the client. They allocate nothing; the
# cost is linear in the frame's length.
from libc.stdint cimport uint8_t, uint16_t, uint32_t
from cext.base.view cimport View
from cext.codec.field cimport be16
from cext.codec.frame cimport Frame, V5
from cext.codec.properties cimport Props, props_none
from cext.codec.reason cimport RC_MALFORMED, RC_PROTOCOL_ERROR
from cext.codec.utf8 cimport utf8_check

cdef enum:
    # bit i set: the flags i are wrong in a PUBLISH. QoS 3 [v5 3.3.1-4], or DUP with QoS 0 [v5 3.3.1-2]
    PUBLISH_FLAGS_BAD = 1 << 6 | 1 << 7 | 1 << 14 | 1 << 15 | 1 << 8 | 1 << 9

cdef enum:
    # parts of CONNECT in their order: which of them is wrong decides how the client is refused
    CONNECT_HEAD = 0            # protocol name, level, flags, keepalive
    CONNECT_PROPERTIES = 1
    CONNECT_ID = 2
    CONNECT_WILL = 3
    CONNECT_LOGIN = 4           # user name and password
    CONNECT_END = 5             # bytes after the last field

ctypedef struct Connect:
    uint8_t version             # V31, V311 or V5, without the bridge bit 0x80
    uint8_t part                # CONNECT_: the part that was decoded last. After an error: where it is
    uint8_t bridge              # 1 = the level byte carried 0x80, as with Mosquitto's try_private
    uint8_t clean_start
    uint8_t will                # 1 = a will follows
    uint8_t will_qos
    uint8_t will_retain
    uint8_t has_username
    uint8_t has_password
    uint16_t keepalive          # seconds
    View client_id
    View will_topic             # checked as UTF-8, not yet as a topic name
    View will_payload
    View username               # checked as UTF-8
    View password               # any bytes
    Props props                 # present == 0 below 5.0
    Props will_props            # present == 0 below 5.0, and without a will

ctypedef struct Publish:
    uint8_t qos
    uint8_t retain
    uint8_t dup
    uint16_t pid                # 0 at QoS 0
    View topic                  # not yet checked as a topic name; may be empty (v5 topic alias)
    View payload
    Props props                 # present == 0 and raw.n == 0 below 5.0

ctypedef struct Ack:
    # Contents of PUBACK, PUBREC, PUBREL and PUBCOMP.
    uint16_t pid
    uint8_t rc                  # 0 if the packet leaves it out
    Props props

ctypedef struct Subscribe:
    # Contents of SUBSCRIBE and UNSUBSCRIBE. Walk over `items` with the *_next functions below.
    uint16_t pid
    Props props
    View items

ctypedef struct SubscribeItem:
    View filter                 # checked as UTF-8, not yet as a topic filter
    # v5: the options byte (qos | no local << 2 | retain as published << 3 | retain handling << 4); 3.x: the QoS
    uint8_t options

ctypedef struct Disconnect:
    uint8_t rc
    Props props

ctypedef struct Auth:
    uint8_t rc
    Props props

# Return RC_UNSUPPORTED_PROTOCOL_VERSION for an unknown level under a known protocol name (then only out.version is set, to the
# level as sent), RC_PROTOCOL_ERROR for an unknown name, RC_CLIENTID_NOT_VALID for a client id that is no UTF-8 of MQTT, and
# RC_MALFORMED or RC_PROTOCOL_ERROR for all other errors. Decoders of other packets may add COMPAT_MALFORMED or
# COMPAT_PROTOCOL_ERROR to the code.
cdef int decode_connect(const Frame* f, Connect* out) noexcept nogil
cdef int publish_props(const uint8_t* p, const uint8_t* end, Publish* out) noexcept nogil
cdef int decode_ack(const Frame* f, int version, Ack* out) noexcept nogil
# These two walk over and check the whole packet before they return 0, so the caller's walk cannot fail.
cdef int decode_subscribe(const Frame* f, int version, Subscribe* out) noexcept nogil
cdef int decode_unsubscribe(const Frame* f, int version, Subscribe* out) noexcept nogil
# Decode the part that both packets begin with, without a check of the items: for a packet that was decoded before.
cdef int decode_items_head(const Frame* f, int version, Subscribe* out) noexcept nogil
cdef bint subscribe_next(Subscribe* s, SubscribeItem* out) noexcept nogil      # advances s.items; 0 at the end
cdef bint unsubscribe_next(Subscribe* s, View* filter_out) noexcept nogil
cdef int decode_disconnect(const Frame* f, int version, Disconnect* out) noexcept nogil
cdef int decode_auth(const Frame* f, int version, Auth* out) noexcept nogil
# PINGREQ: only flags and length are checked [v5 3.12.1].
cdef int decode_empty(const Frame* f) noexcept nogil

# Inline, because each message is decoded: traces decode it too, and a compiler that sees two callers makes it a call.
cdef inline int decode_publish(const Frame* f, int version, Publish* out) noexcept nogil:
    cdef const uint8_t* p = f.body
    cdef const uint8_t* end = p + f.body_len
    cdef uint32_t flags = f.first & 15
    cdef uint32_t qos = flags >> 1 & 3
    cdef uint32_t head
    if (<uint32_t>PUBLISH_FLAGS_BAD >> flags) & 1 or f.body_len < 2:
        return RC_MALFORMED
    out.topic.n = be16(p)
    out.topic.p = p + 2
    head = 2 + out.topic.n
    out.qos = <uint8_t>qos
    out.retain = flags & 1
    out.dup = <uint8_t>(flags >> 3)
    out.pid = 0
    if qos != 0:
        if f.body_len < head + 2:
            return RC_MALFORMED
        out.pid = be16(p + head)
        if out.pid == 0:                    # [v5 2.2.1-3] [v3.1.1 2.3.1-1]
            return RC_PROTOCOL_ERROR
        head += 2
    elif f.body_len < head:
        return RC_MALFORMED
    if utf8_check(out.topic.p, out.topic.n) != 0:
        return RC_MALFORMED
    if version == V5:
        return publish_props(p + head, end, out)
    props_none(&out.props)
    out.payload.p = p + head
    out.payload.n = f.body_len - head
    return 0
