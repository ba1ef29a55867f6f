"""List the connections that have not logged in by their source network. If descriptors or memory run out, the oldest connection of a network
that holds much ends first, so a flood ends its own connections. This module knows the lists. It does not know the limits.

A network is an IPv4 /24 or an IPv6 /56 (log_rate.pyx). A keyed hash gives its place in a table of fixed size. Networks with the same place
count as one. A network holds much if it holds at least half as much as the largest one, and more than a small part of all. If no network
does, as in a flood from everywhere, the oldest connection of all ends: a client that logs in needs less time than a connection that waits.

Invariant: a client is in one list exactly while CF_NEWCOMER is set. The links are positions in the slab + 1, which take half the bytes of
pointers. Cost: one hash per connection, no memory of its own. An eviction reads the table twice (12 kB).
"""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from cext.base.hash cimport hash_bytes
from cext.base.slab cimport slab_at
from cext.broker.core.broker cimport Broker, NewcomerNetwork
from cext.broker.core.client_state cimport CF_NEWCOMER, C_NEW, Client, PendingPacket
from cext.broker.core.log_rate cimport source_network
from cext.net.conn cimport conn_resume
from cext.net.conn_state cimport Address, CONN_PAUSED, CONN_SMALL, Conn, Web

cdef enum:
    TRANSPORT_BYTES = 512       # approximate state of a TLS connection in addition to OpenSSL's memory
    NEWCOMER_NETWORKS = 512
    SMALL_PART = 256            # a network with less than this part of all is small: a few handshakes of 90 kB in login_memory


cdef inline Client* client_at(Broker* b, uint32_t place) noexcept nogil:
    return <Client*>slab_at(&b.clients, place - 1) if place else NULL


cdef void newcomer_add(Broker* b, Client* c) noexcept nogil:
    c.flags |= CF_NEWCOMER
    c.conn.flags |= CONN_SMALL
    c.newcomer_met = b.newcomers_met
    b.newcomers_met += 1
    b.newcomers_n += 1
    newcomer_link(b, c)
    newcomer_count(b, c)


cdef void newcomer_link(Broker* b, Client* c) noexcept nogil:
    """Append the client to the list of its network, with the memory that it is counted as."""
    cdef Address network
    cdef NewcomerNetwork* w
    cdef Client* last
    cdef uint32_t place = c.slab.index + 1
    source_network(&c.conn.address, &network)
    c.newcomer_network = <uint16_t>(hash_bytes(&b.key, <const uint8_t*>&network, sizeof(Address)) % NEWCOMER_NETWORKS)
    w = &b.newcomer_networks[c.newcomer_network]
    last = client_at(b, w.last)
    c.newcomer_prev = w.last
    c.newcomer_next = 0
    if last != NULL:
        last.newcomer_next = place
    else:
        w.first = place
        w.first_met = c.newcomer_met
    w.last = place
    w.n += 1
    w.bytes += c.newcomer_bytes


cdef void newcomer_unlink(Broker* b, Client* c) noexcept nogil:
    cdef NewcomerNetwork* w = &b.newcomer_networks[c.newcomer_network]
    cdef Client* before = client_at(b, c.newcomer_prev)
    cdef Client* behind = client_at(b, c.newcomer_next)
    if before != NULL:
        before.newcomer_next = c.newcomer_next
    else:
        w.first = c.newcomer_next
        w.first_met = behind.newcomer_met if behind != NULL else 0
    if behind != NULL:
        behind.newcomer_prev = c.newcomer_prev
    else:
        w.last = c.newcomer_prev
    w.n -= 1
    w.bytes -= c.newcomer_bytes


cdef void newcomer_leave(Broker* b, Client* c) noexcept nogil:
    if not c.flags & CF_NEWCOMER:
        return
    newcomer_unlink(b, c)
    c.flags &= ~<uint8_t>CF_NEWCOMER
    c.conn.flags &= ~<uint32_t>CONN_SMALL
    b.newcomers_n -= 1
    b.newcomers_bytes -= c.newcomer_bytes
    c.newcomer_bytes = 0


cdef void newcomer_moved(Broker* b, Client* c) noexcept nogil:
    if c.flags & CF_NEWCOMER:
        newcomer_unlink(b, c)
        newcomer_link(b, c)


cdef void newcomers_resume(Broker* b) noexcept nogil:
    cdef Client* c
    cdef int i
    for i in range(NEWCOMER_NETWORKS):
        c = client_at(b, b.newcomer_networks[i].first)
        while c != NULL:
            if c.state == C_NEW and c.conn.flags & CONN_PAUSED and c.pending_packet == NULL:
                conn_resume(&b.reactor, &c.conn)
            c = client_at(b, c.newcomer_next)


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
    b.newcomer_networks[c.newcomer_network].bytes += n - c.newcomer_bytes
    c.newcomer_bytes = <uint32_t>n


cdef inline uint64_t network_holds(const NewcomerNetwork* w, bint by_bytes) noexcept nogil:
    return w.bytes if by_bytes else w.n


cdef Client* newcomer_to_end(Broker* b, bint by_bytes) noexcept nogil:
    cdef const NewcomerNetwork* w
    cdef uint64_t most = 0, much, part = (b.newcomers_bytes if by_bytes else b.newcomers_n) // SMALL_PART
    cdef uint32_t age, oldest = 0, found = 0
    cdef int i
    for i in range(NEWCOMER_NETWORKS):
        if network_holds(&b.newcomer_networks[i], by_bytes) > most:
            most = network_holds(&b.newcomer_networks[i], by_bytes)
    if most <= part:
        much = 0                 # a flood from everywhere: the oldest of all
    else:
        much = most // 2 if most // 2 > part else part
    for i in range(NEWCOMER_NETWORKS):
        w = &b.newcomer_networks[i]
        if w.first == 0 or network_holds(w, by_bytes) < much:
            continue
        age = b.newcomers_met - w.first_met      # the numbers may start again at 0
        if found == 0 or age > oldest:
            oldest = age
            found = w.first
    return client_at(b, found)
