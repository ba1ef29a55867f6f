# The side of a link that sends messages. A message with a number is kept until it is acknowledged; `sent` is the place in the kept
# messages up to which this connection has them. A new connection moves it back, so there is one way of sending for new messages, for
# those that are sent again, and for those that waited for an output with room.
# This module does not know where the answers of the other worker lead (waiters do), nor what is inside a message.
# Invariant: first - 1 <= sent <= first + n - 1, and a kept message holds one reference and one event of its waiter.
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset
from cext.base.view cimport View
from cext.link.frame cimport (
    LF_ACK, LF_ASK, LF_ASK_RETAINED, LF_CONFIRM, LF_CURRENT, LF_HELLO, LF_MESSAGE, LF_NO_MEMBER, LF_OPEN, LF_RETAINED_END,
    LF_ROUTE, LF_SNAPSHOT_END, LF_VOID, LF_WELCOME, LINK_AGAIN, LINK_OWNER, LINK_VERSION, LinkFrame, wrong,
)
from cext.link.rules cimport (
    RULE_ASK_BEHIND_ROUTES, RULE_BOUNDED, RULE_CHOICE_RECORDED, RULE_CHOOSE_AGAIN, RULE_CURRENT_BEHIND_RETAINED, RULE_RESEND, RULE_RESEND_FIRST,
    RULE_RETAINED_SNAPSHOT, RULE_VOID, RULE_WALK_COMMITTED, mosq_rule_off,
)
from cext.link.sending cimport frame_send, number_send, out_broken
from cext.link.state cimport (
    Kept, LINK_OUT, LO_DOWN, LO_HELLO, LO_LIVE, LO_OPENS, LO_RETAINED, LO_ROUTES, LinkOut, LinkSend, LinkWaiter, Links, OwnRoute, route_text,
)
from cext.link.waiting cimport ring_at, ring_free, ring_release, ring_wait, waiter_done

cdef enum:
    KEPT_FIRST = 16             # first size of the ring of kept messages
    KEPT_ROOM = 64              # bytes with which a kept message counts beside its own


cdef void out_connected(Links* x, uint32_t slot) noexcept nogil:
    cdef LinkOut* o = &x.peers[slot].out
    cdef LinkFrame f
    if o.state != LO_DOWN:
        return
    memset(&f, 0, sizeof(f))
    f.type = LF_HELLO
    f.version = LINK_VERSION
    f.slot = <uint16_t>x.self
    f.workers = <uint16_t>x.n
    f.log, f.run, f.number = x.log, x.run, o.first - 1
    o.state = LO_HELLO
    frame_send(x, slot, LINK_OUT, &f, NULL)


cdef void out_close(Links* x, uint32_t slot) noexcept nogil:
    out_broken(x, slot)
    x.ops.close(x.owner, slot, LINK_OUT)


# ---------------------------------------------------------------- kept messages

cdef inline Kept* kept_at(LinkOut* o, uint64_t number) noexcept nogil:
    return &o.kept[(o.head + <uint32_t>(number - o.first)) & (o.cap - 1)]


cdef bint out_full(Links* x, uint32_t slot, uint32_t messages, uint64_t bytes) noexcept nogil:
    cdef LinkOut* o = &x.peers[slot].out
    if mosq_rule_off(x.off, RULE_BOUNDED):
        return 0
    if o.n == 0:
        return 0                            # a message larger than the bound passes alone
    return o.n + messages > x.limits.messages_max or o.bytes + bytes + messages * KEPT_ROOM > x.limits.bytes_max


cdef int kept_grow(LinkOut* o) noexcept nogil:
    cdef uint32_t cap = 2 * o.cap if o.cap else KEPT_FIRST
    cdef Kept* grown
    cdef uint32_t i
    if o.n < o.cap:
        return 0
    grown = <Kept*>malloc(cap * sizeof(Kept))
    if grown == NULL:
        return -1
    for i in range(o.n):
        grown[i] = o.kept[(o.head + i) & (o.cap - 1)]
    free(o.kept)
    o.kept, o.cap, o.head = grown, cap, 0
    return 0


cdef inline int copy_of(View v, uint8_t** out) noexcept nogil:
    if v.n == 0:
        return 0
    out[0] = <uint8_t*>malloc(v.n)
    if out[0] == NULL:
        return -1
    memcpy(out[0], v.p, v.n)
    return 0


