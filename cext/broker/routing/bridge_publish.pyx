"""A PUBLISH to a bridge: the encoding that all other subscribers get, with the topic renamed and the loop guard's property
appended. This module knows renamings and the layout of PUBLISH. It does not know connections to other brokers.
"""

from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memcpy

from cext.base.view cimport View
from cext.broker.auth.bridge cimport bridge_props, bridge_renames, bridge_via
from cext.broker.core.bridge_state cimport bridges_of
from cext.broker.core.broker cimport Broker
from cext.broker.core.client cimport client_room
from cext.broker.core.client_state cimport Client
from cext.broker.core.publication_state cimport Publication, Shape
from cext.broker.routing.encode_publish cimport (
    FLAGS_DUP, NO_NAME, NO_ROOM, NO_SHAPE, TOO_LARGE, WROTE, count_publish, flags_qos, flags_retain, shape_of,
)
from cext.codec.encode cimport PublishHead
from cext.codec.frame cimport varint_put, varint_size
from cext.net.conn_output cimport conn_wrote
from cext.topic.lines cimport Renaming


cdef inline uint32_t varint_at(const uint8_t* p, uint32_t* at) noexcept nogil:
    """Read the variable byte integer at `at` and move `at` behind it. The bytes are the broker's own encoding, so the integer is
    complete and in its shortest form."""
    cdef uint32_t v = 0, shift = 0
    while True:
        v |= <uint32_t>(p[at[0]] & 127) << shift
        at[0] += 1
        if p[at[0] - 1] < 128:
            return v
        shift += 7


cdef View topic_renamed(Broker* b, const Renaming* name, View topic) noexcept nogil:
    """Return the renamed topic. It is valid until the next call."""
    cdef uint8_t* room = bridges_of(b).room
    topic.p += name.cut
    topic.n -= name.cut
    if name.prefix.n:
        memcpy(room, name.prefix.p, name.prefix.n)
        memcpy(room + name.prefix.n, topic.p, topic.n)
        topic.p = room
        topic.n += name.prefix.n
    return topic


cdef int head_rename(Broker* b, Client* c, PublishHead* h) noexcept nogil:
    cdef Renaming name
    cdef View via
    cdef int retain = h.retain
    if not bridge_renames(b, c, h.topic, &name, &retain):
        return NO_NAME
    h.retain = <uint8_t>retain
    h.topic = topic_renamed(b, &name, h.topic)
    via = bridge_via(b, c)
    return NO_ROOM if via.n and not bridge_props(b, &h.props, via) else WROTE


cdef int write_renamed(Broker* b, Client* c, Publication* p, uint32_t flags) noexcept nogil:
    cdef Renaming name
    cdef Shape* shape
    cdef View via
    cdef const uint8_t* old
    cdef uint8_t* out
    cdef uint8_t* start
    cdef uint32_t topic_n, remaining, size, props_n = 0, props_at = 0, at = 1
    cdef int retain = flags_retain(flags)
    if not bridge_renames(b, c, p.topic, &name, &retain):
        return NO_NAME
    flags = flags & ~<uint32_t>1 | <uint32_t>retain
    shape = shape_of(b, p, c.version, flags)
    if shape == NULL:
        return NO_SHAPE
    via = bridge_via(b, c)
    while shape.p[at] & 128:
        at += 1
    old = shape.p + at + 1               # length field of the topic
    topic_n = name.prefix.n + p.topic.n - name.cut
    remaining = shape.n - at - 1 + topic_n - p.topic.n
    if via.n:
        props_at = 2 + p.topic.n + (2 if flags_qos(flags) else 0)
        props_n = varint_at(old, &props_at)
        remaining += via.n + varint_size(props_n + via.n) - varint_size(props_n)
    size = 1 + varint_size(remaining) + remaining
    if c.packet_max and size > c.packet_max:
        return TOO_LARGE
    out = start = client_room(b, c, size)
    if out == NULL:
        return NO_ROOM
    out[0] = shape.p[0] | <uint8_t>(flags & FLAGS_DUP)
    out = varint_put(out + 1, remaining)
    out[0] = <uint8_t>(topic_n >> 8)
    out[1] = <uint8_t>topic_n
    out += 2
    if name.prefix.n:
        memcpy(out, name.prefix.p, name.prefix.n)
    memcpy(out + name.prefix.n, old + 2 + name.cut, p.topic.n - name.cut)
    out += topic_n
    old += 2 + p.topic.n
    if flags_qos(flags):
        out[0] = <uint8_t>(flags >> 24)
        out[1] = <uint8_t>(flags >> 16)
        out += 2
        old += 2
    if via.n:
        out = varint_put(out, props_n + via.n)
        old = shape.p + at + 1 + props_at
        memcpy(out, old, props_n)
        memcpy(out + props_n, via.p, via.n)
        out += props_n + via.n
        old += props_n
    memcpy(out, old, <size_t>(shape.p + shape.n - old))
    conn_wrote(&b.reactor, &c.conn, size)
    count_publish(b, c, p, flags, start, size - p.payload.n)
    return WROTE
