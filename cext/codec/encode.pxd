# Encoders of the packets that a server sends. Each writes at `out` and returns the end. The caller provides room for at
# least *_SIZE_MAX or *_size() bytes.
from libc.stdint cimport uint8_t, uint16_t, uint32_t
from cext.base.view cimport View

cdef enum:
    ACK_SIZE_MAX = 8
    DISCONNECT_SIZE_MAX = 4
    PINGRESP_SIZE = 2

ctypedef struct Connack:
    uint8_t version
    uint8_t session_present
    uint8_t rc                  # v5: a reason code; 3.x: a CONNACK3_ code
    # The fields below are used for v5 with rc < 0x80. They are written in this order, which makes the
    # bytes equal to Mosquitto 2.1's.
    uint16_t server_keep_alive  # valid if has_server_keep_alive is 1
    uint8_t has_server_keep_alive
    uint16_t alias_max          # Topic Alias Maximum; 0 = left out
    View assigned_client_id     # left out if empty
    View auth_method            # left out if empty [v5 4.12.0-6]
    View auth_data              # left out if p is NULL
    uint8_t has_session_expiry  # 1 = session_expiry is sent, because the server uses another value than the client requested
    uint32_t session_expiry
    uint8_t retain_unavailable  # 1 = Retain Available 0 is sent
    uint32_t packet_max         # Maximum Packet Size; 0 = left out
    uint16_t receive_max        # Receive Maximum; 0 = left out
    uint8_t has_max_qos
    uint8_t max_qos

cdef uint32_t connack_size(const Connack* c) noexcept nogil          # upper bound in bytes
cdef uint32_t connack_bytes(const Connack* c) noexcept nogil       # the exact size
cdef uint8_t* encode_connack(uint8_t* out, const Connack* c) noexcept nogil

# PUBACK, PUBREC, PUBREL, PUBCOMP. A v5 packet leaves out a reason code of 0 [v5 3.4.2.1].
cdef uint8_t* encode_ack(uint8_t* out, int packet_type, int version, uint16_t pid, uint8_t rc) noexcept nogil
cdef uint8_t* encode_disconnect(uint8_t* out, uint8_t rc) noexcept nogil        # v5 only
# DISCONNECT with 0x9C: the client may use another server [v5 4.11]; `reference` names some, or is empty. v5 only
cdef uint32_t disconnect_elsewhere_size(View reference) noexcept nogil
cdef uint8_t* encode_disconnect_elsewhere(uint8_t* out, View reference) noexcept nogil
# AUTH. If data.p is NULL, the packet has no authentication data.
cdef uint32_t auth_size(View method, View data) noexcept nogil
cdef uint8_t* encode_auth(uint8_t* out, uint8_t rc, View method, View data) noexcept nogil
cdef uint8_t* encode_pingresp(uint8_t* out) noexcept nogil
# SUBACK, and UNSUBACK (v5: with codes; 3.x: without).
cdef uint32_t suback_size(int version, uint32_t n_codes) noexcept nogil
cdef uint8_t* encode_suback(uint8_t* out, int packet_type, int version, uint16_t pid, const uint8_t* codes,
                            uint32_t n_codes) noexcept nogil

ctypedef struct PublishHead:
    # All parts of a PUBLISH except its payload.
    uint8_t version
    uint8_t qos
    uint8_t retain
    uint8_t dup
    uint16_t pid                # ignored at QoS 0
    uint16_t alias              # topic alias of v5; 0 = none
    uint8_t has_expiry          # 1 = `expiry` is sent (v5)
    uint32_t expiry             # seconds left
    View topic
    View props                  # v5: encoded properties to forward
    const uint32_t* sub_ids     # v5: one Subscription Identifier property is written for each, in this order
    uint32_t n_sub_ids
    uint32_t payload_len        # length in bytes of the payload that follows

# Return the number of bytes that publish_head_put will write; *remaining gets the Remaining Length. Return 0 if head and payload
# together exceed the maximum of a frame (268,435,455).
cdef uint32_t publish_head_size(const PublishHead* h, uint32_t* remaining) noexcept nogil
# Write the head. At QoS 1 and 2, *pid_at gets the offset of the packet id from `out`, so that the caller can patch copies of
# one encoding; pid_at may be NULL.
# Order of v5 properties: forwarded properties, message expiry, topic alias, subscription identifiers
# (as Mosquitto 2.1 writes them).
cdef uint8_t* publish_head_put(uint8_t* out, const PublishHead* h, uint32_t remaining, uint32_t* pid_at) noexcept nogil
