# Properties of MQTT 5.0. This module knows identifiers, types, where each property may be, and which values its clause forbids.
# It does not know what they mean to a session. Invariant: an accepted block can be walked over again without checking bounds.
# Cost: one pass; a User Property costs its two strings and a table look-up. For an empty block the decoder writes only `present`
# and `raw`, for other blocks only the fields of present properties, because Props is large and never zeroed.
#
# Reason codes: [v5 2.2.2.2] calls a property in a packet that must not have it Malformed; Mosquitto calls it a Protocol Error
# except in SUBSCRIBE and UNSUBSCRIBE. Clients and tools see Mosquitto's code.
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memchr
from cext.base.view cimport View
from cext.codec.field cimport be16, be32, binary_take
from cext.codec.frame cimport T_SUBSCRIBE, T_UNSUBSCRIBE, varint_size
from cext.codec.reason cimport RC_MALFORMED, RC_PROTOCOL_ERROR
from cext.codec.utf8 cimport utf8_check

cdef extern from *:
    """
    /* The table of [v5 2.2.2.2]: type, places (bit per packet type; bit 0: will properties), forbidden values.
       The table is the server's: a client must not send Subscription Identifier in a PUBLISH [v5 3.3.4-6]. */
    enum { K_NONE, K_BYTE, K_U16, K_U32, K_VARINT, K_STRING, K_BINARY, K_PAIR };
    enum { R_ANY, R_BOOL, R_NOT_0, R_TOPIC };
    enum { WILL = 1, CONNECT = 1 << 1, CONNACK = 1 << 2, PUBLISH = 1 << 3, ACKS = 0xF << 4, SUBSCRIBE = 1 << 8,
           SUBACK = 1 << 9, UNSUBSCRIBE = 1 << 10, UNSUBACK = 1 << 11, DISCONNECT = 1 << 14, AUTH = 1 << 15 };
    typedef struct { unsigned char kind, rule; unsigned short places; } mosq_property_rule;
    static const mosq_property_rule mosq_property_rules[43] = {
        [1]  = {K_BYTE, R_BOOL, PUBLISH | WILL},                    /* Payload Format Indicator [v5 3.3.2.3.2] */
        [2]  = {K_U32, R_ANY, PUBLISH | WILL},                      /* Message Expiry Interval */
        [3]  = {K_STRING, R_ANY, PUBLISH | WILL},                   /* Content Type */
        [8]  = {K_STRING, R_TOPIC, PUBLISH | WILL},                 /* Response Topic [v5 3.3.2-14, 4.7.3-1] */
        [9]  = {K_BINARY, R_ANY, PUBLISH | WILL},                   /* Correlation Data */
        [11] = {K_VARINT, R_NOT_0, SUBSCRIBE},                      /* Subscription Identifier [v5 3.8.2.1.2] */
        [17] = {K_U32, R_ANY, CONNECT | CONNACK | DISCONNECT},      /* Session Expiry Interval */
        [18] = {K_STRING, R_ANY, CONNACK},                          /* Assigned Client Identifier */
        [19] = {K_U16, R_ANY, CONNACK},                             /* Server Keep Alive */
        [21] = {K_STRING, R_ANY, CONNECT | CONNACK | AUTH},         /* Authentication Method */
        [22] = {K_BINARY, R_ANY, CONNECT | CONNACK | AUTH},         /* Authentication Data */
        [23] = {K_BYTE, R_BOOL, CONNECT},                           /* Request Problem Information [v5 3.1.2.11.7] */
        [24] = {K_U32, R_ANY, WILL},                                /* Will Delay Interval */
        [25] = {K_BYTE, R_BOOL, CONNECT},                           /* Request Response Information [v5 3.1.2.11.6] */
        [26] = {K_STRING, R_ANY, CONNACK},                          /* Response Information */
        [28] = {K_STRING, R_ANY, CONNACK | DISCONNECT},             /* Server Reference */
        [31] = {K_STRING, R_ANY, CONNACK | ACKS | SUBACK | UNSUBACK | DISCONNECT | AUTH},   /* Reason String */
        [33] = {K_U16, R_NOT_0, CONNECT | CONNACK},                 /* Receive Maximum [v5 3.1.2.11.3] */
        [34] = {K_U16, R_ANY, CONNECT | CONNACK},                   /* Topic Alias Maximum */
        [35] = {K_U16, R_ANY, PUBLISH},                             /* Topic Alias; the handler checks 0, which has its own reason code [v5 3.3.2-8] */
        [36] = {K_BYTE, R_BOOL, CONNACK},                           /* Maximum QoS [v5 3.2.2.3.4] */
        [37] = {K_BYTE, R_BOOL, CONNACK},                           /* Retain Available */
        [38] = {K_PAIR, R_ANY, 0xFFFF},                             /* User Property */
        [39] = {K_U32, R_NOT_0, CONNECT | CONNACK},                 /* Maximum Packet Size [v5 3.1.2.11.4] */
        [40] = {K_BYTE, R_BOOL, CONNACK},                           /* Wildcard Subscription Available */
        [41] = {K_BYTE, R_BOOL, CONNACK},                           /* Subscription Identifiers Available */
        [42] = {K_BYTE, R_BOOL, CONNACK},                           /* Shared Subscription Available */
    };
    """
    enum:
        K_NONE, K_BYTE, K_U16, K_U32, K_VARINT, K_STRING, K_BINARY, K_PAIR
        R_ANY, R_BOOL, R_NOT_0, R_TOPIC
    ctypedef struct mosq_property_rule:
        uint8_t kind
        uint8_t rule
        uint16_t places
    const mosq_property_rule mosq_property_rules[43]


