# The side of a link that receives messages. `got` is the highest number that came, `marked` the highest one below which everything is
# committed or needs no record. Between both, `batches` knows which number needs which batch. A message for a shared group without a
# member here leaves a hole: the mark does not pass it until the sender has chosen another log (VOID), because an answer may be lost
# with its connection. A message whose delivery takes several turns leaves one, too, until it is done.
# This module does not know what a message means: LinkOps.message returns the batch with its record.
# Invariant: acked <= marked <= got, and holes are between marked and got or in batches that are not committed.
# Cost: O(1) for each message, without allocation; 16 bytes for each batch that is not committed; 80 bytes for each open identity.
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport realloc
from libc.string cimport memset
from cext.base.slab cimport slab_take
from cext.link.frame cimport (
    LF_ACK, LF_ASK, LF_ASK_RETAINED, LF_CURRENT, LF_MESSAGE, LF_MESSAGE0, LF_NO_MEMBER, LF_OPEN, LF_RELEASED, LF_RETAINED,
    LF_RETAINED_END, LF_ROUTE, LF_SNAPSHOT_END, LF_UNROUTE, LF_VOID, LF_WELCOME, LINK_VERSION, LinkFrame, wrong,
)
from cext.link.identities cimport foreign_add, foreign_find, foreign_keep, foreign_release, foreign_sweep
from cext.link.out cimport out_answer_current, out_flush
from cext.link.rules cimport (
    RULE_ACK_AFTER_COMMIT, RULE_CURRENT_BEHIND_RETAINED, RULE_DROP_IDENTITY, RULE_DROP_NUMBER, RULE_FLUSH,
    RULE_IDENTITY_BATCH, RULE_LATER, RULE_LEAVE_UNREAD,
    RULE_NUMBERS_OF_RUN, RULE_OPEN_SNAPSHOT, RULE_STALE_RUN, RULE_SWEEP_ROUTES, RULE_VOID, mosq_rule_off,
)
from cext.link.sending cimport frame_send, number_send
from cext.link.state cimport (
    FRAME_WAITS, ForeignIdentity, HOLE_BUSY, HOLE_OPEN, LINK_IN, LINK_LATER, LINK_NO_MEMBER, LINK_NO_MEMORY, LinkHole, LinkIn, LinkOut, LinkPair, LinkWaiter, Links,
)
from cext.link.waiting cimport ring_at, ring_push, ring_release, ring_take, waiter_done


cdef int in_hello(Links* x, const LinkFrame* f, void* connection) noexcept nogil:
    cdef uint32_t slot = f.slot
    cdef LinkIn* i
    cdef LinkFrame answer
    if f.workers != x.n or slot >= x.n or slot == x.self:
        return wrong(c's')
    i = &x.peers[slot].inward
    # A connection of a process that has ended. Only runs of the same log compare: a worker whose store is empty counts them from 1 again.
    if f.log == i.log and f.run < i.run and not mosq_rule_off(x.off, RULE_STALE_RUN):
        return wrong(c'r')
    x.ops.bind(x.owner, slot, connection)
    if i.log != 0 and f.log != i.log:
        x.ops.lost(x.owner, slot)
        foreign_sweep(x, i, 1)
    if f.log != i.log or (f.run != i.run and not mosq_rule_off(x.off, RULE_NUMBERS_OF_RUN)):
        i.got, i.marked, i.batches.n, i.holes_n = 0, 0, 0, 0
    i.log, i.run = f.log, f.run
    i.open, i.begun, i.pending = 1, 0, 0
    i.generation += 1
    numbers_done(x, i, f.number)
    i.acked = ackable(i)
    memset(&answer, 0, sizeof(answer))
    answer.type = LF_WELCOME
    answer.version = LINK_VERSION
    answer.slot = <uint16_t>x.self
    answer.log, answer.run, answer.number = x.log, x.run, i.acked
    frame_send(x, slot, LINK_IN, &answer, NULL)
    return 0


# ---------------------------------------------------------------- numbers

cdef inline uint64_t ackable(const LinkIn* i) noexcept nogil:
    return i.holes[0].number - 1 if i.holes_n and i.holes[0].number <= i.marked else i.marked


