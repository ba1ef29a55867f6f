"""Write a PUBLISH to a connected client's output: the shared shape, a bridge's renamed shape, or a packet of the client's own.
This module knows connections and the encodings. It does not know queues.

Invariant: a packet is written completely or not at all; half a frame ends the client.
Cost: for a shared shape, the copy of its bytes.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from cext.base.view cimport View
from cext.broker.core.bounds cimport LEND_MIN_BYTES, WORK_SEND
from cext.broker.core.broker cimport Broker
from cext.broker.core.client cimport client_doom, client_room, gives_aliases
from cext.broker.core.client_state cimport CF_BRIDGE, Client
from cext.broker.core.publication_state cimport Publication, Shape
from cext.broker.core.stats cimport DROP_MEMORY, DROP_NO_NAME, DROP_PACKET_SIZE
from cext.broker.persist.publication cimport publication_store
from cext.broker.routing.bridge_publish cimport head_rename, write_renamed
from cext.broker.routing.encode_publish cimport (
    FLAGS_DUP, NO_ROOM, NO_SHAPE, TOO_LARGE, WROTE, alias_apply, count_publish, flags_qos, head_fill, publish_flags,
    shape_of,
)
from cext.codec.encode cimport PublishHead, publish_head_put, publish_head_size
from cext.codec.frame cimport V5
from cext.codec.reason cimport RC_QUOTA_EXCEEDED
from cext.net.conn_output cimport conn_lend, conn_wrote
from cext.net.conn_state cimport CONN_DIRTY
from cext.session.message cimport message_ref


cdef inline int write_shape(Broker* b, Client* c, Publication* p, uint32_t flags) noexcept nogil:
    """Write the encoding that all subscribers of this kind share: a copy, with the packet id and DUP of this delivery."""
    cdef Shape* shape = shape_of(b, p, c.version, flags)
    cdef uint8_t* out
    if shape == NULL:
        return NO_SHAPE
    if c.packet_max and shape.n > c.packet_max:
        return TOO_LARGE
    out = client_room(b, c, shape.n)
    if out == NULL:
        return NO_ROOM
    memcpy(out, shape.p, shape.n)
    if flags_qos(flags):
        out[shape.pid_at] = <uint8_t>(flags >> 24)
        out[shape.pid_at + 1] = <uint8_t>(flags >> 16)
        out[0] |= <uint8_t>(flags & FLAGS_DUP)
    conn_wrote(&b.reactor, &c.conn, shape.n)
    count_publish(b, c, p, flags, out, shape.n - p.payload.n)
    return WROTE


cdef inline void unmount(const Client* c, View* topic) noexcept nogil:
    """Take the listener's mount point off the topic."""
    cdef View mount
    if c.listener == NULL or c.listener.mount_point.n == 0:
        return
    mount = c.listener.mount_point
    if topic.n > mount.n and memcmp(topic.p, mount.p, mount.n) == 0:
        topic.p += mount.n
        topic.n -= mount.n


cdef int write_single(Broker* b, Client* c, Publication* p, uint32_t flags, const uint32_t* sub_ids,
                      uint32_t n_sub_ids) noexcept nogil:
    """Write the packet for one client that needs its own: a topic alias, subscription identifiers, a mount point, or a payload
    that is lent to the socket and not copied."""
    cdef PublishHead h
    cdef uint32_t size, remaining
    cdef uint8_t* out
    cdef int wrote
    cdef bint lend = p.payload.n >= LEND_MIN_BYTES and publication_store(b, p) != NULL
    head_fill(b, &h, p, c.version, flags)
    if c.version == V5:
        h.sub_ids = sub_ids
        h.n_sub_ids = n_sub_ids
    unmount(c, &h.topic)
    if c.flags & CF_BRIDGE:
        wrote = head_rename(b, c, &h)
        if wrote != WROTE:
            return wrote
    size = publish_head_size(&h, &remaining)
    if size == 0 or (c.packet_max and <uint64_t>size + p.payload.n > c.packet_max):
        return TOO_LARGE
    if gives_aliases(c):
        alias_apply(b, c, &h)
        size = publish_head_size(&h, &remaining)
    out = client_room(b, c, size if lend else size + p.payload.n)
    if out == NULL:
        return NO_ROOM
    publish_head_put(out, &h, remaining, NULL)
    if lend:
        conn_wrote(&b.reactor, &c.conn, size)
        if conn_lend(&b.reactor, &c.conn, p.payload.p, p.payload.n, message_ref(p.message)) != 0:
            p.message.refs -= 1
            client_doom(b, c, RC_QUOTA_EXCEEDED)     # half a frame is in the output: the stream cannot be repaired
            return NO_ROOM
    else:
        if p.payload.n:
            memcpy(out + size, p.payload.p, p.payload.n)
        conn_wrote(&b.reactor, &c.conn, size + p.payload.n)
    count_publish(b, c, p, publish_flags(h.qos, h.retain, h.dup, h.pid), out, size)
    return WROTE


cdef int write_publish(Broker* b, Client* c, Publication* p, uint32_t flags, const uint32_t* sub_ids,
                       uint32_t n_sub_ids) noexcept nogil:
    cdef int wrote
    if c.conn.out_bytes == 0:
        c.out_packets = 0
    if not c.conn.flags & CONN_DIRTY:
        b.work += WORK_SEND
    b.work += 1
    if p.shaped and n_sub_ids == 0 and not gives_aliases(c):
        if c.listener == NULL or not c.listener.renames:
            wrote = write_shape(b, c, p, flags)
            if wrote != NO_SHAPE:
                return wrote
        elif c.flags & CF_BRIDGE:
            wrote = write_renamed(b, c, p, flags)
            if wrote != NO_SHAPE:
                return wrote
    return write_single(b, c, p, flags, sub_ids, n_sub_ids)


cdef int write_fail_reason(int wrote) noexcept nogil:
    return DROP_MEMORY if wrote == NO_ROOM else DROP_PACKET_SIZE if wrote == TOO_LARGE else DROP_NO_NAME