cdef int varint_take(const uint8_t** p, const uint8_t* end, uint32_t* value) noexcept nogil:
    # Take a variable byte integer, which must have the fewest bytes that hold the value [v5 1.5.5-1].
    cdef const uint8_t* at = p[0]
    cdef uint32_t v = 0, shift = 0
    while at < end and shift < 28:
        v |= <uint32_t>(at[0] & 127) << shift
        if at[0] < 128:
            if at[0] == 0 and shift != 0:
                return RC_MALFORMED
            value[0] = v
            p[0] = at + 1
            return 0
        shift += 7
        at += 1
    return RC_MALFORMED


cdef int value_take(int kind, const uint8_t** p, const uint8_t* end, uint32_t* number, View* text) noexcept nogil:
    # Take one value of the type `kind` into `number` or `text` (for a pair: its second string). Return 0 or RC_MALFORMED.
    cdef const uint8_t* at = p[0]
    if kind == K_PAIR or kind == K_STRING:
        if kind == K_PAIR and (not binary_take(p, end, text) or utf8_check(text.p, text.n) != 0):
            return RC_MALFORMED
        if not binary_take(p, end, text):
            return RC_MALFORMED
        return utf8_check(text.p, text.n)
    elif kind == K_BINARY:
        return 0 if binary_take(p, end, text) else RC_MALFORMED
    elif kind == K_VARINT:
        return varint_take(p, end, number)
    elif kind == K_U32 and end - at >= 4:
        number[0] = be32(at)
        p[0] = at + 4
    elif kind == K_U16 and end - at >= 2:
        number[0] = be16(at)
        p[0] = at + 2
    elif kind == K_BYTE and end - at >= 1:
        number[0] = at[0]
        p[0] = at + 1
    else:
        return RC_MALFORMED
    return 0


cdef bint value_forbidden(int rule, uint32_t number, View text) noexcept nogil:
    if rule == R_BOOL:
        return number > 1
    elif rule == R_NOT_0:
        return number == 0
    elif rule == R_TOPIC:
        return text.n == 0 or memchr(text.p, c'+', text.n) != NULL or memchr(text.p, c'#', text.n) != NULL
    return 0


cdef void value_store(Props* out, int prop, uint32_t number, View text) noexcept nogil:
    if prop == P_PAYLOAD_FORMAT:
        out.payload_format = <uint8_t>number
    elif prop == P_MESSAGE_EXPIRY:
        out.message_expiry = number
    elif prop == P_CONTENT_TYPE:
        out.content_type = text
    elif prop == P_RESPONSE_TOPIC:
        out.response_topic = text
    elif prop == P_CORRELATION_DATA:
        out.correlation_data = text
    elif prop == P_SUBSCRIPTION_ID:
        out.sub_id = number
    elif prop == P_SESSION_EXPIRY:
        out.session_expiry = number
    elif prop == P_ASSIGNED_CLIENT_ID:
        out.assigned_client_id = text
    elif prop == P_SERVER_KEEP_ALIVE:
        out.server_keep_alive = <uint16_t>number
    elif prop == P_AUTH_METHOD:
        out.auth_method = text
    elif prop == P_AUTH_DATA:
        out.auth_data = text
    elif prop == P_REQUEST_PROBLEM:
        out.request_problem = <uint8_t>number
    elif prop == P_WILL_DELAY:
        out.will_delay = number
    elif prop == P_REQUEST_RESPONSE:
        out.request_response = <uint8_t>number
    elif prop == P_REASON_STRING:
        out.reason_string = text
    elif prop == P_RECEIVE_MAXIMUM:
        out.receive_max = <uint16_t>number
    elif prop == P_TOPIC_ALIAS_MAXIMUM:
        out.alias_max = <uint16_t>number
    elif prop == P_TOPIC_ALIAS:
        out.alias = <uint16_t>number
    elif prop == P_MAXIMUM_QOS:
        out.max_qos = <uint8_t>number
    elif prop == P_RETAIN_AVAILABLE:
        out.retain_available = <uint8_t>number
    elif prop == P_MAXIMUM_PACKET_SIZE:
        out.packet_max = number


