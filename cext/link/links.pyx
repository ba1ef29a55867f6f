# The interface of the room: see links.pxd. This module has what concerns all links of a worker at once, and passes the rest on.
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset
from cext.base.cells cimport cells_fini
from cext.base.hash cimport HashKey, hash_bytes
from cext.base.slab cimport slab_fini, slab_init, slab_take
from cext.base.view cimport View
from cext.link.frame cimport LF_HELLO, LF_MESSAGE0, LF_RELEASED, LF_RETAINED, LINK_WORKERS_MAX, LinkFrame, link_decode, wrong
from cext.link.identities cimport foreign_add, identities_free, own_add, own_drop, own_find
from cext.link.inward cimport in_acknowledge, in_arrived, in_committed, in_frame, in_hello, in_mark, in_restore, in_restore_hole
from cext.link.out cimport (
    out_ask_retained, out_ask_routes, out_close, out_connected, out_flush, out_frame, out_free, out_full, out_keep, out_work,
)
from cext.link.rules cimport (
    RULE_ASK_ROUTES, RULE_DOWN_IS_DEAD, RULE_KEEP_ROUTES, RULE_READY, RULE_READY_OF_DOWN, mosq_rule_off,
)
from cext.link.sending cimport frame_send, number_send, out_broken
from cext.link.state cimport (
    FRAME_WAITS, LINK_OUT, LO_DOWN, LO_OPENS, LO_RETAINED, LinkLimits, LinkOps, LinkOut, LinkPair, LinkPeer, LinkSend, LinkWaiter, Links, OwnIdentity,
    OwnRoute,
)
from cext.link.waiting cimport ring_free, ring_push, ring_release, ring_take, ring_wait, waiter_done
from cext.topic.memory cimport memory_give
from cext.topic.table cimport table_fini, table_init

cdef enum:
    WAITERS_BLOCK = 64          # waiters are allocated in blocks of this size
    SERIAL_BITS = 40            # an identity is the run, and a count of this many bits

cdef extern from *:
    uint64_t ALL_NUMBERS "UINT64_MAX"


cdef int links_init(Links* x, const LinkOps* ops, void* owner, const LinkLimits* limits, const HashKey* key, uint32_t self, uint32_t n) noexcept nogil:  # parameters: the identity of a worker among its equals
    cdef uint32_t i
    memset(x, 0, sizeof(Links))
    if n > LINK_WORKERS_MAX or self >= n:
        return -1
    x.ops, x.owner, x.limits, x.key, x.self, x.n = ops[0], owner, limits[0], key[0], self, n
    x.peers = <LinkPeer*>calloc(n, sizeof(LinkPeer))
    if x.peers == NULL:
        return -1
    for i in range(n):
        x.peers[i].out.first = 1
    x.missing = 2 * (n - 1)
    table_init(&x.routes)
    table_init(&x.opens)
    table_init(&x.identities)
    slab_init(&x.waiters, sizeof(LinkWaiter), WAITERS_BLOCK, WAITERS_BLOCK)
    return 0


cdef void links_fini(Links* x) noexcept nogil:
    cdef LinkPair one
    cdef uint32_t i
    cdef OwnRoute* r
    while x.route_first != NULL:
        r = x.route_first
        x.route_first = r.next
        memory_give(&x.memory, r, sizeof(OwnRoute) + r.link.n)
    while x.open_first != NULL:
        own_drop(x, x.open_first)
    for i in range(x.n):
        out_free(x, i)
        identities_free(x, &x.peers[i].inward)
        ring_free(&x.peers[i].inward.batches)
        free(x.peers[i].inward.holes)
    while ring_take(&x.retained, ALL_NUMBERS, &one):
        x.ops.drop(x.owner, one.item)
    ring_free(&x.retained)
    ring_free(&x.commits)
    table_fini(&x.routes, &x.memory)
    table_fini(&x.opens, &x.memory)
    table_fini(&x.identities, &x.memory)
    slab_fini(&x.waiters)
    cells_fini(&x.memory.cells)
    free(x.room)
    free(x.peers)
    memset(x, 0, sizeof(Links))


cdef void link_start(Links* x, uint64_t log, uint64_t run) noexcept nogil:
    x.log, x.run = log, run
    if x.n == 1 or mosq_rule_off(x.off, RULE_READY):
        x.missing = 0
        x.ops.ready(x.owner)


cdef int link_restore(Links* x, uint32_t slot, uint64_t log, uint64_t run, uint64_t number) noexcept nogil:
    return in_restore(x, slot, log, run, number)


cdef int link_restore_hole(Links* x, uint32_t slot, uint64_t number) noexcept nogil:
    return in_restore_hole(x, slot, number)


# ---------------------------------------------------------------- connections

cdef void link_connected(Links* x, uint32_t slot) noexcept nogil:
    out_connected(x, slot)


