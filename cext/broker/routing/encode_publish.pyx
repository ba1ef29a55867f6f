"""Encode, count and log an outgoing PUBLISH. A shape is the encoding of a publication for one combination of version, QoS and
retain flag; it is made once and copied to each subscriber. A client that needs a packet of its own (alias, subscription
identifiers) gets a head.

This module knows the codec and topic aliases. It does not know sessions or sockets.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport malloc
from libc.string cimport memcmp, memcpy

from cext.base.hash cimport hash_bytes
from cext.broker.core.bounds cimport SHAPES_BYTES
from cext.broker.core.broker cimport Broker
from cext.broker.core.client cimport log_line_of
from cext.broker.core.client_state cimport AliasOut, AliasSlot, Client
from cext.broker.core.log cimport LOG_DEBUG, LOG_LINE_MAX, LOG_TRACE, log_wanted
from cext.broker.core.publication_state cimport Publication, Shape
from cext.broker.trace.events cimport trace_published
from cext.codec.encode cimport PublishHead, publish_head_put, publish_head_size
from cext.codec.frame cimport V5


cdef void sent_publish(Broker* b, Client* c, const Publication* p, uint32_t flags, const uint8_t* out, uint32_t n) noexcept nogil:
    if log_wanted(&b.log, LOG_TRACE):
        trace_published(b, c, p, out, n)
    if log_wanted(&b.log, LOG_DEBUG):
        log_sent_publish(b, c, p, flags)


cdef void log_sent_publish(Broker* b, Client* c, const Publication* p, uint32_t flags) noexcept nogil:
    log_line_of(b, c, LOG_DEBUG, snprintf(
        b.log.line, LOG_LINE_MAX, "Sending PUBLISH to %.*s (d%d, q%d, r%d, m%d, '%.*s', ... (%u bytes))",
        <int>c.session.id_len, <const char*>c.session.client_id, flags_dup(flags), flags_qos(flags),
        flags_retain(flags), <int>flags_pid(flags),
        <int>p.topic.n, <const char*>p.topic.p, p.payload.n))


cdef inline uint32_t seconds_left(Broker* b, uint64_t expires_ms) noexcept nogil:
    return <uint32_t>((expires_ms - b.reactor.now_ms + 999) // 1000) if expires_ms > b.reactor.now_ms else 0


cdef void head_fill(Broker* b, PublishHead* h, Publication* p, int version, uint32_t flags) noexcept nogil:
    h.version = <uint8_t>version
    h.qos = <uint8_t>flags_qos(flags)
    h.retain = <uint8_t>flags_retain(flags)
    h.dup = <uint8_t>flags_dup(flags)
    h.pid = flags_pid(flags)
    h.alias = 0
    h.has_expiry = 0
    h.topic = p.topic
    h.n_sub_ids = 0
    h.sub_ids = NULL
    h.payload_len = p.payload.n
    if version == V5:
        h.props = p.props
        if p.expires_ms:
            h.has_expiry = 1
            h.expiry = seconds_left(b, p.expires_ms)


cdef Shape* shape_encode(Broker* b, Publication* p, uint32_t i, int version, uint32_t flags) noexcept nogil:
    cdef Shape* shape = &p.shapes[i]
    cdef PublishHead h
    cdef uint32_t size, remaining
    cdef uint8_t* out
    if p.frame.p != NULL and (p.frame.p[0] & 15) == flags and (p.frame_version == V5) == (version == V5):
        shape.p = <uint8_t*>p.frame.p    # the received frame is sent unchanged
        shape.n = p.frame.n
        shape.pid_at = p.frame_pid_at
        p.shapes_made |= <uint32_t>1 << i
        return shape
    head_fill(b, &h, p, version, flags)
    size = publish_head_size(&h, &remaining)
    if size == 0 or p.shapes_used + size + p.payload.n > SHAPES_BYTES:
        return NULL
    out = b.shape_bytes + p.shapes_used
    publish_head_put(out, &h, remaining, &shape.pid_at)
    if p.payload.n:
        memcpy(out + size, p.payload.p, p.payload.n)
    shape.p = out
    shape.n = size + p.payload.n
    p.shapes_used += shape.n
    p.shapes_made |= <uint32_t>1 << i
    return shape


cdef bint fits_client(Client* c, PublishHead* h) noexcept nogil:
    cdef uint32_t remaining
    cdef uint32_t size = publish_head_size(h, &remaining)
    return size != 0 and (c.packet_max == 0 or <uint64_t>size + h.payload_len <= c.packet_max)


cdef void alias_apply(Broker* b, Client* c, PublishHead* h) noexcept nogil:
    cdef AliasOut* a = &c.aliases.given
    cdef uint64_t hash = hash_bytes(&b.key, h.topic.p, h.topic.n)
    cdef uint32_t i = <uint32_t>hash & a.mask
    cdef AliasSlot* slot = &a.slots[i]
    while slot.topic != NULL:
        if slot.hash == hash and slot.n == h.topic.n and memcmp(slot.topic, h.topic.p, slot.n) == 0:
            h.alias = slot.alias
            h.topic.n = 0
            return
        i = (i + 1) & a.mask
        slot = &a.slots[i]
    if a.n == a.max or h.topic.n == 0:
        return
    h.alias = 1                  # placeholder with the size of the real alias, to check that the packet that introduces it fits
    if not fits_client(c, h):
        # it does not fit: send without an alias, because the client must not learn an alias from a packet that is not sent
        h.alias = 0
        return
    h.alias = 0
    slot.topic = <uint8_t*>malloc(h.topic.n)
    if slot.topic == NULL:
        return
    memcpy(slot.topic, h.topic.p, h.topic.n)
    slot.n = h.topic.n
    slot.hash = hash
    a.n += 1
    slot.alias = a.n
    h.alias = a.n