cdef LinkHole* hole_find(LinkIn* i, uint64_t number) noexcept nogil:
    cdef uint32_t k
    for k in range(i.holes_n):
        if i.holes[k].number == number:
            return &i.holes[k]
    return NULL


cdef int hole_add(LinkIn* i, uint64_t number) noexcept nogil:
    cdef LinkHole* grown
    cdef uint32_t cap
    if i.holes_n == i.holes_cap:
        cap = 2 * i.holes_cap if i.holes_cap else 8
        grown = <LinkHole*>realloc(i.holes, cap * sizeof(LinkHole))
        if grown == NULL:
            return -1
        i.holes, i.holes_cap = grown, cap
    i.holes[i.holes_n].number, i.holes[i.holes_n].batch, i.holes[i.holes_n].identity = number, HOLE_OPEN, 0
    i.holes_n += 1
    return 0


cdef void holes_close(LinkIn* i, uint64_t committed) noexcept nogil:
    cdef uint32_t k, kept = 0
    for k in range(i.holes_n):
        if i.holes[k].batch > committed:
            i.holes[kept] = i.holes[k]
            kept += 1
    i.holes_n = kept


cdef void numbers_done(Links* x, LinkIn* i, uint64_t number) noexcept nogil:
    # The sender has acknowledgements for all numbers up to this one. The store may know less: holes that were closed later, and
    # numbers without a record.
    cdef uint32_t k
    for k in range(i.holes_n):
        if i.holes[k].number <= number:
            i.holes[k].batch = 0
    holes_close(i, x.committed)
    if i.got < number:
        i.got = number
    if i.marked < number and i.batches.n == 0:
        i.marked = number


cdef int number_done(Links* x, LinkIn* i, uint64_t number, uint64_t batch) noexcept nogil:
    # A message is delivered here, and needs this batch (0 = none). Numbers without a record wait for those before them.
    cdef LinkHole* hole = hole_find(i, number)
    cdef LinkPair* last
    if batch <= x.committed or mosq_rule_off(x.off, RULE_ACK_AFTER_COMMIT):
        batch = 0
    if hole != NULL:
        hole.batch = batch
        i.dirty |= batch != 0
        holes_close(i, x.committed)
        return 0
    i.got = number
    if batch:
        i.dirty = 1
    if i.batches.n:
        last = ring_at(&i.batches, i.batches.n - 1)
        if batch <= last.number:
            last.item = <void*>number
            return 0
    elif batch == 0:
        i.marked = number
        return 0
    return ring_push(&i.batches, batch, <void*>number)


cdef void in_committed(Links* x, uint32_t slot) noexcept nogil:
    cdef LinkIn* i = &x.peers[slot].inward
    cdef LinkPair one
    while ring_take(&i.batches, x.committed, &one):
        i.marked = <uint64_t>one.item
    if i.batches.n == 0:
        i.marked = i.got
    holes_close(i, x.committed)


cdef void in_mark(Links* x, uint32_t slot, uint64_t batch) noexcept nogil:
    # The batch is sealed now. A hole that was resolved in it or before needs no place in the record.
    cdef LinkIn* i = &x.peers[slot].inward
    cdef LinkHole open[64]
    cdef uint32_t k, n = 0
    cdef uint64_t number = i.got
    if not i.dirty:
        return
    i.dirty = 0
    for k in range(i.holes_n):
        if i.holes[k].batch > batch:
            if n == 64:                     # the rest is done again after a start; QoS 2 has its identities
                number = i.holes[k].number - 1
                break
            open[n] = i.holes[k]
            n += 1
    x.ops.mark(x.owner, slot, i.log, i.run, number, open, n)


cdef void in_acknowledge(Links* x, uint32_t slot) noexcept nogil:
    cdef LinkIn* i = &x.peers[slot].inward
    cdef uint64_t number = ackable(i)
    if i.open and number > i.acked:
        i.acked = number
        number_send(x, slot, LINK_IN, LF_ACK, number)


cdef int in_restore(Links* x, uint32_t slot, uint64_t log, uint64_t run, uint64_t number) noexcept nogil:
    cdef LinkIn* i = &x.peers[slot].inward
    i.log, i.run, i.got, i.marked = log, run, number, number
    return 0


cdef int in_restore_hole(Links* x, uint32_t slot, uint64_t number) noexcept nogil:
    return hole_add(&x.peers[slot].inward, number)