cdef int64_t link_accept(Links* x, const uint8_t* p, size_t n, void* connection, uint32_t proved, uint32_t* slot) noexcept nogil:
    cdef LinkFrame f
    cdef int taken = link_decode(p, n, x.limits.frame_max, &f)
    cdef int error
    if taken == 0:
        return 0
    if taken < 0:
        error = taken
    elif f.type != LF_HELLO:
        error = wrong(c'T')
    elif proved < x.n and f.slot != proved:
        error = wrong(c's')                       # it would take the place of another worker's link
    else:
        error = in_hello(x, &f, connection)
    if error != 0:
        x.error = error
        return error
    slot[0] = f.slot
    return taken


cdef inline bint connected(Links* x, uint32_t slot, int way) noexcept nogil:
    return x.peers[slot].out.state != LO_DOWN if way == LINK_OUT else x.peers[slot].inward.open


cdef int64_t link_read(Links* x, uint32_t slot, int way, const uint8_t* p, size_t n) noexcept nogil:
    cdef LinkFrame f
    cdef size_t at = 0
    cdef int taken, error
    while connected(x, slot, way):
        taken = link_decode(p + at, n - at, x.limits.frame_max, &f)
        if taken == 0:
            break
        error = taken
        if taken > 0:
            error = out_frame(x, slot, &f) if way == LINK_OUT else in_frame(x, slot, &f)
            if error == FRAME_WAITS:
                break
            at += <size_t>taken
        if error != 0:
            x.error = error
            link_broken(x, slot, way)
            x.ops.close(x.owner, slot, way)
            return error
    return <int64_t>at


cdef void link_broken(Links* x, uint32_t slot, int way) noexcept nogil:
    if way == LINK_OUT:
        out_broken(x, slot)
        if mosq_rule_off(x.off, RULE_DOWN_IS_DEAD):
            x.peers[slot].out.down = 1
            ring_release(x, &x.peers[slot].out.routes, ALL_NUMBERS)
        return
    x.peers[slot].inward.open = 0
    if mosq_rule_off(x.off, RULE_KEEP_ROUTES):
        x.ops.routes_end(x.owner, slot, x.peers[slot].inward.generation + 1)


cdef void link_drained(Links* x, uint32_t slot, int way, int64_t pending) noexcept nogil:
    if way == LINK_OUT:
        x.peers[slot].out.pending = pending
    else:
        x.peers[slot].inward.pending = pending


cdef void link_down(Links* x, uint32_t slot, uint64_t run) noexcept nogil:
    cdef LinkOut* o = &x.peers[slot].out
    if run != 0 and o.run > run:
        return                              # it has started again already
    if o.state != LO_DOWN:
        out_close(x, slot)
    o.down = 1
    ring_release(x, &o.routes, ALL_NUMBERS)
    if mosq_rule_off(x.off, RULE_READY_OF_DOWN) and not (x.peers[slot].inward.routes_known and x.peers[slot].inward.retained_known):
        x.missing -= 2 - x.peers[slot].inward.routes_known - x.peers[slot].inward.retained_known
        x.peers[slot].inward.routes_known = x.peers[slot].inward.retained_known = 1
        if x.missing == 0:
            x.ops.ready(x.owner)


cdef bint link_turn(Links* x) noexcept nogil:
    cdef uint32_t i
    cdef bint more = 0
    for i in range(x.n):
        if x.peers[i].out.state != LO_DOWN:
            more |= out_work(x, i, x.limits.slice)
        in_acknowledge(x, i)
    return more


# ---------------------------------------------------------------- messages

cdef bint link_full(Links* x, uint32_t slot, uint32_t messages, uint64_t bytes) noexcept nogil:
    if not out_full(x, slot, messages, bytes):
        return 0
    x.stats.refused += 1
    return 1


cdef bint link_eased(const Links* x) noexcept nogil:
    cdef uint32_t i
    for i in range(x.n):
        if x.peers[i].out.bytes > x.limits.bytes_max // 2 or x.peers[i].out.n > x.limits.messages_max // 2:
            return 0
    return 1


cdef int link_send(Links* x, uint32_t slot, void* message, const LinkSend* s, LinkWaiter* w) noexcept nogil:
    cdef OwnIdentity* o
    if out_keep(x, slot, message, s, w) != 0:
        return -1
    if s.identity:
        o = own_find(x, s.identity)
        if o != NULL:
            o.sent |= <uint64_t>1 << slot
    return 0


cdef bint link_send0(Links* x, uint32_t slot, LinkFrame* f, void* message) noexcept nogil:
    cdef LinkOut* o = &x.peers[slot].out
    f.type = LF_MESSAGE0
    f.flags &= <uint8_t>~3u                 # the other worker may have a subscriber with a higher QoS by now, and no number for it
    if o.state < LO_RETAINED or o.pending > x.limits.output_max or frame_send(x, slot, LINK_OUT, f, message) != 0:
        x.stats.dropped0 += 1
        o.dropped0 += 1
        return 0
    x.stats.sent0 += 1
    return 1


cdef int link_choose(const uint32_t* weights, uint32_t n, uint64_t tried, uint64_t random) noexcept nogil:
    cdef uint64_t total = 0
    cdef uint64_t at
    cdef uint32_t i
    for i in range(n):
        if not tried >> i & 1:
            total += weights[i]
    if total == 0:
        return -1
    at = random % total
    for i in range(n):
        if tried >> i & 1:
            continue
        if at < weights[i]:
            return <int>i
        at -= weights[i]
    return -1


