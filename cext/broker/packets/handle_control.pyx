"""Handle PUBLISH packets to the broker itself: topics below `$CONTROL/`.

    $CONTROL/mosq/index/v1   a topic name -> the filters that it matches (cext/topic/explain): answered here, at once
    settings.control_topics  sent to the control plane (auth_requests.pyx), which answers only the client that asked (here), or
                             publishes the answer (answer.pyx)
    any other                answered with an error on TOPIC/response, as in Mosquitto

This module knows which clients may ask, not the contents of an answer. A request and its direct answer are never routed,
retained, stored or visible to other clients. While HIGH_WATER_BYTES of output wait for a client, the broker answers none of its
requests, so a client that asks too much must read first.
Cost: an index request costs a match and the text, counted in broker.work, and one allocation of up to 64 KiB for the length of
the call. A request to the control plane costs one copy into a bounded ring. While the ring is full, the client that asks waits,
and no other client.
"""

from libc.stdint cimport int8_t, uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy

from cext.base.slab cimport slab_get
from cext.base.view cimport View
from cext.broker.auth.auth_requests cimport (
    ASK_CONTROL, AuthAnswer, AuthRequest, FOR_PACKET, auth_request_end, auth_request_new, auth_request_send, control_post,
)
from cext.broker.core.access cimport access_allows
from cext.broker.core.bounds cimport HIGH_WATER_BYTES, WORK_SEND
from cext.broker.core.broker cimport Broker
from cext.broker.core.client cimport client_room, client_wrote
from cext.broker.core.client_state cimport CF_DOOMED, CF_TRUSTED, C_CONNECTED, Client, PENDING_PUBLISH
from cext.broker.core.listener cimport Security
from cext.broker.core.pending_packet cimport PACKET_PENDING, pending_packet_new, pending_packet_wait
from cext.broker.core.session_refs cimport session_security
from cext.broker.core.settings cimport (
    SHARE_HASH_CLIENT, SHARE_HASH_TOPIC, SHARE_LEAST_INFLIGHT, SHARE_RANDOM, SHARE_STICKY, SHARE_STREAM,
)
from cext.broker.core.stats cimport DROP_ACL_WRITE, DROP_MEMORY, DROP_PACKET_SIZE, DROP_PAYLOAD_SIZE, DROP_QOS0_BLOCKED
from cext.broker.core.workers cimport workers_of
from cext.broker.links.foreign cimport peer_route
from cext.broker.persist.publication cimport dropped, memory_short
from cext.broker.routing.share cimport share_strategy
from cext.broker.rules.acl cimport ACL_WRITE
from cext.codec.decode cimport Publish
from cext.codec.encode cimport PublishHead, publish_head_put, publish_head_size
from cext.codec.frame cimport V5
from cext.codec.properties cimport P_CORRELATION_DATA, props_has
from cext.codec.reason cimport RC_NOT_AUTHORIZED, RC_PACKET_TOO_LARGE, RC_PAYLOAD_FORMAT_INVALID, RC_QUOTA_EXCEEDED, RC_SUCCESS
from cext.codec.utf8 cimport utf8_check
from cext.net.address cimport address_local
from cext.net.conn_output cimport conn_flush
from cext.net.conn_state cimport CONN_CLOSED, CONN_CLOSING
from cext.topic.explain cimport EXPLAIN_BYTES_MAX, EXPLAIN_BYTES_MIN, index_explain
from cext.topic.index cimport Group
from cext.topic.name cimport name_check

cdef enum:
    ENVELOPE_BYTES = 3 * 65536   # bytes of a request beside topic and payload, at most: names, correlation data
    WORKER_BYTES_MAX = 24        # of the number of the worker in an answer about the index


cdef inline bint text_is(View a, const char* text, uint32_t n) noexcept nogil:
    return a.n == n and memcmp(a.p, text, n) == 0


cdef bint is_index(View topic) noexcept nogil:
    return text_is(topic, "$CONTROL/mosq/index/v1", 22)


cdef bint is_control_topic(Broker* b, View topic) noexcept nogil:
    cdef uint32_t i
    for i in range(b.settings.n_control_topics):
        if text_is(topic, <const char*>b.settings.control_topics[i].p, b.settings.control_topics[i].n):
            return 1
    return 0


