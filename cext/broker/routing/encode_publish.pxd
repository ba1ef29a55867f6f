# The bytes of an outgoing PUBLISH: shapes, which many subscribers share, and heads for one client. See encode_publish.pyx.
from libc.stdint cimport uint8_t, uint16_t, uint32_t
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport Client
from cext.broker.core.log cimport LOG_DEBUG, LOG_TRACE, log_wanted
from cext.broker.core.publication_state cimport Publication, Shape
from cext.codec.encode cimport PublishHead
from cext.codec.frame cimport V5

cdef enum:
    FLAGS_DUP = 8

cdef enum:
    # results of functions that write a PUBLISH
    WROTE = 0
    TOO_LARGE = 1               # above the client's Maximum Packet Size [v5 3.1.2-24]
    NO_ROOM = 2                 # no memory for the output
    NO_SHAPE = 3                # the buffer for shapes is full: another encoding is needed
    NO_NAME = 4                 # the topic has no name on this bridge


# The header of one outgoing PUBLISH in one number: the flags of its first byte (DUP, QoS, RETAIN) [v5 3.3.1], and its packet id
# above them.
cdef inline uint32_t publish_flags(int qos, int retain, int dup, uint16_t pid) noexcept nogil:
    return <uint32_t>pid << 16 | <uint32_t>(dup << 3 | qos << 1 | retain)


cdef inline int flags_qos(uint32_t flags) noexcept nogil:
    return <int>(flags >> 1 & 3)


cdef inline int flags_retain(uint32_t flags) noexcept nogil:
    return <int>(flags & 1)


cdef inline int flags_dup(uint32_t flags) noexcept nogil:
    return <int>(flags >> 3 & 1)


cdef inline uint16_t flags_pid(uint32_t flags) noexcept nogil:
    return <uint16_t>(flags >> 16)


cdef void head_fill(Broker* b, PublishHead* h, Publication* p, int version, uint32_t flags) noexcept nogil
# Encode shape `i` of p for this version and these flags. NULL = the buffer for shapes is full.
cdef Shape* shape_encode(Broker* b, Publication* p, uint32_t i, int version, uint32_t flags) noexcept nogil
# Apply a topic alias [v5 3.3.2.3.4]. The first topics get an alias each until all are used, and keep it for the connection.
cdef void alias_apply(Broker* b, Client* c, PublishHead* h) noexcept nogil
# Put a PUBLISH that was written to the client into traces and the debug log. out: its n bytes before the payload.
cdef void sent_publish(Broker* b, Client* c, const Publication* p, uint32_t flags, const uint8_t* out, uint32_t n) noexcept nogil


# Return the encoding of p for all subscribers of this version, QoS and retain flag; NULL = the buffer for shapes is full.
cdef inline Shape* shape_of(Broker* b, Publication* p, int version, uint32_t flags) noexcept nogil:
    cdef uint32_t i = (6 if version == V5 else 0) + (flags & 7)
    if p.shapes_made >> i & 1:
        return &p.shapes[i]
    return shape_encode(b, p, i, version, flags & 7)


# Count a PUBLISH that was written to the client, and log it at debug. out: its n bytes before the payload.
cdef inline void count_publish(Broker* b, Client* c, const Publication* p, uint32_t flags, const uint8_t* out, uint32_t n) noexcept nogil:
    c.out_packets += 1
    b.stats.messages_out += 1
    b.stats.publish_out += 1
    b.stats.publish_bytes_out += p.payload.n
    if log_wanted(&b.log, LOG_DEBUG | LOG_TRACE):
        sent_publish(b, c, p, flags, out, n)
