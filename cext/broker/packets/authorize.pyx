"""Verdicts of plugins about the packets of a client: whether it may publish, subscribe or unsubscribe, and how a plugin
transforms a message on its way in. This module knows packets and verdicts, not what the handlers do with them.

An unknown verdict is requested from the control plane, and the packet becomes a pending packet: the broker reads nothing more
from the client, and handles the packet again when the answer arrives. A PUBLISH causes one auth request for its topic and one for
its transformation; a SUBSCRIBE causes auth requests for a slice of its filters at a time. The session's plugin gate remembers
verdicts, so the next packet on the same topic causes no auth request.
"""

from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memchr, memcmp, memcpy

from cext.base.view cimport View
from cext.broker.auth.auth_requests cimport (
    ASK_ACL, ASK_MESSAGE_IN, AuthAnswer, AuthRequest, FOR_PACKET, NATIVE_ASK_OTHERS, NativeAccess, auth_request_bytes,
    auth_request_end, auth_request_new, auth_request_send, is_native_at_once,
)
from cext.broker.core.access cimport access_allows
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport Client, Owned, PENDING_FILTERS, PENDING_PUBLISH, PendingPacket
from cext.broker.core.listener cimport Security
from cext.broker.core.pending_packet cimport (
    PACKET_PENDING, owned_set, pending_packet_new, pending_packet_resume, pending_packet_wait,
)
from cext.broker.core.session_refs cimport session_security
from cext.broker.core.subscription cimport parse_mounted
from cext.broker.routing.plugin_gate cimport ACL_SUBSCRIBE, plugin_gate_at_once, plugin_gate_known, plugin_gate_verdict
from cext.broker.rules.acl cimport ACL_ANONYMOUS, ACL_READ, ACL_WRITE, acl_allows, topic_reserved
from cext.codec.decode cimport Publish, Subscribe, SubscribeItem, subscribe_next, unsubscribe_next
from cext.codec.frame cimport V5
from cext.codec.reason cimport RC_QUOTA_EXCEEDED
from cext.codec.utf8 cimport utf8_check
from cext.net.conn_state cimport CONN_PAUSED
from cext.session.message cimport Message, message_new, message_unref
from cext.topic.name cimport Filter

cdef enum:
    FILTERS_ASKED_MAX = 64       # auth requests of one packet at a time
    FILTER_ALLOWED = 1                      # values of PendingPacket.verdicts; 0 = not known
    FILTER_DENIED = 2


# ---------------------------------------------------------------- PUBLISH

cdef bint is_transformed_in(const Security* security, View topic) noexcept nogil:
    cdef View no_name
    no_name.p = NULL
    no_name.n = 0
    return acl_allows(security.transform_in, ACL_ANONYMOUS, no_name, no_name, topic, ACL_READ)


cdef int publish_at_once(Broker* b, Client* c, const Publish* p, View topic) noexcept nogil:
    cdef NativeAccess asked
    asked.access = ACL_WRITE
    asked.qos = p.qos
    asked.retain = p.retain
    asked.topic = topic
    asked.payload = p.payload
    asked.props.p = p.props.raw.p
    asked.props.n = p.props.raw.n if c.version == V5 else 0
    return plugin_gate_at_once(b, c, c.session, &asked)


cdef int publish_decide(Broker* b, Client* c, Publish* p, View topic, int* allowed) noexcept nogil:
    cdef const Security* security = session_security(c.session)
    cdef int verdict
    if c.pending_packet != NULL and c.pending_packet.answered:
        allowed[0] = c.pending_packet.allowed
        return 0
    if security.authorize:
        verdict = c.pending_packet.allowed if c.pending_packet != NULL else plugin_gate_known(b, c.session, topic, ACL_WRITE)
        if verdict < 0 and c.pending_packet == NULL and is_native_at_once(security):
            verdict = publish_at_once(b, c, p, topic)
        if verdict < 0:
            return publish_request_verdict(b, c, p, topic, verdict)
    else:
        verdict = access_allows(b, c.session, topic, ACL_WRITE)
    allowed[0] = verdict
    if verdict and security.transform_in != NULL and is_transformed_in(security, topic) and not topic_reserved(topic):
        return publish_request_verdict(b, c, p, topic, verdict)
    return 0


cdef int publish_request_verdict(Broker* b, Client* c, Publish* p, View topic, int verdict) noexcept nogil:
    """Ask whether the client may publish; with the verdict 1, ask what becomes of the message."""
    cdef int kind = ASK_ACL if verdict < 0 else ASK_MESSAGE_IN
    cdef Message* m = NULL
    cdef View props
    cdef AuthRequest* q
    props.p = p.props.raw.p
    props.n = p.props.raw.n if c.version == V5 else 0
    if kind == ASK_MESSAGE_IN or session_security(c.session).each:
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
    q.natives_asked = verdict == NATIVE_ASK_OTHERS
    q.qos = p.qos
    q.retain = p.retain
    auth_request_send(b, q)
    return PACKET_PENDING