cdef int out_keep(Links* x, uint32_t slot, void* message, const LinkSend* s, LinkWaiter* w) noexcept nogil:
    cdef LinkOut* o = &x.peers[slot].out
    cdef uint8_t* group = NULL
    cdef uint8_t* publisher = NULL
    cdef Kept* k
    if kept_grow(o) != 0 or copy_of(s.group, &group) != 0:
        return -1
    if copy_of(s.publisher, &publisher) != 0:
        free(group)
        return -1
    k = kept_at(o, o.first + o.n)
    k.message, k.waiter, k.identity, k.batch, k.tried = message, w, s.identity, s.batch, s.tried
    k.group, k.group_n, k.publisher, k.publisher_n = group, <uint16_t>s.group.n, publisher, s.publisher.n
    k.bytes, k.part, k.flags, k.durability = s.bytes + KEPT_ROOM, s.part, s.flags, s.durability
    if mosq_rule_off(x.off, RULE_CHOICE_RECORDED):
        k.batch = 0
    if s.flags & LINK_OWNER:
        o.owner_last = o.first + o.n
    o.n += 1
    o.bytes += k.bytes
    x.ops.keep(x.owner, message)
    if w != NULL:
        w.open += 1
    if o.state >= LO_RETAINED:
        if mosq_rule_off(x.off, RULE_RESEND_FIRST) and o.pending <= x.limits.output_max:
            kept_send(x, slot, k, o.first + o.n - 1)
            return 0
        out_send_kept(x, slot, s.bytes)
    return 0


cdef void kept_void(Links* x, Kept* k, LinkOut* o) noexcept nogil:
    # Give back what the message holds. Its waiter may be released in this call.
    cdef LinkWaiter* w = k.waiter
    if k.message != NULL:
        x.ops.drop(x.owner, k.message)
    free(k.group)
    free(k.publisher)
    k.message, k.group, k.publisher, k.waiter = NULL, NULL, NULL, NULL
    o.bytes -= k.bytes
    k.bytes = 0
    waiter_done(x, w)


cdef void kept_done(Links* x, LinkOut* o, uint64_t number) noexcept nogil:
    # All messages up to this number are done.
    cdef Kept k
    while o.n and o.first <= number:
        k = o.kept[o.head]
        o.head = (o.head + 1) & (o.cap - 1)
        o.first += 1
        o.n -= 1
        kept_void(x, &k, o)
    if o.sent < o.first - 1:
        o.sent = o.first - 1
    ring_release(x, &o.flushes, o.first - 1)


cdef int kept_send(Links* x, uint32_t slot, Kept* k, uint64_t number) noexcept nogil:
    cdef LinkOut* o = &x.peers[slot].out
    cdef LinkFrame f
    if k.message == NULL:
        return number_send(x, slot, LINK_OUT, LF_VOID, number)
    memset(&f, 0, sizeof(f))
    x.ops.view(x.owner, k.message, &f)
    f.type = LF_MESSAGE
    f.flags |= k.flags | (LINK_AGAIN if number <= o.carried else 0)
    f.number, f.identity, f.part, f.durability = number, k.identity, k.part, k.durability
    f.group.p, f.group.n = k.group, k.group_n
    f.publisher.p, f.publisher.n = k.publisher, k.publisher_n
    return frame_send(x, slot, LINK_OUT, &f, k.message)


cdef bint out_send_kept(Links* x, uint32_t slot, uint32_t bytes) noexcept nogil:
    # Send kept messages in order. Return 1 if the output has room for more of them.
    cdef LinkOut* o = &x.peers[slot].out
    cdef Kept* k
    cdef uint32_t done = 0
    while o.sent < o.first + o.n - 1:
        k = kept_at(o, o.sent + 1)
        if o.pending > x.limits.output_max or k.batch > x.committed:
            return 0
        if done > bytes:
            return 1
        done += k.bytes
        if kept_send(x, slot, k, o.sent + 1) != 0:
            return 0
        o.sent += 1
        x.stats.sent += 1
    return 0


# ---------------------------------------------------------------- snapshots

cdef bint send_routes(Links* x, uint32_t slot) noexcept nogil:
    # Send a slice of the routes. Return 1 at their end.
    cdef LinkOut* o = &x.peers[slot].out
    cdef LinkFrame f
    cdef uint32_t done = 0
    cdef OwnRoute* r
    while o.route_next != NULL and done < x.limits.slice and o.pending <= x.limits.output_max:
        r = o.route_next
        memset(&f, 0, sizeof(f))
        f.type = LF_ROUTE
        f.flags, f.online, f.text = r.qos, r.online_sent, route_text(r)
        done += f.text.n + 16
        if frame_send(x, slot, LINK_OUT, &f, NULL) != 0:
            return 0
        o.route_next = r.next
    return o.route_next == NULL


