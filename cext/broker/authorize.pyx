"""A plugin's word on the packets of a client: may it publish, subscribe, unsubscribe, and how is a message changed on its way in. Knows packets
and verdicts; not what the handlers do with them.

What is not known is asked, and the packet parked: its client is not read from, and the packet comes up again with the answer. A PUBLISH asks
once for its topic and once for its change; a SUBSCRIBE for a slice of its filters at a time. Verdicts are kept at the session's gate,
so that the next packet on the same topic asks nothing.
"""

from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport calloc, free

from cext.base.view cimport View
from cext.broker.access cimport access_allows
from cext.broker.acl cimport ACL_ANONYMOUS, ACL_READ, ACL_WRITE, acl_allows, topic_reserved
from cext.broker.ask cimport FOR_PACKET, Answer, Q_ACL, Q_MESSAGE_IN, Question, question_bytes, question_end, question_new, question_send
from cext.broker.broker cimport Broker, Client, PARKED_FILTERS, PARKED_PUBLISH, Parked, Security
from cext.broker.gate cimport ACL_SUBSCRIBE, gate_verdict
from cext.broker.parked cimport PARKED, owned_set, park, park_again, park_goes_on, unpark
from cext.broker.subscription cimport parse_mounted
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
    cdef const Security* security = <const Security*>c.session.security
    cdef int known
    if c.parked != NULL and c.parked.answered:
        allowed[0] = c.parked.allowed
        return 0
    if security.authorize:
        known = c.parked.allowed if c.parked != NULL else gate_verdict(b, c.session, topic, ACL_WRITE)
        if known < 0:
            return ask_publish(b, c, p, topic, Q_ACL)
    else:
        known = access_allows(b, c.session, topic, ACL_WRITE)
    allowed[0] = known
    if known and not topic_reserved(topic) and is_changed(security, topic):
        return ask_publish(b, c, p, topic, Q_MESSAGE_IN)
    unpark(b, c)
    return 0


cdef int ask_publish(Broker* b, Client* c, Publish* p, View topic, int kind) noexcept nogil:
    cdef Message* m = NULL
    cdef View props
    cdef Question* q
    props.p = p.props.raw.p
    props.n = p.props.raw.n if c.version == V5 else 0
    if kind == Q_MESSAGE_IN:
        m = message_new(&b.messages, topic, props, p.payload)
        if m == NULL:
            return RC_QUOTA_EXCEEDED
    q = question_new(b, kind, c, NULL, m)
    if m != NULL:
        message_unref(&b.messages, &b.reactor.buffers, m)
    if q == NULL:
        return RC_QUOTA_EXCEEDED
    if question_bytes(q, topic) != 0 or (c.parked == NULL and park(b, c, PARKED_PUBLISH) == NULL):
        question_end(b, q)
        return RC_QUOTA_EXCEEDED
    park_again(b, c)
    c.parked.allowed = -1 if kind == Q_ACL else 1
    q.purpose = FOR_PACKET
    q.access = ACL_WRITE
    q.qos = p.qos
    q.retain = p.retain
    question_send(b, q)
    return PARKED


cdef void publish_changed(Broker* b, Client* c, const Answer* a) noexcept nogil:
    cdef Parked* k = c.parked
    if k.kind != PARKED_PUBLISH:
        return
    k.answered = 1
    if a == NULL or a.verdict == 0 or owned_set(&k.text, a.text) != 0 or owned_set(&k.bytes, a.bytes) != 0:
        k.dropped = 1
    else:
        k.replaced = 1
        k.qos = a.qos
        k.retain = a.retain
    park_goes_on(b, c)


# ---------------------------------------------------------------- SUBSCRIBE, UNSUBSCRIBE

cdef inline bint next_filter(Subscribe* s, SubscribeItem* item, uint8_t access) noexcept nogil:
    item.options = 0
    return subscribe_next(s, item) if access == ACL_SUBSCRIBE else unsubscribe_next(s, &item.filter)


cdef int filters_decide(Broker* b, Client* c, const Subscribe* s, uint8_t access) noexcept nogil:
    cdef Subscribe walk = s[0]
    cdef SubscribeItem item
    cdef Parked* k = c.parked
    if k == NULL:
        k = park(b, c, PARKED_FILTERS)
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
        park_again(b, c)
        return PARKED
    k.waits = 0                  # all is known
    c.conn.flags &= ~<uint32_t>CONN_PAUSED
    return 0


cdef void decide_one(Broker* b, Client* c, SubscribeItem* item, uint32_t i, uint8_t access) noexcept nogil:
    cdef Parked* k = c.parked
    cdef Filter f
    cdef uint8_t* owned
    cdef Question* q
    cdef int known
    k.verdicts[i] = YES          # what is no filter, its handler finds
    if parse_mounted(c, item.filter, &f, &owned) == 0:
        known = gate_verdict(b, c.session, f.filter, access)
        if known < 0:
            k.verdicts[i] = 0
            q = question_new(b, Q_ACL, c, NULL, NULL)
            if q == NULL or question_bytes(q, f.filter) != 0:
                k.verdicts[i] = NO
                if q != NULL:
                    question_end(b, q)
            else:
                q.purpose = FOR_PACKET
                q.access = access
                q.qos = item.options & 3
                q.item = i
                k.n_open += 1
                question_send(b, q)
        else:
            k.verdicts[i] = YES if known else NO
    free(owned)


# ---------------------------------------------------------------- answers

cdef void packet_answered(Broker* b, Client* c, Question* q, int allowed) noexcept nogil:
    cdef Parked* k = c.parked
    if k.kind == PARKED_PUBLISH:
        k.allowed = <signed char>allowed
        park_goes_on(b, c)
    elif k.kind == PARKED_FILTERS and k.n_open and k.verdicts[q.item] == 0:
        k.verdicts[q.item] = YES if allowed else NO
        k.n_open -= 1
        if k.n_open == 0:
            park_goes_on(b, c)