# ---------------------------------------------------------------- messages

cdef int next_number(Links* x, LinkIn* i, uint64_t number) noexcept nogil:
    # Return 1 if the number is new, 0 if it came before, or an error. Numbers of a connection rise without gaps, but for those that came
    # on an earlier one, and were acknowledged since. Its first number is free: the sender may know that more is done than this worker's
    # store does, because numbers without a record are in no mark.
    cdef LinkHole* hole
    if i.begun and (number < i.expected or (number > i.expected and number > i.got + 1)):
        return wrong(c'n')
    i.begun, i.expected = 1, number + 1
    if number > i.got or mosq_rule_off(x.off, RULE_DROP_NUMBER):
        return 1
    hole = hole_find(i, number)
    if hole != NULL and hole.batch == HOLE_OPEN:
        return 1
    x.stats.duplicates += 1
    return 0


cdef inline int number_taken(Links* x, LinkIn* i, uint64_t number, uint64_t batch) noexcept nogil:
    return 0 if number_done(x, i, number, batch) == 0 else wrong(c'L')


cdef int in_message(Links* x, uint32_t slot, const LinkFrame* f) noexcept nogil:
    cdef LinkIn* i = &x.peers[slot].inward
    cdef ForeignIdentity* known = NULL
    cdef uint64_t batch = 0
    cdef int r = next_number(x, i, f.number)
    cdef int answer
    if r <= 0:
        return r
    x.stats.received += 1
    if f.identity and not mosq_rule_off(x.off, RULE_DROP_IDENTITY):
        known = foreign_find(x, i.log, f.identity, f.part)
    if known != NULL:
        x.stats.identities += 1
        batch = 0 if mosq_rule_off(x.off, RULE_IDENTITY_BATCH) else known.batch
        return number_busy(x, i, f.number, f.identity) if batch == HOLE_BUSY else number_taken(x, i, f.number, batch)
    answer = x.ops.message(x.owner, slot, f, &batch)
    if answer == LINK_NO_MEMORY and not mosq_rule_off(x.off, RULE_LEAVE_UNREAD):
        i.expected = f.number
        x.stats.received -= 1
        return FRAME_WAITS
    if answer == LINK_NO_MEMBER:
        if f.number > i.got and number_done(x, i, f.number, 0) != 0:
            return wrong(c'L')
        if not mosq_rule_off(x.off, RULE_VOID) and hole_find(i, f.number) == NULL and hole_add(i, f.number) != 0:
            return wrong(c'L')
        number_send(x, slot, LINK_IN, LF_NO_MEMBER, f.number)
        return 0
    if answer == LINK_LATER:
        batch = 0 if mosq_rule_off(x.off, RULE_LATER) else HOLE_BUSY
    if f.identity and foreign_add(x, slot, i.log, f.identity, f.part, batch) == NULL:
        return wrong(c'L')
    return number_busy(x, i, f.number, f.identity) if batch == HOLE_BUSY else number_taken(x, i, f.number, batch)


cdef int number_busy(Links* x, LinkIn* i, uint64_t number, uint64_t identity) noexcept nogil:
    # The message of this number is being delivered: the mark does not pass it, and a copy that comes again is dropped.
    cdef LinkHole* hole
    if number > i.got and number_done(x, i, number, 0) != 0:
        return wrong(c'L')
    hole = hole_find(i, number)
    if hole == NULL:
        if hole_add(i, number) != 0:
            return wrong(c'L')
        hole = &i.holes[i.holes_n - 1]
    hole.batch, hole.identity = HOLE_BUSY, identity
    return 0


cdef void in_arrived(Links* x, uint32_t slot, uint64_t log, uint64_t run, uint64_t number, uint64_t identity,  # parameters: a message and its batch
                     uint64_t batch) noexcept nogil:
    cdef LinkIn* i = &x.peers[slot].inward
    cdef ForeignIdentity* known = foreign_find(x, log, identity, 0) if identity else NULL
    cdef LinkHole* hole
    cdef uint32_t k
    if batch <= x.committed:
        batch = 0
    if known != NULL:
        known.batch = batch
    if log != i.log:
        return
    for k in range(i.holes_n):                  # a later run of the sender may have sent it with another number
        hole = &i.holes[k]
        if hole.batch == HOLE_BUSY and (run == i.run and hole.number == number or identity and hole.identity == identity):
            hole.batch = batch
            i.dirty |= batch != 0
    holes_close(i, x.committed)


