# The HTTP request that turns a connection into a WebSocket [RFC 6455 4.2, RFC 9112], sans-IO: bytes
# in, a verdict and the answer out.
from libc.stdint cimport uint8_t, uint16_t, uint32_t
from cext.base.view cimport View

cdef enum:
    UPGRADE_MORE = 0            # the request has not ended yet
    UPGRADE_DONE = 101
    # Any other value is the HTTP status of a refusal.

cdef enum:
    UPGRADE_SIZE_MAX = 65535    # limit in bytes of a request; the owner may set a lower one
    UPGRADE_ANSWER_MAX = 512    # limit in bytes of an answer

cdef enum Subprotocol:
    SUBPROTOCOL_NONE = 0
    SUBPROTOCOL_MQTT = 1
    SUBPROTOCOL_MQTTV31 = 2     # name that 3.1 clients send

cdef enum:
    # reasons for a refusal, in addition to the status
    WRONG_NOTHING = 0
    WRONG_REQUEST = 1           # not HTTP, or not valid by RFC 9112
    WRONG_METHOD = 2
    WRONG_VERSION = 3           # wrong version of HTTP
    WRONG_UPGRADE = 4           # no `Upgrade: websocket`, or no `Connection: Upgrade`
    WRONG_WS_VERSION = 5
    WRONG_KEY = 6
    WRONG_SUBPROTOCOL = 7
    WRONG_ORIGIN = 8
    WRONG_SIZE = 9

cdef enum:
    # flags of Upgrade.seen
    SEEN_UPGRADE = 1
    SEEN_CONNECTION = 2
    SEEN_VERSION = 4
    SEEN_VERSION_13 = 8
    SEEN_KEY = 16
    SEEN_KEY_GOOD = 32
    SEEN_SUBPROTOCOL = 64
    SEEN_ORIGIN = 128
    SEEN_FORWARDED = 256
    SEEN_CONNECTION_LINE = 512  # with any value

ctypedef struct UpgradeRules:
    uint32_t size_max           # limit in bytes of the request
    const View* origins
    uint32_t n_origins          # 0 = all origins are allowed
    uint8_t compat              # 1 = as in Mosquitto: a refused request gets no answer, and Connection may have any value

ctypedef struct Upgrade:        # state of the parser; zeroed = initial state
    uint32_t line_at            # offset of the unfinished line
    uint32_t scanned            # bytes that contain no further end of line
    uint32_t size               # UPGRADE_DONE: bytes of the whole request
    uint16_t seen
    uint8_t wrong
    uint8_t subprotocol
    uint8_t lines               # 0 = the request line has not ended
    uint8_t key[24]
    uint16_t origin_at          # offset in the request, which may be at another address in the next call
    uint16_t origin_n
    uint16_t forwarded_at       # offset of the value of the last X-Forwarded-For
    uint16_t forwarded_n

# Take the last item from a comma-separated list of a header; an empty list has an empty item.
cdef View list_last(View* rest) noexcept nogil
# Read the request. p: its first byte, n: the bytes that have arrived. Every call gets the earlier bytes
# again, but reads only the new ones.
cdef int upgrade_read(Upgrade* u, const uint8_t* p, size_t n, const UpgradeRules* rules) noexcept nogil
# Write the answer to a request that ended with `status`, and return its end. UPGRADE_ANSWER_MAX bytes are always enough.
cdef uint8_t* upgrade_answer(uint8_t* out, const Upgrade* u, int status) noexcept nogil
cdef const char* upgrade_wrong_text(int wrong) noexcept nogil
