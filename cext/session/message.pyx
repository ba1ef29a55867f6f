"""Messages: stored once, reference counted. Knows bytes; not who gets them. One allocation each; a large payload is not
copied but keeps the buffer that it was read into."""

from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from cext.base.buffer cimport Buffers, buffer_give
from cext.base.view cimport View


cdef Message* message_alloc(Messages* store, View topic, View props, size_t payload_inline) noexcept nogil:
    cdef Message* m = <Message*>malloc(sizeof(Message) + topic.n + props.n + payload_inline)
    if m == NULL:
        return NULL
    cdef uint8_t* p = <uint8_t*>m + sizeof(Message)
    m.refs = 1
    m.qos = m.retain = m.big = 0
    m.expires_ms = 0
    m.backing = NULL
    m.backing_cap = 0
    memcpy(p, topic.p, topic.n)
    m.topic.p = p
    m.topic.n = topic.n
    m.props.p = p + topic.n
    m.props.n = props.n
    if props.n:
        memcpy(p + topic.n, props.p, props.n)
    store.count += 1
    return m


cdef Message* message_new(Messages* store, View topic, View props, View payload) noexcept nogil:
    cdef Message* m = message_alloc(store, topic, props, payload.n)
    if m == NULL:
        return NULL
    cdef uint8_t* p = <uint8_t*>m + sizeof(Message) + topic.n + props.n
    if payload.n:
        memcpy(p, payload.p, payload.n)
    m.payload.p = p
    m.payload.n = payload.n
    m.bytes = topic.n + props.n + payload.n
    store.bytes += m.bytes
    return m


cdef Message* message_new_big(Messages* store, View topic, View props, View payload, uint8_t* backing, uint32_t cap) noexcept nogil:
    cdef Message* m = message_alloc(store, topic, props, 0)
    if m == NULL:
        return NULL
    m.big = 1
    m.backing = backing
    m.backing_cap = cap
    m.payload = payload
    m.bytes = topic.n + props.n + payload.n
    store.bytes += m.bytes
    return m


cdef void message_free(Messages* store, Buffers* buffers, Message* m) noexcept nogil:
    store.count -= 1
    store.bytes -= m.bytes
    if m.big:
        buffer_give(buffers, m.backing, m.backing_cap)
    free(m)