cdef bint send_opens(Links* x, uint32_t slot) noexcept nogil:
    cdef LinkOut* o = &x.peers[slot].out
    cdef uint32_t done = 0
    while o.open_next != NULL and done < x.limits.slice and o.pending <= x.limits.output_max:
        done += 16
        if number_send(x, slot, LINK_OUT, LF_OPEN, o.open_next.identity) != 0:
            return 0
        o.open_next = o.open_next.next
    return o.open_next == NULL


cdef int out_flush(Links* x, LinkWaiter* w) noexcept nogil:
    cdef LinkOut* o
    cdef uint32_t i
    for i in range(x.n):
        o = &x.peers[i].out
        if o.owner_last >= o.first and ring_wait(&o.flushes, o.owner_last, w) != 0:
            return -1
    if x.retained.n:
        return ring_wait(&x.commits, ring_at(&x.retained, x.retained.n - 1).number, w)
    return 0


cdef void out_ask_routes(Links* x, uint32_t slot) noexcept nogil:
    cdef LinkOut* o = &x.peers[slot].out
    cdef bint behind = o.state >= LO_RETAINED or (mosq_rule_off(x.off, RULE_ASK_BEHIND_ROUTES) and o.state >= LO_ROUTES)
    if o.routes.n and behind and o.asked < x.changes:
        o.asked = x.changes
        number_send(x, slot, LINK_OUT, LF_ASK, x.changes)


cdef void out_ask_retained(Links* x, uint32_t slot) noexcept nogil:
    cdef LinkOut* o = &x.peers[slot].out
    if o.currents.n and o.state >= LO_RETAINED:
        number_send(x, slot, LINK_OUT, LF_ASK_RETAINED, x.asks)


cdef void out_answer_current(Links* x, uint32_t slot) noexcept nogil:
    cdef LinkOut* o = &x.peers[slot].out
    if o.state == LO_LIVE and o.asked_retained and o.current_run == o.run and o.current_log == o.log:
        o.asked_retained = 0
        number_send(x, slot, LINK_OUT, LF_CURRENT, o.current)


cdef bint out_snapshot(Links* x, uint32_t slot) noexcept nogil:
    # Send one slice of a snapshot. Return 1 if another one could follow.
    cdef LinkOut* o = &x.peers[slot].out
    if o.pending > x.limits.output_max:
        return 0
    if o.state == LO_ROUTES:
        if send_routes(x, slot):
            o.state = LO_OPENS
            o.open_next = x.open_first
    elif o.state == LO_OPENS:
        if send_opens(x, slot) and number_send(x, slot, LINK_OUT, LF_SNAPSHOT_END, 0) == 0:
            o.state = LO_RETAINED
            o.cursor, o.walked = 0, 0
            out_ask_routes(x, slot)
            out_ask_retained(x, slot)
    elif not o.walked and (mosq_rule_off(x.off, RULE_RETAINED_SNAPSHOT) or x.ops.retained_walk(x.owner, slot, &o.cursor, x.limits.slice)):
        o.walked = 1
        o.walked_batch = ring_at(&x.retained, x.retained.n - 1).number if x.retained.n else 0
    if o.state == LO_RETAINED and o.walked:
        # The walk has shown changes that are not committed. A kill takes them back, so no subscriber may get them as current before.
        if o.walked_batch > x.committed and not mosq_rule_off(x.off, RULE_WALK_COMMITTED):
            return 0
        if number_send(x, slot, LINK_OUT, LF_RETAINED_END, 0) == 0:
            o.state = LO_LIVE
            o.asked_retained = o.current != 0       # a CURRENT on an earlier connection may be lost
            out_answer_current(x, slot)
    return LO_ROUTES <= o.state < LO_LIVE and o.pending <= x.limits.output_max


cdef bint out_work(Links* x, uint32_t slot, uint32_t bytes) noexcept nogil:
    cdef LinkOut* o = &x.peers[slot].out
    cdef bint more = 0
    if o.state >= LO_RETAINED:
        more = out_send_kept(x, slot, bytes)
    if LO_ROUTES <= o.state < LO_LIVE:
        more |= out_snapshot(x, slot)
    return more


# ---------------------------------------------------------------- answers

