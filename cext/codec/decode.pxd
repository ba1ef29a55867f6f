# One decoder per packet a client may send. Sans-IO: each takes a complete Frame and fills a struct of views into
# it. Return 0, or the reason code to end the client with. Nothing is allocated; cost linear in the frame.
from libc.stdint cimport uint8_t, uint16_t
from cext.base.view cimport View
from cext.codec.frame cimport Frame
from cext.codec.properties cimport Props

ctypedef struct Connect:
    uint8_t version             # V31, V311, V5 (the bridge bit 0x80 taken off)
    uint8_t bridge              # 1 when the level carried 0x80, as Mosquitto's try_private does
    uint8_t clean_start
    uint8_t will                # 1 when a will follows
    uint8_t will_qos
    uint8_t will_retain
    uint8_t has_username
    uint8_t has_password
    uint16_t keepalive          # seconds
    View client_id
    View will_topic             # UTF-8 checked; not yet checked as a topic name
    View will_payload
    View username               # UTF-8 checked
    View password               # any bytes
    Props props                 # present == 0 below 5.0
    Props will_props            # present == 0 below 5.0 or without will

ctypedef struct Publish:
    uint8_t qos
    uint8_t retain
    uint8_t dup
    uint16_t pid                # 0 at QoS 0
    View topic                  # not yet checked as a name; may be empty (v5 alias)
    View payload
    Props props                 # present == 0 and raw.n == 0 below 5.0

ctypedef struct Ack:
    # PUBACK, PUBREC, PUBREL, PUBCOMP
    uint16_t pid
    uint8_t rc                  # 0 when left out
    Props props

ctypedef struct Subscribe:
    # SUBSCRIBE and UNSUBSCRIBE: walk `items` with the *_next functions below
    uint16_t pid
    Props props
    View items

ctypedef struct SubscribeItem:
    View filter                 # UTF-8 checked; not yet checked as a filter
    # the byte of v5 (qos | no local << 2 | retain as published << 3 | retain handling << 4); 3.x: the QoS
    uint8_t options

ctypedef struct Disconnect:
    uint8_t rc
    Props props

ctypedef struct Auth:
    uint8_t rc
    Props props

# decode_connect returns RC_UNSUPPORTED_PROTOCOL_VERSION for a level it does not know under a known name (then only
# out.version is set, to the level as sent), RC_PROTOCOL_ERROR for an unknown name, RC_MALFORMED for all else.
cdef int decode_connect(const Frame* f, Connect* out) noexcept nogil
cdef int decode_publish(const Frame* f, int version, Publish* out) noexcept nogil
cdef int decode_ack(const Frame* f, int version, Ack* out) noexcept nogil
# These two walk and check the whole packet before they return 0, so that the walk afterwards cannot fail.
cdef int decode_subscribe(const Frame* f, int version, Subscribe* out) noexcept nogil
cdef int decode_unsubscribe(const Frame* f, int version, Subscribe* out) noexcept nogil
cdef bint subscribe_next(Subscribe* s, SubscribeItem* out) noexcept nogil      # advances s.items; 0 at the end
cdef bint unsubscribe_next(Subscribe* s, View* filter_out) noexcept nogil
cdef int decode_disconnect(const Frame* f, int version, Disconnect* out) noexcept nogil
cdef int decode_auth(const Frame* f, int version, Auth* out) noexcept nogil
# PINGREQ: flags and length only [v5 3.12.1]
cdef int decode_empty(const Frame* f) noexcept nogil
