"""Hold a client's packet that waits for the control plane. This module knows that it waits and the content of the answer. It does not know the
request.

While a packet waits, its client is not read from, so a client can make the broker hold one packet and the rest of the same read only. A CONNECT is
copied, because AUTH packets may follow it before it is done. Any other packet stays in the connection's input and is handled again after the
answer: its handler runs from the start and finds the verdict.
"""

from libc.stdint cimport uint8_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from cext.base.view cimport View
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport Client, Names, Owned, PendingPacket
from cext.net.conn cimport conn_resume
from cext.net.conn_state cimport CONN_CLOSED, CONN_CLOSING, CONN_PAUSED

cdef extern from "<string.h>" nogil:
    void explicit_bzero(void* p, size_t n)


cdef PendingPacket* pending_packet_new(Broker* b, Client* c, int kind) noexcept nogil:
    cdef PendingPacket* p = <PendingPacket*>calloc(1, sizeof(PendingPacket))
    if p == NULL:
        return NULL
    p.kind = <uint8_t>kind
    p.since_ms = b.reactor.now_ms
    c.pending_packet = p
    pending_packet_wait(b, c)
    return p


cdef void pending_packet_wait(Broker* b, Client* c) noexcept nogil:
    c.pending_packet.waits = 1
    c.conn.flags |= CONN_PAUSED


cdef void pending_packet_resume(Broker* b, Client* c) noexcept nogil:
    c.pending_packet.waits = 0
    if c.jobs == 0 and not c.conn.flags & (CONN_CLOSED | CONN_CLOSING):
        conn_resume(&b.reactor, &c.conn)


cdef void pending_packet_free(Broker* b, Client* c) noexcept nogil:
    cdef PendingPacket* p = c.pending_packet
    if p == NULL:
        return
    if p.frame != NULL:
        explicit_bzero(p.frame, p.frame_n)       # it may contain a password
    free(p.frame)
    free(p.verdicts)
    free(p.codes)
    while p.changed != NULL and p.changed_room:
        p.changed_room -= 1
        owned_free(&p.changed[p.changed_room])
    free(p.changed)
    owned_free(&p.props)
    owned_free(&p.id)
    owned_free(&p.text)
    owned_free(&p.bytes)
    free(p)
    c.pending_packet = NULL


cdef int owned_set(Owned* o, View v) noexcept nogil:
    owned_free(o)
    if v.p == NULL:
        return 0
    o.p = <uint8_t*>malloc(v.n + <size_t>1)
    if o.p == NULL:
        return -1
    if v.n:
        memcpy(o.p, v.p, v.n)
    o.n = v.n
    return 0


cdef void owned_free(Owned* o) noexcept nogil:
    free(o.p)
    o.p = NULL
    o.n = 0


cdef Names* names_take(Client* c) noexcept nogil:
    if c.names == NULL:
        c.names = <Names*>calloc(1, sizeof(Names))
    return c.names


cdef void names_free(Client* c) noexcept nogil:
    if c.names != NULL:
        owned_free(&c.names.method)
        owned_free(&c.names.proxied)
        owned_free(&c.names.path)
        free(c.names)
        c.names = NULL
