# Encoders of the packets a server sends. Each writes at `out` and returns the end; the caller gives room for at
# least the *_SIZE_MAX or the *_size() that stands here.
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
    # v5 and accepted only (rc < 0x80), written in this order (byte-exact with Mosquitto 2.1):
    uint16_t server_keep_alive  # with has_server_keep_alive
    uint8_t has_server_keep_alive
    uint16_t alias_max          # Topic Alias Maximum, left out when 0
    View assigned_client_id     # left out when empty
    View auth_method            # left out when empty [v5 4.12.0-6]
    View auth_data              # left out when p is NULL
    uint8_t has_session_expiry  # with session_expiry: when the server uses another value than asked for
    uint32_t session_expiry
    uint8_t retain_unavailable  # 1: Retain Available 0
    uint32_t packet_max         # Maximum Packet Size, left out when 0
    uint16_t receive_max        # Receive Maximum, left out when 0
    uint8_t has_max_qos
    uint8_t max_qos

cdef uint32_t connack_size(const Connack* c) noexcept nogil          # upper bound, bytes
cdef uint8_t* encode_connack(uint8_t* out, const Connack* c) noexcept nogil

# PUBACK, PUBREC, PUBREL, PUBCOMP: v5 leaves a reason code of 0 out [v5 3.4.2.1].
cdef uint8_t* encode_ack(uint8_t* out, int packet_type, int version, uint16_t pid, uint8_t rc) noexcept nogil
cdef uint8_t* encode_disconnect(uint8_t* out, uint8_t rc) noexcept nogil        # v5 only
# AUTH; data.p NULL: without data
cdef uint32_t auth_size(View method, View data) noexcept nogil
cdef uint8_t* encode_auth(uint8_t* out, uint8_t rc, View method, View data) noexcept nogil
cdef uint8_t* encode_pingresp(uint8_t* out) noexcept nogil
# SUBACK and (v5: with codes; 3.x: without) UNSUBACK
cdef uint32_t suback_size(int version, uint32_t n_codes) noexcept nogil
cdef uint8_t* encode_suback(uint8_t* out, int packet_type, int version, uint16_t pid, const uint8_t* codes,
                            uint32_t n_codes) noexcept nogil

ctypedef struct PublishHead:
    # everything of a PUBLISH but its payload
    uint8_t version
    uint8_t qos
    uint8_t retain
    uint8_t dup
    uint16_t pid                # ignored at QoS 0
    uint16_t alias              # v5; 0: none
    uint8_t has_expiry          # v5
    uint32_t expiry             # seconds left
    View topic
    View props                  # v5: forwardable properties, encoded
    const uint32_t* sub_ids     # v5; one Subscription Identifier property each, in this order
    uint32_t n_sub_ids
    uint32_t payload_len        # bytes that will follow

# Bytes that publish_head_put will write; *remaining gets the Remaining Length. A total (head + payload) beyond
# what a frame can carry (268,435,455) gives 0.
cdef uint32_t publish_head_size(const PublishHead* h, uint32_t* remaining) noexcept nogil
# Writes the head. At QoS 1 and 2 *pid_at (may be NULL) gets the offset of the packet id from `out`, so that copies of
# one encoding can be patched.
# Order of v5 properties: forwarded ones, message expiry, topic alias, subscription ids (as Mosquitto 2.1 writes them).
cdef uint8_t* publish_head_put(uint8_t* out, const PublishHead* h, uint32_t remaining, uint32_t* pid_at) noexcept nogil