cdef void choose_again(Links* x, uint32_t slot, uint64_t number) noexcept nogil:
    # The log has no member of the message's group: the caller sends it to another one, before this place is void.
    cdef LinkOut* o = &x.peers[slot].out
    cdef Kept* k = kept_at(o, number)
    cdef LinkSend s
    s.flags, s.durability, s.part, s.bytes, s.identity, s.batch = k.flags, k.durability, k.part, k.bytes - KEPT_ROOM, k.identity, 0
    s.tried = k.tried | <uint64_t>1 << slot
    s.group.p, s.group.n = k.group, k.group_n
    s.publisher.p, s.publisher.n = k.publisher, k.publisher_n
    x.stats.no_member += 1
    if not mosq_rule_off(x.off, RULE_CHOOSE_AGAIN):
        x.ops.again(x.owner, slot, k.message, &s, k.waiter)
    kept_void(x, kept_at(o, number), o)


cdef void log_lost(Links* x, uint32_t slot) noexcept nogil:
    # No session of the old log exists any more. A message for a group may still reach a member elsewhere.
    cdef LinkOut* o = &x.peers[slot].out
    cdef uint64_t last = o.first + o.n - 1
    cdef uint64_t number = o.first
    while number <= last:
        if kept_at(o, number).message != NULL and kept_at(o, number).group != NULL:
            choose_again(x, slot, number)
        number += 1
    kept_done(x, o, last)


cdef int out_welcome(Links* x, uint32_t slot, const LinkFrame* f) noexcept nogil:
    cdef LinkOut* o = &x.peers[slot].out
    if f.slot != slot:
        return wrong(c's')
    if f.log == o.log and f.run < o.run:    # as in in_hello: runs of two logs do not compare
        return wrong(c'r')
    if f.number > o.first + o.n - 1:
        return wrong(c'n')
    if o.log != 0 and f.log != o.log:
        log_lost(x, slot)
    o.log, o.run, o.down = f.log, f.run, 0
    if o.carried < o.sent:
        o.carried = o.sent
    kept_done(x, o, f.number)
    if not mosq_rule_off(x.off, RULE_RESEND):
        x.stats.resent += o.sent - (o.first - 1)
        o.sent = o.first - 1
    if mosq_rule_off(x.off, RULE_RESEND_FIRST):
        o.sent = o.first - 1
    o.route_next = x.route_first
    o.state = LO_ROUTES
    return 0


cdef int out_no_member(Links* x, uint32_t slot, uint64_t number) noexcept nogil:
    cdef LinkOut* o = &x.peers[slot].out
    if number < o.first or number > o.sent or kept_at(o, number).message == NULL:
        return wrong(c'n') if number > o.sent else 0      # an answer that came twice, because the message was sent twice
    if kept_at(o, number).group == NULL:
        return wrong(c'n')
    choose_again(x, slot, number)
    if o.state >= LO_RETAINED and not mosq_rule_off(x.off, RULE_VOID):
        number_send(x, slot, LINK_OUT, LF_VOID, number)
    return 0


cdef int out_frame(Links* x, uint32_t slot, const LinkFrame* f) noexcept nogil:
    cdef LinkOut* o = &x.peers[slot].out
    if f.type == LF_WELCOME:
        return out_welcome(x, slot, f) if o.state == LO_HELLO else wrong(c'T')
    if o.state <= LO_HELLO:
        return wrong(c'T')
    if f.type == LF_ACK:
        if f.number > o.first + o.n - 1:    # it may be one that only an earlier connection has carried
            return wrong(c'n')
        kept_done(x, o, f.number)
        return 0
    if f.type == LF_CONFIRM:
        if f.number > x.changes:
            return wrong(c'n')
        if f.number > o.confirmed:
            o.confirmed = f.number
        ring_release(x, &o.routes, f.number)
        return 0
    if f.type == LF_CURRENT and mosq_rule_off(x.off, RULE_CURRENT_BEHIND_RETAINED):
        ring_release(x, &o.currents, f.number)
        return 0
    return out_no_member(x, slot, f.number) if f.type == LF_NO_MEMBER else wrong(c'T')


cdef void out_free(Links* x, uint32_t slot) noexcept nogil:
    cdef LinkOut* o = &x.peers[slot].out
    cdef uint32_t i
    cdef Kept* k
    for i in range(o.n):
        k = &o.kept[(o.head + i) & (o.cap - 1)]
        if k.message != NULL:
            x.ops.drop(x.owner, k.message)
        free(k.group)
        free(k.publisher)
    free(o.kept)
    ring_free(&o.routes)
    ring_free(&o.currents)
    ring_free(&o.flushes)