cdef bint may_request(Broker* b, Client* c, View topic, int allowed) noexcept nogil:
    cdef const Security* security = session_security(c.session)
    if c.flags & CF_TRUSTED:
        return 1
    if allowed >= 0:
        return allowed
    # `#` does not match topics that begin with `$`: only a rule that names $CONTROL grants access
    if security != NULL and (security.acl != NULL or security.roles != NULL):
        return access_allows(b, c.session, topic, ACL_WRITE)
    if topic.n > 14 and memcmp(topic.p, <const char*>b"$CONTROL/mosq/", 14) == 0:
        return address_local(&c.conn.address, b.settings.control_loopback)
    return 1                     # without rules everything is allowed, as in Mosquitto


cdef uint8_t control_refuse(Broker* b, const Client* c, int reason, View topic, uint8_t rc) noexcept nogil:
    dropped(b, c.session, reason, topic)
    return rc


cdef View correlation_of(const Client* c, const Publish* p) noexcept nogil:
    """Return the correlation data unchanged, with its property identifier and length in front."""
    cdef View v
    v.p = NULL
    v.n = 0
    if c.version == V5 and props_has(&p.props, P_CORRELATION_DATA):
        v.p = p.props.correlation_data.p - 3
        v.n = p.props.correlation_data.n + 3
    return v


cdef int control_handle(Broker* b, Client* c, const Publish* p, int allowed) noexcept nogil:
    if not may_request(b, c, p.topic, allowed):
        return control_refuse(b, c, DROP_ACL_WRITE, p.topic, RC_NOT_AUTHORIZED)
    if b.settings.message_size_limit and p.payload.n > b.settings.message_size_limit:
        return control_refuse(b, c, DROP_PAYLOAD_SIZE, p.topic, RC_PACKET_TOO_LARGE)
    if is_index(p.topic):
        return index_answer(b, c, p)
    if not is_control_topic(b, p.topic):
        return answer_no_endpoint(b, c, p)
    if memory_short(b, 0):
        return control_refuse(b, c, DROP_MEMORY, p.topic, RC_QUOTA_EXCEEDED)
    b.work += WORK_SEND + p.payload.n // 64
    if control_post(b, c, p.topic, p.payload, correlation_of(c, p)):
        return RC_SUCCESS
    if wait_for_room(b, c, p, allowed) == 0:
        return PACKET_PENDING
    return control_refuse(b, c, DROP_MEMORY, p.topic, RC_QUOTA_EXCEEDED)


cdef int wait_for_room(Broker* b, Client* c, const Publish* p, int allowed) noexcept nogil:
    """Make the packet a pending packet until the control plane has room. The broker reads nothing from this client in that
    time."""
    cdef AuthRequest* q = auth_request_new(b, ASK_CONTROL, c, NULL, NULL)
    if q == NULL:
        return -1
    if c.pending_packet == NULL and pending_packet_new(b, c, PENDING_PUBLISH) == NULL:
        auth_request_end(b, q)
        return -1
    pending_packet_wait(b, c)
    c.pending_packet.allowed = <int8_t>allowed
    q.purpose = FOR_PACKET
    q.n = p.payload.n + p.topic.n + ENVELOPE_BYTES
    auth_request_send(b, q)
    return 0


# ---------------------------------------------------------------- answers

cdef void answer_head_fill(PublishHead* h, Client* c, View topic, View correlation) noexcept nogil:
    h.version = c.version
    h.qos = 0
    h.retain = 0
    h.dup = 0
    h.pid = 0
    h.alias = 0
    h.has_expiry = 0
    h.sub_ids = NULL
    h.n_sub_ids = 0
    h.topic = topic
    h.props = correlation


cdef bint output_is_full(Broker* b, Client* c) noexcept nogil:
    if c.conn.out_bytes > HIGH_WATER_BYTES:
        conn_flush(&b.reactor, &c.conn)
    return c.conn.out_bytes > HIGH_WATER_BYTES


cdef uint8_t answer_send(Broker* b, Client* c, PublishHead* h, const uint8_t* payload, uint32_t n) noexcept nogil:
    cdef uint32_t remaining, size
    cdef uint8_t* out
    h.payload_len = n
    size = publish_head_size(h, &remaining)
    if c.packet_max and c.packet_max < <uint64_t>size + n:
        return control_refuse(b, c, DROP_PACKET_SIZE, h.topic, RC_PACKET_TOO_LARGE)
    if c.conn.out_bytes == 0:
        c.out_packets = 0
    out = client_room(b, c, size + n)
    if out == NULL:
        return control_refuse(b, c, DROP_MEMORY, h.topic, RC_QUOTA_EXCEEDED)
    publish_head_put(out, h, remaining, NULL)
    if n:
        memcpy(out + size, payload, n)
    client_wrote(b, c, out + size + n, out)
    c.out_packets += 1
    b.stats.publish_out += 1
    b.stats.publish_bytes_out += n
    b.work += WORK_SEND
    return RC_SUCCESS