cdef int in_void(Links* x, uint32_t slot, uint64_t number) noexcept nogil:
    cdef LinkIn* i = &x.peers[slot].inward
    cdef LinkHole* hole
    cdef int r
    if i.begun and number < i.expected:         # beside the order: the answer to NO_MEMBER on this connection
        hole = hole_find(i, number)
        if hole != NULL and hole.batch == HOLE_OPEN:
            number_done(x, i, number, 0)
        return 0
    r = next_number(x, i, number)               # in the order: it takes the place of the message
    return r if r <= 0 else number_done(x, i, number, 0)


cdef void snapshot_known(Links* x, uint8_t* what) noexcept nogil:
    # One more snapshot is complete; with the last one the worker is ready.
    if what[0]:
        return
    what[0] = 1
    x.missing -= 1
    if x.missing == 0:
        x.ops.ready(x.owner)


cdef int in_ask(Links* x, uint32_t slot, uint64_t number) noexcept nogil:
    # The routes before it are applied. What this worker has published without them must have reached its owner too: otherwise a new
    # subscriber could get a message neither from here nor as the retained message of its topic.
    cdef LinkWaiter* w = <LinkWaiter*>slab_take(&x.waiters)
    if w == NULL:
        return wrong(c'L')
    w.open, w.confirm, w.slot, w.generation = 1, number, <uint16_t>slot, x.peers[slot].inward.generation
    if not mosq_rule_off(x.off, RULE_FLUSH) and out_flush(x, w) != 0:
        return wrong(c'L')
    waiter_done(x, w)
    return 0


cdef void in_ask_retained(Links* x, uint32_t slot, uint64_t number) noexcept nogil:
    cdef LinkOut* o = &x.peers[slot].out
    o.current, o.asked_retained = number, 1
    o.current_log, o.current_run = x.peers[slot].inward.log, x.peers[slot].inward.run
    if mosq_rule_off(x.off, RULE_CURRENT_BEHIND_RETAINED):
        number_send(x, slot, LINK_IN, LF_CURRENT, number)
        return
    out_answer_current(x, slot)


cdef int in_frame(Links* x, uint32_t slot, const LinkFrame* f) noexcept nogil:
    cdef LinkIn* i = &x.peers[slot].inward
    cdef LinkOut* o = &x.peers[slot].out
    cdef uint64_t unused = 0
    if f.type == LF_MESSAGE0:
        x.ops.message(x.owner, slot, f, &unused)
    elif f.type == LF_MESSAGE:
        return in_message(x, slot, f)
    elif f.type == LF_VOID:
        return in_void(x, slot, f.number)
    elif f.type == LF_ROUTE:
        x.ops.route(x.owner, slot, f, i.generation)
    elif f.type == LF_UNROUTE:
        x.ops.unroute(x.owner, slot, f.text)
    elif f.type == LF_OPEN:
        foreign_keep(x, i.log, f.identity, i.generation)
    elif f.type == LF_RELEASED:
        foreign_release(x, i.log, f.identity)
    elif f.type == LF_SNAPSHOT_END:
        if not mosq_rule_off(x.off, RULE_SWEEP_ROUTES):
            x.ops.routes_end(x.owner, slot, i.generation)
        if not mosq_rule_off(x.off, RULE_OPEN_SNAPSHOT):
            foreign_sweep(x, i, 0)
        snapshot_known(x, &i.routes_known)
    elif f.type == LF_RETAINED:
        x.ops.retained(x.owner, slot, f, i.generation)
    elif f.type == LF_RETAINED_END:
        x.ops.retained_end(x.owner, slot, i.generation)
        snapshot_known(x, &i.retained_known)
    elif f.type == LF_ASK:
        return in_ask(x, slot, f.number)
    elif f.type == LF_ASK_RETAINED:
        in_ask_retained(x, slot, f.number)
    elif f.type == LF_CURRENT:
        if f.number > x.asks:
            return wrong(c'n')
        ring_release(x, &o.currents, f.number)
    else:
        return wrong(c'T')
    return 0
