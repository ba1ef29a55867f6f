# Tables of identities. One table has the open identities of this log, in the order of their creation, because each new connection
# begins with a list of them. The other one has those that other logs have sent, in a list for each log.
# Invariant: an identity of another log is in the table from its delivery until its log releases it, or does not name it at the start
# of a connection.
# Cost: O(1) expected; 64 bytes for an open identity, 80 for one of another log.
from libc.stdint cimport uint16_t, uint32_t, uint64_t
from cext.link.state cimport ForeignIdentity, LinkIn, Links, OwnIdentity
from cext.topic.memory cimport memory_give, take_zeroed
from cext.topic.table cimport Link, spread, table_add, table_chain, table_drop


cdef OwnIdentity* own_find(Links* x, uint64_t identity) noexcept nogil:
    cdef Link* link = table_chain(&x.opens, spread(identity))
    while link != NULL and (<OwnIdentity*>link).identity != identity:
        link = link.next
    return <OwnIdentity*>link


cdef OwnIdentity* own_add(Links* x, uint64_t identity, uint64_t sent) noexcept nogil:
    cdef OwnIdentity* o = <OwnIdentity*>take_zeroed(&x.memory, sizeof(OwnIdentity))
    if o == NULL:
        return NULL
    o.identity, o.sent = identity, sent
    o.link.hash = spread(identity)
    o.next = x.open_first
    if o.next != NULL:
        o.next.prev = o
    x.open_first = o
    table_add(&x.opens, &x.memory, &o.link)
    return o


cdef void own_drop(Links* x, OwnIdentity* o) noexcept nogil:
    cdef uint32_t i
    for i in range(x.n):
        if x.peers[i].out.open_next == o:       # the snapshot goes on behind it
            x.peers[i].out.open_next = o.next
    if o.prev != NULL:
        o.prev.next = o.next
    else:
        x.open_first = o.next
    if o.next != NULL:
        o.next.prev = o.prev
    table_drop(&x.opens, &x.memory, &o.link)
    memory_give(&x.memory, o, sizeof(OwnIdentity))


cdef inline uint32_t foreign_hash(uint64_t log, uint64_t identity) noexcept nogil:
    return spread(log ^ identity * 0x9E3779B97F4A7C15u)


cdef ForeignIdentity* foreign_next(Link* link, uint64_t log, uint64_t identity) noexcept nogil:
    # Return the first copy in the rest of a chain.
    while link != NULL:
        if (<ForeignIdentity*>link).identity == identity and (<ForeignIdentity*>link).log == log:
            return <ForeignIdentity*>link
        link = link.next
    return NULL


cdef ForeignIdentity* foreign_find(Links* x, uint64_t log, uint64_t identity, uint16_t part) noexcept nogil:
    cdef ForeignIdentity* f = foreign_next(table_chain(&x.identities, foreign_hash(log, identity)), log, identity)
    while f != NULL and f.part != part:
        f = foreign_next(f.link.next, log, identity)
    return f


cdef ForeignIdentity* foreign_add(Links* x, uint32_t slot, uint64_t log, uint64_t identity, uint16_t part, uint64_t batch) noexcept nogil:
    cdef LinkIn* i = &x.peers[slot].inward
    cdef ForeignIdentity* f = <ForeignIdentity*>take_zeroed(&x.memory, sizeof(ForeignIdentity))
    if f == NULL:
        return NULL
    f.log, f.identity, f.part, f.batch, f.slot, f.generation = log, identity, part, batch, slot, i.generation
    f.link.hash = foreign_hash(log, identity)
    f.next = i.identities
    if f.next != NULL:
        f.next.prev = f
    i.identities = f
    table_add(&x.identities, &x.memory, &f.link)
    return f


cdef void foreign_keep(Links* x, uint64_t log, uint64_t identity, uint16_t generation) noexcept nogil:
    cdef ForeignIdentity* f = foreign_next(table_chain(&x.identities, foreign_hash(log, identity)), log, identity)
    while f != NULL:
        f.generation = generation
        f = foreign_next(f.link.next, log, identity)


cdef void foreign_drop(Links* x, ForeignIdentity* f) noexcept nogil:
    if f.prev != NULL:
        f.prev.next = f.next
    else:
        x.peers[f.slot].inward.identities = f.next
    if f.next != NULL:
        f.next.prev = f.prev
    table_drop(&x.identities, &x.memory, &f.link)
    memory_give(&x.memory, f, sizeof(ForeignIdentity))


cdef void foreign_release(Links* x, uint64_t log, uint64_t identity) noexcept nogil:
    cdef uint32_t hash = foreign_hash(log, identity)
    cdef ForeignIdentity* f = foreign_next(table_chain(&x.identities, hash), log, identity)
    if f != NULL:
        x.ops.forget(x.owner, f.slot, log, identity)
    while f != NULL:
        foreign_drop(x, f)
        f = foreign_next(table_chain(&x.identities, hash), log, identity)


cdef void foreign_sweep(Links* x, LinkIn* i, bint all) noexcept nogil:
    cdef ForeignIdentity* f = i.identities
    cdef ForeignIdentity* following
    while f != NULL:
        following = f.next
        if all or f.generation != i.generation:
            x.ops.forget(x.owner, f.slot, f.log, f.identity)
            foreign_drop(x, f)
        f = following


cdef void identities_free(Links* x, LinkIn* i) noexcept nogil:
    while i.identities != NULL:
        foreign_drop(x, i.identities)