cdef uint8_t answer_no_endpoint(Broker* b, Client* c, const Publish* p) noexcept nogil:
    cdef PublishHead h
    cdef View topic
    cdef uint8_t* bytes
    if p.topic.n > 65535 - 9 or output_is_full(b, c):
        return RC_SUCCESS
    bytes = <uint8_t*>malloc(p.topic.n + 9)
    if bytes == NULL:
        return control_refuse(b, c, DROP_MEMORY, p.topic, RC_QUOTA_EXCEEDED)
    memcpy(bytes, p.topic.p, p.topic.n)
    memcpy(bytes + p.topic.n, <const char*>b"/response", 9)
    topic.p = bytes
    topic.n = p.topic.n + 9
    answer_head_fill(&h, c, topic, correlation_of(c, p))
    answer_send(b, c, &h, <const uint8_t*>b'{"error": "endpoint not available"}', 35)
    free(bytes)
    return RC_SUCCESS


cdef bint control_answered(Broker* b, const AuthAnswer* a) noexcept nogil:
    cdef Client* c = <Client*>slab_get(&b.clients, <uint32_t>(a.handle >> 32), <uint32_t>a.handle)
    cdef PublishHead h
    cdef View correlation = a.extra
    if c == NULL or c.state != C_CONNECTED or c.flags & CF_DOOMED or c.conn.flags & (CONN_CLOSED | CONN_CLOSING):
        return 0
    if c.version != V5 or correlation.p == NULL:
        correlation.n = 0
    if output_is_full(b, c):
        control_refuse(b, c, DROP_QOS0_BLOCKED, a.text, 0)
        return 1
    answer_head_fill(&h, c, a.text, correlation)
    answer_send(b, c, &h, a.bytes.p, a.bytes.n)
    return 1


# ---------------------------------------------------------------- the index

cdef uint8_t index_answer(Broker* b, Client* c, const Publish* p) noexcept nogil:
    cdef PublishHead h
    cdef View topic
    cdef uint64_t work
    cdef uint32_t remaining, size, n
    cdef uint32_t room = EXPLAIN_BYTES_MAX
    cdef uint32_t named = 0             # bytes of the number of the worker that answers
    cdef uint8_t* text
    cdef uint8_t rc
    if name_check(p.payload.p, p.payload.n) != 0 or utf8_check(p.payload.p, p.payload.n) != 0:
        return RC_PAYLOAD_FORMAT_INVALID
    if output_is_full(b, c):
        return control_refuse(b, c, DROP_QOS0_BLOCKED, p.topic, RC_QUOTA_EXCEEDED)
    topic.p = <const uint8_t*>b"$CONTROL/mosq/index/v1/response"
    topic.n = 31
    answer_head_fill(&h, c, topic, correlation_of(c, p))
    h.payload_len = room
    size = publish_head_size(&h, &remaining)
    if c.packet_max and c.packet_max < <uint64_t>size + room:
        if c.packet_max < <uint64_t>size + EXPLAIN_BYTES_MIN + WORKER_BYTES_MAX:
            return control_refuse(b, c, DROP_PACKET_SIZE, p.topic, RC_PACKET_TOO_LARGE)
        room = c.packet_max - size
    text = <uint8_t*>malloc(room) if not memory_short(b, 0) else NULL
    if text == NULL:
        return control_refuse(b, c, DROP_MEMORY, p.topic, RC_QUOTA_EXCEEDED)
    if b.workers != NULL:
        named = snprintf(<char*>text, WORKER_BYTES_MAX, "{\"worker\":%u", <unsigned int>workers_of(b).place + 1)
    n = named + index_explain(b.index, p.payload.p, p.payload.n, text + named, room - named, strategy_name, peer_route, b, &work)
    if named:
        text[named] = c','           # instead of the brace with which the explanation begins
    b.work += work
    rc = answer_send(b, c, &h, text, n)
    free(text)
    return rc


cdef const char* strategy_name(void* broker, const Group* g) noexcept nogil:
    """Return the strategy's name as in the option shared_strategy."""
    cdef uint8_t strategy = share_strategy(<Broker*>broker, g)
    if strategy == SHARE_STREAM:
        return "stream"
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
