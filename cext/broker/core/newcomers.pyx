"""List the connections that have not logged in, in the order of their arrival. If descriptors or memory run out, the oldest of them ends
first: a client that logs in needs less time than a connection that only waits. This module knows the list. It does not know the limits.

Invariant: a client is in the list exactly while CF_NEWCOMER is set. The links are positions in the slab + 1, which take half the bytes
of pointers. Cost: O(1), no memory of its own.
"""

from libc.stdint cimport uint8_t, uint32_t

from cext.base.slab cimport slab_at
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport CF_NEWCOMER, Client


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


cdef Client* newcomer_oldest(Broker* b) noexcept nogil:
    return client_at(b, b.newcomers_first)
