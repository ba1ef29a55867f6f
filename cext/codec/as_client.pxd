# The client's side of the codec: encoders for packets that a client sends, decoders for packets that a server sends. Bridges use
# it. It is sans-IO, like the rest of the room.
from libc.stdint cimport uint8_t, uint16_t, uint32_t
from cext.base.view cimport View
from cext.codec.decode cimport Ack
from cext.codec.frame cimport Frame
from cext.codec.properties cimport Props

cdef enum:
    PINGREQ_SIZE = 2

ctypedef struct ConnectOut:
    uint8_t version             # V31, V311, V5
    uint8_t bridge              # 3.x: 1 = the level byte carries 0x80, which announces a bridge to Mosquitto
    uint8_t clean_start
    uint8_t has_username
    uint8_t has_password        # 3.x: valid only with a user name
    uint8_t has_will
    uint8_t will_qos
    uint8_t will_retain
    uint16_t keepalive          # seconds
    uint16_t receive_max        # v5, like the three fields below; 0 = the property is left out
    uint16_t alias_max
    uint32_t session_expiry     # seconds
    uint32_t packet_max         # bytes
    View client_id
    View username
    View password
    View will_topic
    View will_payload

# Every View must be at most 65535 bytes. The returned size is exact.
cdef uint32_t connect_size(const ConnectOut* c) noexcept nogil
cdef uint8_t* encode_connect(uint8_t* out, const ConnectOut* c) noexcept nogil
# The packet contains one filter. `options` is the subscription options byte of v5, or the QoS for 3.x.
cdef uint32_t subscribe_size(int version, View filter) noexcept nogil           # exact size in bytes
cdef uint8_t* encode_subscribe(uint8_t* out, int version, uint16_t pid, View filter, uint8_t options) noexcept nogil
cdef uint32_t unsubscribe_size(int version, View filter) noexcept nogil
cdef uint8_t* encode_unsubscribe(uint8_t* out, int version, uint16_t pid, View filter) noexcept nogil
cdef uint8_t* encode_pingreq(uint8_t* out) noexcept nogil

ctypedef struct ConnackIn:
    uint8_t session_present     # 0 if rc is not 0, and always 0 below 3.1.1 [v3.1 3.2]
    uint8_t rc
    uint8_t version             # version of the packet: a 3.x server refuses a v5 CONNECT with a 3.x CONNACK [v5 3.1.2-2]
    Props props                 # present == 0 unless the packet is v5

ctypedef struct Suback:
    # Contents of SUBACK and UNSUBACK.
    uint16_t pid
    Props props
    View codes                  # empty in an UNSUBACK of 3.x

ctypedef struct ServerDisconnect:
    uint8_t rc
    Props props

# Return 0, or the reason code with which the caller must end the connection.
cdef int decode_connack(const Frame* f, int version, ConnackIn* out) noexcept nogil
cdef int decode_suback(const Frame* f, int version, Suback* out) noexcept nogil
# DISCONNECT [v5 3.14]
cdef int decode_server_disconnect(const Frame* f, int version, ServerDisconnect* out) noexcept nogil
# PUBACK, PUBREC, PUBREL or PUBCOMP from a server. Reason codes that the packet's clause does not list are accepted,
# because some servers send them.
cdef int decode_server_ack(const Frame* f, int version, Ack* out) noexcept nogil
