"""Store publications when something must hold them, and count dropped messages. This module knows messages and memory. It does not know the
receivers, or how they are encoded.

Invariant: a publication is stored at most once, whatever the size of its fan-out.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from cext.base.view cimport View
from cext.broker.core.bounds cimport LEND_MIN_BYTES
from cext.broker.core.broker cimport Broker
from cext.broker.core.client cimport log_line_of
from cext.broker.core.client_state cimport Client
from cext.broker.core.log cimport LOG_LINE_MAX, LOG_NOTICE, log_wanted
from cext.broker.core.publication_state cimport Publication
from cext.broker.core.resident cimport memory_over
from cext.broker.core.session_refs cimport session_client
from cext.broker.core.stats cimport DROP_ACL_READ, DROP_EXPIRED
from cext.codec.frame cimport varint_put
from cext.codec.properties cimport P_SUBSCRIPTION_ID
from cext.session.message cimport MESSAGE_JOURNALLED, Message, message_new, message_new_big, message_ref, message_unref
from cext.session.session cimport SESSION_DROPPING, Session


# ---------------------------------------------------------------- publications

cdef void publication_init(Publication* p) noexcept nogil:
    memset(p, 0, sizeof(Publication) - sizeof(p.shapes))


cdef void publication_of(Publication* p, Message* m) noexcept nogil:
    publication_init(p)
    p.topic = m.topic
    p.props = m.props
    p.payload = m.payload
    p.expires_ms = m.expires_ms
    p.qos = m.qos
    p.retain = m.retain
    p.journalled = m.flags & MESSAGE_JOURNALLED
    p.message = message_ref(m)
    p.shaped = m.payload.n < LEND_MIN_BYTES


cdef void publication_fini(Broker* b, Publication* p) noexcept nogil:
    if p.message != NULL:
        message_unref(&b.messages, &b.reactor.buffers, p.message)
        p.message = NULL


cdef bint memory_short(Broker* b, uint64_t reserve) noexcept nogil:
    if not b.settings.memory_limit:
        return 0
    if not memory_over(b, reserve) or (b.replay.discard(b) and not memory_over(b, reserve)):
        return 0
    b.memory_refused = 1
    return 1


cdef Message* publication_store(Broker* b, Publication* p) noexcept nogil:
    if p.message != NULL:
        return p.message
    if memory_short(b, 0 if p.retain else memory_reserve(b)):
        return NULL
    cdef Message* m
    if p.steal != NULL:
        m = message_new_big(&b.messages, p.topic, p.props, p.payload, p.steal, p.steal_cap)
        if m != NULL:
            p.steal = NULL       # belongs to the message now
    else:
        m = message_new(&b.messages, p.topic, p.props, p.payload)
    if m == NULL:
        return NULL
    m.qos = p.qos
    m.retain = p.retain
    m.expires_ms = p.expires_ms
    m.arrived_ms = b.reactor.now_ms
    if p.source != NULL:
        m.source_hash = p.source.hash
    p.message = m
    # from here on the publication must not point into the read buffer, which may be reused
    p.topic = m.topic
    p.props = m.props
    p.payload = m.payload
    return m


# ---------------------------------------------------------------- drops

cdef void listener_dropped(const Session* s, int reason) noexcept nogil:
    cdef Client* c = session_client(s)
    if c != NULL and c.listener != NULL:
        c.listener.drops[reason] += 1


cdef void drop_unlogged(Broker* b, const Session* s, int reason, View topic) noexcept nogil:
    dropped(b, s, reason, topic)
    if reason != DROP_ACL_READ:          # filtered, not lost
        b.stats.publish_dropped += 1


cdef void drop(Broker* b, Session* s, int reason, View topic) noexcept nogil:
    drop_unlogged(b, s, reason, topic)
    if reason == DROP_ACL_READ or reason == DROP_EXPIRED or s.flags & SESSION_DROPPING:
        return
    s.flags |= SESSION_DROPPING
    if log_wanted(&b.log, LOG_NOTICE):
        log_line_of(b, session_client(s), LOG_NOTICE, snprintf(
            b.log.line, LOG_LINE_MAX, "Outgoing messages are being dropped for client %.*s.", <int>s.id_len,
            <const char*>s.client_id))


cdef Message* with_sub_ids(Broker* b, Publication* p, const uint32_t* sub_ids, uint32_t n) noexcept nogil:
    """Make a copy for a merged delivery that waits: its identifiers are at the end of its properties [v5 3.3.4-4]."""
    cdef View props
    cdef uint32_t i, size = p.props.n
    cdef Message* m
    cdef uint8_t* out
    cdef uint8_t* bytes = <uint8_t*>malloc(p.props.n + <size_t>n * 5)
    if bytes == NULL:
        return NULL
    if p.props.n:
        memcpy(bytes, p.props.p, p.props.n)
    out = bytes + size
    for i in range(n):
        out[0] = P_SUBSCRIPTION_ID
        out = varint_put(out + 1, sub_ids[i])
    props.p = bytes
    props.n = <uint32_t>(out - bytes)
    m = message_new(&b.messages, p.topic, props, p.payload)
    free(bytes)
    if m != NULL:
        m.qos = p.qos
        m.retain = p.retain
        m.expires_ms = p.expires_ms
        m.arrived_ms = p.message.arrived_ms if p.message != NULL else b.reactor.now_ms
    return m


cdef Message* publication_message(Broker* b, Publication* p, const uint32_t* sub_ids, uint32_t n_sub_ids) noexcept nogil:
    cdef Message* m
    if n_sub_ids > 1:
        return with_sub_ids(b, p, sub_ids, n_sub_ids)
    m = publication_store(b, p)
    return message_ref(m) if m != NULL else NULL
