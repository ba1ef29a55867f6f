"""A plugin's word on the packets of a client: may it publish, subscribe, unsubscribe, and how is a message changed on its way in. Knows packets
and verdicts; not what the handlers do with them.

What is not known is asked, and the packet parked: its client is not read from, and the packet comes up again with the answer. A PUBLISH asks
once for its topic and once for its change; a SUBSCRIBE for a slice of its filters at a time. Verdicts are kept at the session's gate,
so that the next packet on the same topic asks nothing.
"""

from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport calloc, free

from cext.base.view cimport View
from cext.broker.auth.auth_requests cimport (
    ASK_ACL, ASK_MESSAGE_IN, Answer, AuthRequest, FOR_PACKET, auth_request_bytes, auth_request_end, auth_request_new,
    auth_request_send,
)
from cext.broker.core.access cimport access_allows
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport Client, PENDING_FILTERS, PENDING_PUBLISH, PendingPacket
from cext.broker.core.listener cimport Security
from cext.broker.core.pending_packet cimport (
    PACKET_PENDING, owned_set, pending_packet_free, pending_packet_new, pending_packet_resume, pending_packet_wait,
)
from cext.broker.core.session_refs cimport session_security
from cext.broker.core.subscription cimport parse_mounted
from cext.broker.routing.plugin_gate cimport ACL_SUBSCRIBE, plugin_gate_verdict
from cext.broker.rules.acl cimport ACL_ANONYMOUS, ACL_READ, ACL_WRITE, acl_allows, topic_reserved
from cext.codec.decode cimport Publish, Subscribe, SubscribeItem, subscribe_next, unsubscribe_next
from cext.codec.frame cimport V5
from cext.codec.reason cimport RC_QUOTA_EXCEEDED
from cext.net.reactor cimport CONN_PAUSED
from cext.session.message cimport Message, message_new, message_unref
from cext.topic.name cimport Filter

cdef enum:
    FILTERS_ASKED_MAX = 64       # of one packet at a time
    YES = 1                      # in Parked.verdicts; 0: not known
    NO = 2


# ---------------------------------------------------------------- PUBLISH

cdef bint is_changed(const Security* security, View topic) noexcept nogil:
    cdef View nobody
    nobody.p = NULL
    nobody.n = 0
    return security.transform_in != NULL and acl_allows(security.transform_in, ACL_ANONYMOUS, nobody, nobody, topic, ACL_READ)


cdef int publish_decide(Broker* b, Client* c, Publish* p, View topic, int* allowed) noexcept nogil:
    cdef const Security* security = session_security(c.session)
    cdef int known
    if c.pending_packet != NULL and c.pending_packet.answered:
        allowed[0] = c.pending_packet.allowed
        return 0
    if security.authorize:
        known = c.pending_packet.allowed if c.pending_packet != NULL else plugin_gate_verdict(b, c.session, topic, ACL_WRITE)
        if known < 0:
            return ask_publish(b, c, p, topic, ASK_ACL)
    else:
        known = access_allows(b, c.session, topic, ACL_WRITE)
    allowed[0] = known
    if known and not topic_reserved(topic) and is_changed(security, topic):
        return ask_publish(b, c, p, topic, ASK_MESSAGE_IN)
    pending_packet_free(b, c)
    return 0


cdef int ask_publish(Broker* b, Client* c, Publish* p, View topic, int kind) noexcept nogil:
    cdef Message* m = NULL
    cdef View props
    cdef AuthRequest* q
    props.p = p.props.raw.p
    props.n = p.props.raw.n if c.version == V5 else 0
    if kind == ASK_MESSAGE_IN:
        m = message_new(&b.messages, topic, props, p.payload)
        if m == NULL:
            return RC_QUOTA_EXCEEDED
    q = auth_request_new(b, kind, c, NULL, m)
    if m != NULL:
        message_unref(&b.messages, &b.reactor.buffers, m)
    if q == NULL:
        return RC_QUOTA_EXCEEDED
    if auth_request_bytes(q, topic) != 0 or (c.pending_packet == NULL and pending_packet_new(b, c, PENDING_PUBLISH) == NULL):
        auth_request_end(b, q)
        return RC_QUOTA_EXCEEDED
    pending_packet_wait(b, c)
    c.pending_packet.allowed = -1 if kind == ASK_ACL else 1
    q.purpose = FOR_PACKET
    q.access = ACL_WRITE
    q.qos = p.qos
    q.retain = p.retain
    auth_request_send(b, q)
    return PACKET_PENDING


