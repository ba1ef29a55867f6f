"""List the connections that have not logged in, in the order of their arrival. If descriptors or memory run out, the oldest of them ends
first: a client that logs in needs less time than a connection that only waits. This module knows the list. It does not know the limits.

Invariant: a client is in the list exactly while CF_NEWCOMER is set. The links are positions in the slab + 1, which take half the bytes
of pointers. Cost: O(1), no memory of its own.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from cext.base.slab cimport slab_at
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport CF_NEWCOMER, Client, PendingPacket
from cext.net.conn_state cimport CONN_SMALL, Conn, Web

cdef enum:
    TRANSPORT_BYTES = 512       # approximate state of a TLS connection in addition to OpenSSL's memory


cdef inline Client* client_at(Broker* b, uint32_t place) noexcept nogil:
    return <Client*>slab_at(&b.clients, place - 1) if place else NULL


cdef void newcomer_add(Broker* b, Client* c) noexcept nogil:
    cdef Client* last = client_at(b, b.newcomers_last)
    cdef uint32_t place = c.slab.index + 1
    c.flags |= CF_NEWCOMER
    c.newcomer_prev = b.newcomers_last
    c.newcomer_next = 0
    if last != NULL:
        last.newcomer_next = place
    else:
        b.newcomers_first = place
    b.newcomers_last = place
    b.newcomers_n += 1
    c.conn.flags |= CONN_SMALL
    newcomer_count(b, c)


cdef void newcomer_leave(Broker* b, Client* c) noexcept nogil:
    cdef Client* before
    cdef Client* behind
    if not c.flags & CF_NEWCOMER:
        return
    before = client_at(b, c.newcomer_prev)
    behind = client_at(b, c.newcomer_next)
    c.flags &= ~<uint8_t>CF_NEWCOMER
    if before != NULL:
        before.newcomer_next = c.newcomer_next
    else:
        b.newcomers_first = c.newcomer_next
    if behind != NULL:
        behind.newcomer_prev = c.newcomer_prev
    else:
        b.newcomers_last = c.newcomer_prev
    b.newcomers_n -= 1
    b.newcomers_bytes -= c.newcomer_bytes
    c.newcomer_bytes = 0
    c.conn.flags &= ~<uint32_t>CONN_SMALL


cdef void newcomer_count(Broker* b, Client* c) noexcept nogil:
    cdef const Conn* conn = &c.conn
    cdef uint64_t n = sizeof(Client) + <uint64_t>conn.in_cap + conn.out_bytes
    if conn.web != NULL:
        n += sizeof(Web) + conn.web.request_cap
    if conn.transport != NULL:
        n += TRANSPORT_BYTES + <uint64_t>conn.transport.memory + conn.transport.unsent
    if c.pending_packet != NULL:
        n += sizeof(PendingPacket) + <uint64_t>c.pending_packet.frame_n
    b.newcomers_bytes += n - c.newcomer_bytes
    c.newcomer_bytes = <uint32_t>n


cdef Client* newcomer_oldest(Broker* b) noexcept nogil:
    return client_at(b, b.newcomers_first)
