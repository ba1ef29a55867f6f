# Rings of numbered items, and waiters that count the events which have not come.
from libc.stdint cimport uint32_t, uint64_t
from cext.link.state cimport LinkPair, LinkRing, LinkWaiter, Links


cdef inline LinkPair* ring_at(LinkRing* r, uint32_t i) noexcept nogil:
    return &r.at[(r.head + i) & (r.cap - 1)]


# Append an item; -1 = no memory.
cdef int ring_push(LinkRing* r, uint64_t number, void* item) noexcept nogil
# Take the first item with a number up to `number`. Return 0 if there is none.
cdef bint ring_take(LinkRing* r, uint64_t number, LinkPair* out) noexcept nogil
cdef void ring_free(LinkRing* r) noexcept nogil
# One event of a waiter has come; NULL is no waiter.
cdef void waiter_done(Links* x, LinkWaiter* w) noexcept nogil
# The events of all waiters with a number up to `number` have come.
cdef void ring_release(Links* x, LinkRing* r, uint64_t number) noexcept nogil
# Let a waiter wait for a number of the ring; -1 = no memory.
cdef int ring_wait(LinkRing* r, uint64_t number, LinkWaiter* w) noexcept nogil
