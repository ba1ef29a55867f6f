"""The reason codes of MQTT 5.0 [v5 2.4] and their words. `cext/codec/reason.pxd` has the same codes for the data plane;
tests/codec/test_reason_codes.py compares both."""

SUCCESS = 0x00
GRANTED_QOS1 = 0x01
GRANTED_QOS2 = 0x02
DISCONNECT_WITH_WILL = 0x04
NO_MATCHING_SUBSCRIBERS = 0x10
NO_SUBSCRIPTION_EXISTED = 0x11
CONTINUE_AUTHENTICATION = 0x18
REAUTHENTICATE = 0x19
UNSPECIFIED = 0x80              # from here on: an error
MALFORMED = 0x81
PROTOCOL_ERROR = 0x82
IMPLEMENTATION_SPECIFIC = 0x83
UNSUPPORTED_PROTOCOL_VERSION = 0x84
CLIENTID_NOT_VALID = 0x85
BAD_USERNAME_OR_PASSWORD = 0x86
NOT_AUTHORIZED = 0x87
SERVER_UNAVAILABLE = 0x88
SERVER_BUSY = 0x89
BANNED = 0x8A
SERVER_SHUTTING_DOWN = 0x8B
BAD_AUTHENTICATION_METHOD = 0x8C
KEEP_ALIVE_TIMEOUT = 0x8D
SESSION_TAKEN_OVER = 0x8E
TOPIC_FILTER_INVALID = 0x8F
TOPIC_NAME_INVALID = 0x90
PACKET_ID_IN_USE = 0x91
PACKET_ID_NOT_FOUND = 0x92
RECEIVE_MAXIMUM_EXCEEDED = 0x93
TOPIC_ALIAS_INVALID = 0x94
PACKET_TOO_LARGE = 0x95
MESSAGE_RATE_TOO_HIGH = 0x96
QUOTA_EXCEEDED = 0x97
ADMINISTRATIVE_ACTION = 0x98
PAYLOAD_FORMAT_INVALID = 0x99
RETAIN_NOT_SUPPORTED = 0x9A
QOS_NOT_SUPPORTED = 0x9B
USE_ANOTHER_SERVER = 0x9C
SERVER_MOVED = 0x9D
SHARED_SUBSCRIPTIONS_NOT_SUPPORTED = 0x9E
CONNECTION_RATE_EXCEEDED = 0x9F
SUBSCRIPTION_IDS_NOT_SUPPORTED = 0xA1
WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED = 0xA2

# the words for errors
WORDS = {
    UNSPECIFIED: "unspecified error", MALFORMED: "malformed packet", PROTOCOL_ERROR: "protocol error",
    IMPLEMENTATION_SPECIFIC: "implementation specific error",
    UNSUPPORTED_PROTOCOL_VERSION: "unsupported protocol version", CLIENTID_NOT_VALID: "client id not valid",
    BAD_USERNAME_OR_PASSWORD: "bad user name or password", NOT_AUTHORIZED: "not authorized",
    SERVER_UNAVAILABLE: "server unavailable", SERVER_BUSY: "server busy", BANNED: "banned",
    SERVER_SHUTTING_DOWN: "server shutting down", BAD_AUTHENTICATION_METHOD: "bad authentication method",
    KEEP_ALIVE_TIMEOUT: "keep alive timeout", SESSION_TAKEN_OVER: "session taken over",
    TOPIC_FILTER_INVALID: "topic filter invalid", TOPIC_NAME_INVALID: "topic name invalid",
    PACKET_ID_IN_USE: "packet identifier in use", PACKET_ID_NOT_FOUND: "packet identifier not found",
    RECEIVE_MAXIMUM_EXCEEDED: "receive maximum exceeded", TOPIC_ALIAS_INVALID: "topic alias invalid",
    PACKET_TOO_LARGE: "packet too large", MESSAGE_RATE_TOO_HIGH: "message rate too high",
    QUOTA_EXCEEDED: "quota exceeded", ADMINISTRATIVE_ACTION: "administrative action",
    PAYLOAD_FORMAT_INVALID: "payload format invalid", RETAIN_NOT_SUPPORTED: "retain not supported",
    QOS_NOT_SUPPORTED: "QoS not supported", USE_ANOTHER_SERVER: "use another server", SERVER_MOVED: "server moved",
    SHARED_SUBSCRIPTIONS_NOT_SUPPORTED: "shared subscriptions not supported",
    CONNECTION_RATE_EXCEEDED: "connection rate exceeded",
    SUBSCRIPTION_IDS_NOT_SUPPORTED: "subscription identifiers not supported",
    WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED: "wildcard subscriptions not supported",
}
