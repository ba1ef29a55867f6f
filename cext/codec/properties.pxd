# Properties of MQTT 5.0 [v5 2.2.2]. One linear pass decodes them into views; nothing is copied or allocated.
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from cext.base.view cimport View

cdef enum:
    P_PAYLOAD_FORMAT = 1
    P_MESSAGE_EXPIRY = 2
    P_CONTENT_TYPE = 3
    P_RESPONSE_TOPIC = 8
    P_CORRELATION_DATA = 9
    P_SUBSCRIPTION_ID = 11
    P_SESSION_EXPIRY = 17
    P_ASSIGNED_CLIENT_ID = 18
    P_SERVER_KEEP_ALIVE = 19
    P_AUTH_METHOD = 21
    P_AUTH_DATA = 22
    P_REQUEST_PROBLEM = 23
    P_WILL_DELAY = 24
    P_REQUEST_RESPONSE = 25
    P_RESPONSE_INFORMATION = 26
    P_SERVER_REFERENCE = 28
    P_REASON_STRING = 31
    P_RECEIVE_MAXIMUM = 33
    P_TOPIC_ALIAS_MAXIMUM = 34
    P_TOPIC_ALIAS = 35
    P_MAXIMUM_QOS = 36
    P_RETAIN_AVAILABLE = 37
    P_USER_PROPERTY = 38
    P_MAXIMUM_PACKET_SIZE = 39
    P_WILDCARD_AVAILABLE = 40
    P_SUBSCRIPTION_ID_AVAILABLE = 41
    P_SHARED_AVAILABLE = 42

cdef enum:
    # where a property block stands, beside the packet types of frame.pxd
    IN_WILL = 0

ctypedef struct Props:
    uint64_t present            # bit 1 << P_x; every other field means something only when its bit is set
    View raw                    # the whole block, without its length
    uint32_t session_expiry     # seconds
    uint32_t message_expiry     # seconds
    uint32_t will_delay         # seconds
    uint32_t packet_max         # bytes
    uint32_t sub_id
    uint16_t receive_max
    uint16_t alias_max
    uint16_t alias
    uint16_t server_keep_alive  # seconds
    uint8_t payload_format
    uint8_t request_problem
    uint8_t request_response
    uint8_t max_qos
    uint8_t retain_available
    View content_type
    View response_topic
    View correlation_data
    View assigned_client_id
    View auth_method
    View auth_data
    View reason_string

# Decode the property block at *p, which begins with its length and must end before `end`. `place` is a packet type or IN_WILL,
# and decides which properties are allowed. If successful, set *p to the end of the block and return 0. Otherwise return
# RC_MALFORMED (truncated, bad UTF-8, bad variable byte integer, unknown identifier) or RC_PROTOCOL_ERROR (a property twice, a
# property that is not allowed here, or a value that its clause forbids, such as Receive Maximum 0).
cdef int props_decode(const uint8_t** p, const uint8_t* end, int place, Props* out) noexcept nogil
# Do the same for a block at the end of a packet: bytes after it are RC_MALFORMED.
cdef int props_last(const uint8_t* p, const uint8_t* end, int place, Props* out) noexcept nogil

cdef inline void props_none(Props* out) noexcept nogil:
    out.present = 0
    out.raw.n = 0

# Forwarding [v5 3.3.2-4, -15, -16, -17, -18, -20]: a subscriber gets the properties of the publisher (or of the will) in the same
# order, without Topic Alias, Message Expiry, Subscription Identifier and Will Delay. `props_forward_size` returns the size in
# bytes. `props_forward_put` writes exactly that many bytes and returns the end.
cdef uint32_t props_forward_size(const Props* props) noexcept nogil
cdef uint8_t* props_forward_put(uint8_t* out, const Props* props) noexcept nogil

# Return whether the block is forwarded unchanged, with no property to leave out.
cdef inline bint props_verbatim(const Props* props) noexcept nogil:
    return (props.present & ((<uint64_t>1 << P_TOPIC_ALIAS) | (<uint64_t>1 << P_MESSAGE_EXPIRY)
                             | (<uint64_t>1 << P_SUBSCRIPTION_ID) | (<uint64_t>1 << P_WILL_DELAY))) == 0

cdef inline bint props_has(const Props* props, int prop) noexcept nogil:
    return (props.present >> prop) & 1
