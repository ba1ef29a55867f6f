# The frames of a link: a length, a type, and the fields of the type. The codec is sans-IO and allocates nothing; a decoded frame
# has views into the caller's bytes.
#
#     length of the rest: 4 bytes | type: 1 byte | fields, in the order of the table in frame.pyx
#
# Numbers are little-endian, as in the store. A link connects workers of one machine and version, so there is one format at a time:
# HELLO and WELCOME carry LINK_VERSION, and another version is an error.
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from cext.base.view cimport View

cdef enum:
    LINK_VERSION = 1
    LINK_HEAD = 5               # bytes of length and type
    LINK_WORKERS_MAX = 64       # sets of workers are masks of 64 bits
    LINK_TYPES = 18             # number of types, from 1 on

    # from A to B
    LF_HELLO = 1
    LF_ROUTE = 2                # A has subscribers of a filter, or their highest QoS or number has changed
    LF_UNROUTE = 3
    LF_OPEN = 4                 # an identity of A that is still open
    LF_SNAPSHOT_END = 5         # behind the snapshot of routes and open identities
    LF_ASK = 6                  # B answers CONFIRM
    LF_ASK_RETAINED = 7         # B answers CURRENT, on its own link to A
    LF_MESSAGE0 = 8             # a message without a number
    LF_MESSAGE = 9
    LF_VOID = 10                # the message with this number will not come
    LF_RELEASED = 11            # an identity of A that will not come again
    LF_RETAINED = 12            # the retained message of a topic that A owns; without payload: there is none
    LF_RETAINED_END = 13        # behind the snapshot of retained messages
    LF_CURRENT = 14             # RETAINED frames for all that A had acknowledged when B asked are in front of this
    # from B to A
    LF_WELCOME = 15
    LF_CONFIRM = 16
    LF_ACK = 17
    LF_NO_MEMBER = 18

cdef enum:
    # bits of LinkFrame.flags; bits 0 and 1 are the QoS
    LINK_RETAIN = 4             # the publisher set RETAIN
    LINK_OWNER = 8              # B owns the topic: it sets the retained message
    LINK_PLAIN = 16             # B delivers to its subscribers that are not in shared groups
    LINK_EXPIRES = 32           # `expires_ms` is valid
    LINK_AGAIN = 64             # an earlier connection or process may have carried it, so subscribers may have got it: DUP
    LINK_FLAGS = 127

ctypedef struct LinkFrame:
    uint8_t type
    uint8_t flags               # of messages. ROUTE: the highest QoS of the filter's subscribers
    uint8_t durability          # of a message: DURABILITY_... of its listener or topic; 0 = the general one
    uint16_t version
    uint16_t slot               # number of the worker that sends HELLO or WELCOME
    uint16_t workers            # number of workers that it knows
    uint16_t part               # which of the copies with this identity: 0 = for plain subscribers and the owner; see LinkSend.part
    uint32_t online             # ROUTE of a shared group: members online
    uint64_t expires_ms         # on the monotonic clock of the machine, so that the time in outputs and sockets counts
    uint64_t log
    uint64_t run
    uint64_t number             # of a message, an ACK, an ASK; 0 in MESSAGE0
    uint64_t identity           # of a QoS 2 message; otherwise 0
    View group                  # `$share/GROUP/FILTER` if the message is for one member of that group; otherwise empty
    View publisher              # of a message, if the other worker needs it: the broker's own bytes; otherwise empty
    View text                   # topic of a message; filter of a route, with `$share/GROUP/`
    View props                  # forwardable properties, encoded as in [v5 2.2.2] without their length
    View payload

# The error of a frame is the letter of the field that is wrong (see frame.pyx), 'L' = the length or 'T' = the type.
# Return the bytes of the frame at p, 0 if more bytes are needed, or the negative error.
cdef int link_decode(const uint8_t* p, size_t n, uint32_t frame_max, LinkFrame* out) noexcept nogil
cdef const char* link_error_text(int error) noexcept nogil


cdef inline int wrong(char field) noexcept nogil:
    return -<int>field


# Return the bytes of the frame without its payload, and write exactly that many; the payload, if any, follows.
cdef uint32_t link_head_size(const LinkFrame* f) noexcept nogil
cdef uint32_t link_head_put(uint8_t* out, const LinkFrame* f) noexcept nogil