cdef void publish_changed(Broker* b, Client* c, const Answer* a) noexcept nogil:
    cdef PendingPacket* k = c.pending_packet
    if k.kind != PENDING_PUBLISH:
        return
    k.answered = 1
    if a == NULL or a.verdict == 0 or owned_set(&k.text, a.text) != 0 or owned_set(&k.bytes, a.bytes) != 0:
        k.dropped = 1
    else:
        k.replaced = 1
        k.qos = a.qos
        k.retain = a.retain
    pending_packet_resume(b, c)


# ---------------------------------------------------------------- SUBSCRIBE, UNSUBSCRIBE

cdef inline bint next_filter(Subscribe* s, SubscribeItem* item, uint8_t access) noexcept nogil:
    item.options = 0
    return subscribe_next(s, item) if access == ACL_SUBSCRIBE else unsubscribe_next(s, &item.filter)


cdef int filters_decide(Broker* b, Client* c, const Subscribe* s, uint8_t access) noexcept nogil:
    cdef Subscribe walk = s[0]
    cdef SubscribeItem item
    cdef PendingPacket* k = c.pending_packet
    if k == NULL:
        k = pending_packet_new(b, c, PENDING_FILTERS)
        if k == NULL:
            return RC_QUOTA_EXCEEDED
        k.verdicts = <uint8_t*>calloc(s.items.n // 2 + 1, 1)     # a filter has at least 2 bytes
        if k.verdicts == NULL:
            return RC_QUOTA_EXCEEDED
        k.walk_left = s.items.n
    walk.items.p += walk.items.n - k.walk_left   # all before is known: the packet came up again with the answers
    walk.items.n = k.walk_left
    while k.n_open < FILTERS_ASKED_MAX and next_filter(&walk, &item, access):
        b.work += 20
        decide_one(b, c, &item, k.n_walked, access)
        k.n_walked += 1
        k.walk_left = walk.items.n
    if k.n_open:
        pending_packet_wait(b, c)
        return PACKET_PENDING
    k.waits = 0                  # all is known
    c.conn.flags &= ~<uint32_t>CONN_PAUSED
    return 0


cdef void decide_one(Broker* b, Client* c, SubscribeItem* item, uint32_t i, uint8_t access) noexcept nogil:
    cdef PendingPacket* k = c.pending_packet
    cdef Filter f
    cdef uint8_t* owned
    cdef AuthRequest* q
    cdef int known
    k.verdicts[i] = YES          # what is no filter, its handler finds
    if parse_mounted(c, item.filter, &f, &owned) == 0:
        known = plugin_gate_verdict(b, c.session, f.filter, access)
        if known < 0:
            k.verdicts[i] = 0
            q = auth_request_new(b, ASK_ACL, c, NULL, NULL)
            if q == NULL or auth_request_bytes(q, f.filter) != 0:
                k.verdicts[i] = NO
                if q != NULL:
                    auth_request_end(b, q)
            else:
                q.purpose = FOR_PACKET
                q.access = access
                q.qos = item.options & 3
                q.item = i
                k.n_open += 1
                auth_request_send(b, q)
        else:
            k.verdicts[i] = YES if known else NO
    free(owned)


# ---------------------------------------------------------------- answers

cdef void packet_answered(Broker* b, Client* c, AuthRequest* q, int allowed) noexcept nogil:
    cdef PendingPacket* k = c.pending_packet
    if k.kind == PENDING_PUBLISH:
        k.allowed = <signed char>allowed
        pending_packet_resume(b, c)
    elif k.kind == PENDING_FILTERS and k.n_open and k.verdicts[q.item] == 0:
        k.verdicts[q.item] = YES if allowed else NO
        k.n_open -= 1
        if k.n_open == 0:
            pending_packet_resume(b, c)
