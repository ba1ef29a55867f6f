"""Store messages once, with a count of references. This module knows bytes, not which clients get them. A message is one cell; a
large payload is not copied but stays in the buffer into which it was read.

    Message | Backing (big) | topic | properties | payload (not big)
"""

from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memcpy

from cext.base.buffer cimport Buffers, buffer_give
from cext.base.cells cimport cells_give, cells_take
from cext.base.view cimport View

cdef struct Backing:            # the buffer that contains a big message's payload
    uint8_t* p
    uint32_t cap


cdef inline size_t message_block_bytes(bint big, uint32_t topic_n, uint32_t props_n, uint32_t payload_n) noexcept nogil:
    return sizeof(Message) + topic_n + <size_t>props_n + (sizeof(Backing) if big else payload_n)


cdef Message* message_alloc(Messages* store, View topic, View props, View payload, bint big) noexcept nogil:
    cdef Message* m = <Message*>cells_take(&store.cells, message_block_bytes(big, topic.n, props.n, payload.n))
    cdef uint8_t* p
    if m == NULL:
        return NULL
    p = <uint8_t*>m + sizeof(Message) + (sizeof(Backing) if big else 0)
    m.refs = 1
    m.qos = m.retain = 0
    m.big = big
    m.flags = 0
    m.lsn = 0
    m.arrived_ms = 0
    m.expires_ms = 0
    m.source_hash = 0
    memcpy(p, topic.p, topic.n)
    m.topic.p = p
    m.topic.n = topic.n
    p += topic.n
    m.props.p = p
    m.props.n = props.n
    if props.n:
        memcpy(p, props.p, props.n)
    m.payload.p = p + props.n
    m.payload.n = payload.n
    store.count += 1
    store.bytes += message_bytes(m)
    return m


cdef Message* message_new(Messages* store, View topic, View props, View payload) noexcept nogil:
    cdef Message* m = message_alloc(store, topic, props, payload, 0)
    if m != NULL and payload.n:
        memcpy(<uint8_t*>m.payload.p, payload.p, payload.n)
    return m


cdef Message* message_new_big(Messages* store, View topic, View props, View payload, uint8_t* backing, uint32_t cap) noexcept nogil:
    cdef Message* m = message_alloc(store, topic, props, payload, 1)
    if m == NULL:
        return NULL
    m.payload.p = payload.p
    (<Backing*>(m + 1)).p = backing
    (<Backing*>(m + 1)).cap = cap
    return m


cdef void message_free(Messages* store, Buffers* buffers, Message* m) noexcept nogil:
    store.count -= 1
    store.bytes -= message_bytes(m)
    if m.lsn:
        store.recorded_bytes -= message_bytes(m) + RECORD_ROOM
    if m.big:
        buffer_give(buffers, (<Backing*>(m + 1)).p, (<Backing*>(m + 1)).cap)
    cells_give(&store.cells, m, message_block_bytes(m.big, m.topic.n, m.props.n, m.payload.n))