cdef int props_walk(const uint8_t* at, const uint8_t* end, int place, Props* out) noexcept nogil:
    # Decode the properties of one block, which must fill [at, end).
    cdef const mosq_property_rule* rule
    # A block that is cut short is malformed, whatever it contains before: as Mosquitto, which reads all before it checks.
    cdef uint64_t present = 0, bit
    cdef uint32_t number = 0
    cdef View text
    cdef int prop, rc, wrong = 0
    text.p = at
    text.n = 0
    while at < end:
        prop = at[0]        # one byte: all identifiers of the variable byte integer are below 128
        at += 1
        if prop > P_SHARED_AVAILABLE or mosq_property_rules[prop].kind == K_NONE:
            return RC_MALFORMED
        rule = &mosq_property_rules[prop]
        bit = <uint64_t>1 << prop
        if wrong != 0:
            pass                    # the first error counts
        elif not (rule.places >> place) & 1:
            wrong = RC_MALFORMED if place == T_SUBSCRIBE or place == T_UNSUBSCRIBE else RC_PROTOCOL_ERROR
        elif present & bit and prop != P_USER_PROPERTY:
            wrong = RC_PROTOCOL_ERROR
        present |= bit
        rc = value_take(rule.kind, &at, end, &number, &text)
        if rc != 0:
            return rc
        if prop == P_USER_PROPERTY or wrong != 0:
            continue
        if rule.rule != R_ANY and value_forbidden(rule.rule, number, text):
            wrong = RC_PROTOCOL_ERROR
        value_store(out, prop, number, text)
    out.present = present
    return wrong


cdef int props_decode(const uint8_t** p, const uint8_t* end, int place, Props* out) noexcept nogil:
    cdef const uint8_t* at = p[0]
    cdef uint32_t length = 0
    if at < end and at[0] == 0:
        out.present = 0
        out.raw.p = at + 1
        out.raw.n = 0
        p[0] = at + 1
        return 0
    if varint_take(&at, end, &length) != 0 or <uint32_t>(end - at) < length:
        return RC_MALFORMED
    out.raw.p = at
    out.raw.n = length
    p[0] = at + length
    return props_walk(at, at + length, place, out)


cdef int props_last(const uint8_t* p, const uint8_t* end, int place, Props* out) noexcept nogil:
    cdef int rc = props_decode(&p, end, place, out)
    return rc if rc != 0 or p == end else RC_MALFORMED


# Forwarding. These blocks were accepted before, so the code does not check bounds again.

cdef inline uint32_t property_len(const uint8_t* p) noexcept nogil:
    # Return the bytes of the (valid) property at p, identifier included.
    cdef int kind = mosq_property_rules[p[0]].kind
    cdef uint32_t n
    if kind == K_PAIR:
        n = be16(p + 1)
        return 5 + n + be16(p + 3 + n)
    elif kind == K_STRING or kind == K_BINARY:
        return 3 + be16(p + 1)
    elif kind == K_U32:
        return 5
    elif kind == K_U16:
        return 3
    elif kind == K_VARINT:
        n = 1
        while p[n] >= 128:
            n += 1
        return n + 1
    return 2


cdef uint32_t props_forward_size(const Props* props) noexcept nogil:
    cdef uint32_t n = props.raw.n
    cdef uint64_t present = props.present
    n -= 3 * <uint32_t>((present >> P_TOPIC_ALIAS) & 1)
    n -= 5 * <uint32_t>((present >> P_MESSAGE_EXPIRY) & 1)
    n -= 5 * <uint32_t>((present >> P_WILL_DELAY) & 1)
    if (present >> P_SUBSCRIPTION_ID) & 1:
        n -= 1 + varint_size(props.sub_id)
    return n


cdef uint8_t* props_forward_put(uint8_t* out, const Props* props) noexcept nogil:
    cdef const uint8_t* at = props.raw.p
    cdef const uint8_t* end
    cdef const uint8_t* rest = at       # start of the bytes that are not yet copied
    cdef uint32_t n
    cdef int prop
    if props.raw.n == 0:                # below 5.0 raw.p may be any address
        return out
    end = at + props.raw.n
    if not props_verbatim(props):
        while at < end:
            n = property_len(at)
            prop = at[0]
            if prop == P_TOPIC_ALIAS or prop == P_MESSAGE_EXPIRY or prop == P_SUBSCRIPTION_ID or prop == P_WILL_DELAY:
                memcpy(out, rest, at - rest)
                out += at - rest
                rest = at + n
            at += n
    if end > rest:
        memcpy(out, rest, end - rest)
        out += end - rest
    return out
