"""`$CONTROL/mosq/index/v1`: a PUBLISH whose payload is a topic name is answered with what that topic would match (cext/topic/explain).

    PUBLISH $CONTROL/mosq/index/v1, payload: a topic -> PUBLISH $CONTROL/mosq/index/v1/response, QoS 0, JSON -> PUBACK (at QoS 1)

Knows who may ask; not what is in the answer. Neither question nor answer is ever routed, retained, stored or seen by anybody else, and
what asks too much reads first: nothing is answered while HIGH_WATER_BYTES of output wait for the one who asks.
Cost: that of a match and the text, weighed into broker.work; one allocation of up to 64 KiB for the length of the call.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from cext.base.view cimport View
from cext.broker.access cimport access_allows
from cext.broker.acl cimport ACL_WRITE
from cext.broker.broker cimport (
    Broker, CF_TRUSTED, Client, DROP_ACL_WRITE, DROP_MEMORY, DROP_PACKET_SIZE, DROP_QOS0_BLOCKED, HIGH_WATER_BYTES, WORK_SEND,
)
from cext.broker.client cimport client_room, client_wrote
from cext.broker.publication cimport memory_short
from cext.broker.share cimport (
    SHARE_HASH_CLIENT, SHARE_HASH_TOPIC, SHARE_LEAST_INFLIGHT, SHARE_RANDOM, SHARE_STICKY, share_strategy,
)
from cext.codec.decode cimport Publish
from cext.codec.encode cimport PublishHead, publish_head_put, publish_head_size
from cext.codec.frame cimport V5
from cext.codec.properties cimport P_CORRELATION_DATA, props_has
from cext.codec.reason cimport (
    RC_NOT_AUTHORIZED, RC_PACKET_TOO_LARGE, RC_PAYLOAD_FORMAT_INVALID, RC_QUOTA_EXCEEDED, RC_SUCCESS,
)
from cext.codec.utf8 cimport utf8_check
from cext.net.reactor cimport Address, conn_flush
from cext.topic.explain cimport EXPLAIN_BYTES_MAX, EXPLAIN_BYTES_MIN, index_explain
from cext.topic.index cimport Group
from cext.topic.name cimport name_check

cdef extern from "<sys/socket.h>" nogil:
    int AF_INET, AF_INET6, AF_UNIX


cdef bint address_local(const Address* a) noexcept nogil:
    cdef int i
    if a.told:
        return False             # anybody can say so
    if a.family == AF_UNIX:
        return True
    if a.family == AF_INET:
        return a.ip[0] == 127
    if a.family != AF_INET6:
        return False
    for i in range(10):
        if a.ip[i]:
            return False
    if a.ip[10] == 0xFF and a.ip[11] == 0xFF:
        return a.ip[12] == 127           # an IPv4 address on a listener for both
    for i in range(10, 15):
        if a.ip[i]:
            return False
    return a.ip[15] == 1


cdef bint may_ask(Broker* b, Client* c, View topic) noexcept nogil:
    if c.flags & CF_TRUSTED:
        return True
    if c.door.security.acl != NULL or c.door.security.roles != NULL:     # `#` does not reach `$` topics: only a rule that names $CONTROL lets somebody in
        return access_allows(b, c.session, topic, ACL_WRITE)
    if c.door.security.authorize:        # a plugin is not asked about this: it takes a rule in an acl_file
        return False
    return address_local(&c.conn.address)


cdef void head_fill(PublishHead* h, Client* c, const Publish* p) noexcept nogil:
    h.version = c.version
    h.qos = 0
    h.retain = 0
    h.dup = 0
    h.pid = 0
    h.alias = 0
    h.has_expiry = 0
    h.sub_ids = NULL
    h.n_sub_ids = 0
    h.topic.p = <const uint8_t*>b"$CONTROL/mosq/index/v1/response"
    h.topic.n = 31
    h.props.p = NULL
    h.props.n = 0
    if c.version == V5 and props_has(&p.props, P_CORRELATION_DATA):
        h.props.p = p.props.correlation_data.p - 3       # as it came, with its identifier and its length before it
        h.props.n = p.props.correlation_data.n + 3


cdef uint8_t refused(Broker* b, int reason, uint8_t rc) noexcept nogil:
    b.stats.drops[reason] += 1
    return rc


cdef uint8_t control_answer(Broker* b, Client* c, const Publish* p) noexcept nogil:
    cdef PublishHead h
    cdef uint32_t remaining, size
    cdef uint32_t room = EXPLAIN_BYTES_MAX
    cdef uint8_t* text
    cdef uint8_t rc
    if not may_ask(b, c, p.topic):
        return refused(b, DROP_ACL_WRITE, RC_NOT_AUTHORIZED)
    if name_check(p.payload.p, p.payload.n) != 0 or utf8_check(p.payload.p, p.payload.n) != 0:
        return RC_PAYLOAD_FORMAT_INVALID
    if c.conn.out_bytes > HIGH_WATER_BYTES:
        conn_flush(&b.reactor, &c.conn)
    if c.conn.out_bytes > HIGH_WATER_BYTES:
        return refused(b, DROP_QOS0_BLOCKED, RC_QUOTA_EXCEEDED)
    head_fill(&h, c, p)
    h.payload_len = room
    size = publish_head_size(&h, &remaining)
    if c.packet_max and c.packet_max < <uint64_t>size + room:
        if c.packet_max < <uint64_t>size + EXPLAIN_BYTES_MIN:
            return refused(b, DROP_PACKET_SIZE, RC_PACKET_TOO_LARGE)
        room = c.packet_max - size
    text = <uint8_t*>malloc(room) if not memory_short(b, 0) else NULL
    if text == NULL:
        return refused(b, DROP_MEMORY, RC_QUOTA_EXCEEDED)
    rc = answer(b, c, p, &h, text, room)
    free(text)
    return rc


cdef const char* strategy_name(void* broker, const Group* g) noexcept nogil:
    """As the option shared_strategy says it."""
    cdef uint8_t strategy = share_strategy(<Broker*>broker, g)
    if strategy == SHARE_RANDOM:
        return "random"
    if strategy == SHARE_STICKY:
        return "sticky"
    if strategy == SHARE_LEAST_INFLIGHT:
        return "least_inflight"
    if strategy == SHARE_HASH_TOPIC:
        return "hash_topic"
    if strategy == SHARE_HASH_CLIENT:
        return "hash_client"
    return "round_robin"


cdef uint8_t answer(Broker* b, Client* c, const Publish* p, PublishHead* h, uint8_t* text, uint32_t room) noexcept nogil:
    cdef uint64_t work
    cdef uint32_t remaining, size
    cdef uint8_t* out
    h.payload_len = index_explain(b.index, p.payload.p, p.payload.n, text, room, strategy_name, b, &work)
    b.work += work + WORK_SEND
    size = publish_head_size(h, &remaining)
    if c.conn.out_bytes == 0:
        c.out_packets = 0
    out = client_room(b, c, size + h.payload_len)
    if out == NULL:
        return refused(b, DROP_MEMORY, RC_QUOTA_EXCEEDED)
    publish_head_put(out, h, remaining, NULL)
    memcpy(out + size, text, h.payload_len)
    client_wrote(b, c, out + size + h.payload_len, out)
    c.out_packets += 1
    b.stats.publish_out += 1
    b.stats.publish_bytes_out += h.payload_len
    return RC_SUCCESS