cdef void publish_changed(Broker* b, Client* c, const AuthAnswer* a) noexcept nogil:
    cdef PendingPacket* k = c.pending_packet
    if k.kind != PENDING_PUBLISH:
        return
    k.answered = 1
    if a != NULL and a.verdict == 0:
        k.dropped = 1
    elif (a == NULL or a.verdict < 0 or owned_set(&k.text, a.text) != 0 or owned_set(&k.bytes, a.bytes) != 0
            or owned_set(&k.props, a.extra) != 0):
        k.unanswered = 1
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
    cdef Subscribe rest = s[0]
    cdef SubscribeItem item
    cdef PendingPacket* k = c.pending_packet
    if k == NULL:
        k = pending_packet_new(b, c, PENDING_FILTERS)
        if k == NULL:
            return RC_QUOTA_EXCEEDED
    if k.verdicts == NULL:
        k.verdicts = <uint8_t*>calloc(s.items.n // 2 + 1, 1)     # a filter has at least 2 bytes
        if k.verdicts == NULL:
            return RC_QUOTA_EXCEEDED
        k.walk_left = s.items.n
        k.changed_room = s.items.n // 2 + 1
    rest.items.p += rest.items.n - k.walk_left   # skip the filters that are known: the packet is handled again after the answers
    rest.items.n = k.walk_left
    while k.n_open < FILTERS_ASKED_MAX and next_filter(&rest, &item, access):
        b.work += 20
        filter_decide(b, c, &item, k.n_walked, access)
        k.n_walked += 1
        k.walk_left = rest.items.n
    if k.n_open:
        pending_packet_wait(b, c)
        return PACKET_PENDING
    k.waits = 0                  # all verdicts are known
    c.conn.flags &= ~<uint32_t>CONN_PAUSED
    return 0


cdef void filter_decide(Broker* b, Client* c, SubscribeItem* item, uint32_t i, uint8_t access) noexcept nogil:
    cdef PendingPacket* k = c.pending_packet
    cdef Filter f
    cdef uint8_t* owned
    cdef AuthRequest* q
    cdef int verdict
    k.verdicts[i] = FILTER_ALLOWED          # the handler finds out that it is no valid filter
    if parse_mounted(c, item.filter, &f, &owned) == 0:
        verdict = -1 if session_security(c.session).filters else plugin_gate_verdict(b, c.session, f.filter, access)
        if verdict < 0:
            k.verdicts[i] = 0
            q = auth_request_new(b, ASK_ACL, c, NULL, NULL)
            if q == NULL or auth_request_bytes(q, f.filter) != 0:
                k.verdicts[i] = FILTER_DENIED
                if q != NULL:
                    auth_request_end(b, q)
            else:
                q.purpose = FOR_PACKET
                q.access = access
                q.qos = item.options if session_security(c.session).filters else item.options & 3
                q.item = i
                k.n_open += 1
                auth_request_send(b, q)
        else:
            k.verdicts[i] = FILTER_ALLOWED if verdict else FILTER_DENIED
    free(owned)


# ---------------------------------------------------------------- answers

cdef void filter_change(Client* c, uint32_t i, const AuthAnswer* a) noexcept nogil:
    """Remember the filter and the options that a plugin has set. Without memory the filter is denied."""
    cdef PendingPacket* k = c.pending_packet
    cdef View mount = c.listener.mount_point
    cdef uint8_t* bytes
    if k.changed == NULL:
        k.changed = <Owned*>calloc(k.changed_room, sizeof(Owned))
    if k.changed == NULL or a.text.n < mount.n or (mount.n and memcmp(a.text.p, mount.p, mount.n)):
        k.verdicts[i] = FILTER_DENIED            # a plugin cannot leave the mount point
        return
    if a.text.n - mount.n > 0xFFFF or utf8_check(a.text.p, a.text.n) != 0:
        k.verdicts[i] = FILTER_DENIED
        return
    bytes = <uint8_t*>malloc(a.text.n + <size_t>1)
    if bytes == NULL:
        k.verdicts[i] = FILTER_DENIED
        return
    bytes[0] = a.qos
    memcpy(bytes + 1, a.text.p + mount.n, a.text.n - mount.n)
    k.changed[i].p = bytes
    k.changed[i].n = a.text.n - mount.n + 1


cdef void filter_regroup(Owned* changed, View was) noexcept nogil:
    """Put $share/GROUP/ in front of a changed filter, if the filter of the packet has it: plugins do not see it."""
    cdef const uint8_t* slash
    cdef uint8_t* bytes
    cdef uint32_t n
    if was.n < 7 or memcmp(was.p, <const char*>b"$share/", 7) or (changed.n > 7 and memcmp(changed.p + 1, <const char*>b"$share/", 7) == 0):
        return
    slash = <const uint8_t*>memchr(was.p + 7, c'/', was.n - 7)
    if slash == NULL:
        return
    n = <uint32_t>(slash + 1 - was.p)
    bytes = <uint8_t*>malloc(<size_t>changed.n + n)
    if bytes == NULL:
        changed.n = 1            # no filter: it is invalid
        return
    bytes[0] = changed.p[0]
    memcpy(bytes + 1, was.p, n)
    memcpy(bytes + 1 + n, changed.p + 1, changed.n - 1)
    free(changed.p)
    changed.p = bytes
    changed.n += n


cdef bint filter_changed(Client* c, uint32_t i, SubscribeItem* item) noexcept nogil:
    cdef PendingPacket* k = c.pending_packet
    if k == NULL or k.changed == NULL or k.changed[i].p == NULL:
        return 0
    filter_regroup(&k.changed[i], item.filter)
    item.options = k.changed[i].p[0]
    item.filter.p = k.changed[i].p + 1
    item.filter.n = k.changed[i].n - 1
    return 1


cdef void packet_answered(Broker* b, Client* c, AuthRequest* q, int allowed, const AuthAnswer* a) noexcept nogil:
    cdef PendingPacket* k = c.pending_packet
    if k.kind == PENDING_PUBLISH:
        k.allowed = <signed char>allowed
        pending_packet_resume(b, c)
    elif k.kind == PENDING_FILTERS and k.n_open and k.verdicts[q.item] == 0:
        k.verdicts[q.item] = FILTER_ALLOWED if allowed else FILTER_DENIED
        if allowed and a != NULL and a.text.p != NULL:
            filter_change(c, q.item, a)
        k.n_open -= 1
        if k.n_open == 0:
            pending_packet_resume(b, c)
