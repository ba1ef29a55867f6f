# Rings and waiters. A waiter is a count: each event that it waits for has its place in one ring (or in a kept message), and the last
# one reports it. This module does not know what a publisher or a subscriber is.
# Cost: O(1) for each event; a ring allocates when it doubles.
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset
from cext.base.slab cimport slab_give
from cext.link.frame cimport LF_CONFIRM
from cext.link.sending cimport number_send
from cext.link.state cimport LINK_IN, LinkIn, LinkPair, LinkRing, LinkWaiter, Links


cdef int ring_push(LinkRing* r, uint64_t number, void* item) noexcept nogil:
    cdef uint32_t cap, i
    cdef LinkPair* grown
    if r.n == r.cap:
        cap = 2 * r.cap if r.cap else 8
        grown = <LinkPair*>malloc(cap * sizeof(LinkPair))
        if grown == NULL:
            return -1
        for i in range(r.n):
            grown[i] = ring_at(r, i)[0]
        free(r.at)
        r.at, r.cap, r.head = grown, cap, 0
    ring_at(r, r.n).number = number
    ring_at(r, r.n).item = item
    r.n += 1
    return 0


cdef bint ring_take(LinkRing* r, uint64_t number, LinkPair* out) noexcept nogil:
    if r.n == 0 or r.at[r.head].number > number:
        return 0
    out[0] = r.at[r.head]
    r.head = (r.head + 1) & (r.cap - 1)
    r.n -= 1
    return 1


cdef void ring_free(LinkRing* r) noexcept nogil:
    free(r.at)
    memset(r, 0, sizeof(LinkRing))


cdef void confirm_send(Links* x, const LinkWaiter* w) noexcept nogil:
    cdef LinkIn* i = &x.peers[w.slot].inward
    if i.open and i.generation == w.generation:
        number_send(x, w.slot, LINK_IN, LF_CONFIRM, w.confirm)


cdef void waiter_done(Links* x, LinkWaiter* w) noexcept nogil:
    cdef void* context
    if w == NULL:
        return
    w.open -= 1
    if w.open != 0:
        return
    context = w.context
    if w.confirm:
        confirm_send(x, w)
    slab_give(&x.waiters, w)
    if context != NULL:
        x.ops.released(x.owner, context)


cdef void ring_release(Links* x, LinkRing* r, uint64_t number) noexcept nogil:
    cdef LinkPair one
    while ring_take(r, number, &one):
        waiter_done(x, <LinkWaiter*>one.item)


cdef int ring_wait(LinkRing* r, uint64_t number, LinkWaiter* w) noexcept nogil:
    if ring_push(r, number, w) != 0:
        return -1
    w.open += 1
    return 0