cdef void link_arrived(Links* x, uint32_t slot, uint64_t log, uint64_t run, uint64_t number, uint64_t identity,  # parameters: see inward.pxd
                       uint64_t batch) noexcept nogil:
    if number:
        in_arrived(x, slot, log, run, number, identity, batch)


# ---------------------------------------------------------------- commits

cdef void link_seal(Links* x, uint64_t batch) noexcept nogil:
    cdef uint32_t i
    for i in range(x.n):
        in_mark(x, i, batch)


cdef void link_committed(Links* x, uint64_t batch) noexcept nogil:
    cdef LinkPair one
    cdef uint32_t i
    x.committed = batch
    for i in range(x.n):
        in_committed(x, i)
    while ring_take(&x.retained, batch, &one):
        retained_send(x, one.item)
        x.ops.drop(x.owner, one.item)
    ring_release(x, &x.commits, batch)


# ---------------------------------------------------------------- waiters

cdef LinkWaiter* link_waiter_new(Links* x, void* context) noexcept nogil:
    cdef LinkWaiter* w = <LinkWaiter*>slab_take(&x.waiters)
    if w != NULL:
        w.context, w.open = context, 1
    return w


cdef void link_waiter_close(Links* x, LinkWaiter* w) noexcept nogil:
    waiter_done(x, w)


cdef void link_waiter_cancel(Links* x, LinkWaiter* w) noexcept nogil:
    w.context = NULL


cdef int link_wait_commit(Links* x, LinkWaiter* w, uint64_t batch) noexcept nogil:
    return 0 if batch <= x.committed else ring_wait(&x.commits, batch, w)


cdef int link_wait_routes(Links* x, LinkWaiter* w, bint flush) noexcept nogil:
    cdef LinkOut* o
    cdef uint32_t i
    if flush:
        x.changes += 1                      # a number that no worker has confirmed
        if out_flush(x, w) != 0:
            return -1
    for i in range(x.n):
        o = &x.peers[i].out
        if i == x.self or o.down or o.confirmed >= x.changes or mosq_rule_off(x.off, RULE_ASK_ROUTES):
            continue
        if ring_wait(&o.routes, x.changes, w) != 0:
            return -1
        out_ask_routes(x, i)
    return 0


cdef int link_wait_current(Links* x, LinkWaiter* w) noexcept nogil:
    cdef uint32_t i
    x.asks += 1
    for i in range(x.n):
        if i != x.self:
            if ring_wait(&x.peers[i].out.currents, x.asks, w) != 0:
                return -1
            out_ask_retained(x, i)
    return 0


# ---------------------------------------------------------------- identities

cdef uint64_t link_identity_new(Links* x) noexcept nogil:
    x.serial += 1
    if own_add(x, x.run << SERIAL_BITS | x.serial, 0) == NULL:
        return 0
    return x.run << SERIAL_BITS | x.serial


cdef int link_identity_restore(Links* x, uint64_t identity) noexcept nogil:
    return -1 if own_add(x, identity, ALL_NUMBERS) == NULL else 0


cdef void link_identity_end(Links* x, uint64_t identity) noexcept nogil:
    cdef OwnIdentity* o = own_find(x, identity)
    cdef uint64_t sent
    cdef uint32_t i
    if o == NULL:
        return
    sent = o.sent
    own_drop(x, o)
    for i in range(x.n):
        if sent >> i & 1 and x.peers[i].out.state >= LO_OPENS:
            number_send(x, i, LINK_OUT, LF_RELEASED, identity)


cdef int link_identity_known(Links* x, uint32_t slot, uint64_t log, uint64_t identity, uint16_t part) noexcept nogil:
    x.peers[slot].inward.log = log
    return -1 if foreign_add(x, slot, log, identity, part, 0) == NULL else 0


# ---------------------------------------------------------------- retained messages

cdef uint32_t link_owner(const Links* x, View topic) noexcept nogil:
    return <uint32_t>(hash_bytes(&x.key, topic.p, topic.n) % x.n)


cdef void link_retained_to(Links* x, uint32_t slot, void* message) noexcept nogil:
    cdef LinkFrame f
    memset(&f, 0, sizeof(f))
    f.type = LF_RETAINED
    x.ops.view(x.owner, message, &f)
    frame_send(x, slot, LINK_OUT, &f, message)


cdef void retained_send(Links* x, void* message) noexcept nogil:
    # A connection that has not begun with the retained messages gets this one from the walk.
    cdef uint32_t i
    for i in range(x.n):
        if x.peers[i].out.state >= LO_RETAINED:
            link_retained_to(x, i, message)


cdef int link_retained(Links* x, void* message, uint64_t batch) noexcept nogil:
    if batch <= x.committed:
        retained_send(x, message)
        return 0
    if ring_push(&x.retained, batch, message) != 0:
        return -1
    x.ops.keep(x.owner, message)
    return 0
