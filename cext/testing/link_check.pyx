# Invariants. In each step: memory is bounded. In the end: nothing acknowledged is lost, routes and retained messages are equal on all
# workers, nothing waits and nothing is kept. (Order and "exactly once" are checked where a client gets a message.)
from libc.stdint cimport uint16_t, uint32_t
from cext.link.identities cimport own_find
from cext.link.state cimport ForeignIdentity, LO_LIVE, LinkOut
from cext.testing.link_broker cimport owner_of, topic_matches
from cext.testing.link_world cimport (
    FILTERS, GROUPS_FROM, NONE, PENDING, Route, Sent, SimClient, TOPICS, Worker, World, fail,
)

cdef enum:
    FRAME_ROOM = 300            # more than any frame of the simulator


cdef void check_bounds(World* g) noexcept nogil:
    cdef uint32_t i, j
    cdef LinkOut* o
    for i in range(g.workers):
        if not g.worker[i].alive:
            continue
        for j in range(g.workers):
            o = &g.worker[i].links.peers[j].out
            # messages that are chosen again for a group were accepted on another link
            if o.n > g.limits.messages_max * g.workers or o.bytes > (g.limits.bytes_max + FRAME_ROOM) * g.workers:
                fail(g, b"worker %lld keeps %lld messages for %lld", i, o.n, j)
            if o.pending > <int>(g.limits.output_max + g.limits.reserve + FRAME_ROOM):
                fail(g, b"worker %lld has %lld bytes in the output to %lld", i, o.pending, j)


cdef void check_lost(World* g, uint16_t m) noexcept nogil:
    # An acknowledged message came to each client whose subscription was acknowledged before it was sent.
    cdef Sent* s = &g.sent[m]
    cdef SimClient* k
    cdef uint32_t c, f, members
    for c in range(g.clients):
        k = &g.client[c]
        for f in range(GROUPS_FROM):
            if k.sub[f] == 2 and k.sub_at[f] < s.at and k.sub_qos[f] and topic_matches(f, s.topic) and k.live[m] == 0:
                fail(g, b"message %lld was acknowledged and did not come to client %lld (filter %lld)", m, c, f)
    for f in range(GROUPS_FROM, FILTERS):
        members = 0
        for c in range(g.clients):
            members += 1 if g.client[c].durable and g.client[c].sub[f] == 2 and g.client[c].sub_at[f] < s.at else 0
        if members and not s.group_gone[f - GROUPS_FROM] and topic_matches(f, s.topic) and s.group_copies[f - GROUPS_FROM] == 0:
            fail(g, b"message %lld was acknowledged and did not come to group %lld", m, f, 0)


cdef void check_retained(World* g, uint32_t topic) noexcept nogil:
    cdef uint32_t owner = owner_of(g, topic)
    cdef uint16_t value = g.worker[owner].live.retained[topic]
    cdef uint16_t seen = 0 if value and g.sent[value].clear else value
    cdef uint16_t copy
    cdef uint32_t w, c, f, m
    for w in range(g.workers):
        copy = g.worker[w].copies[owner][topic].message
        if w != owner and copy != seen:
            fail(g, b"worker %lld has retained message %lld, and the owner has %lld", w, copy, seen)
    if g.store_lost[owner]:
        return
    for m in range(1, g.messages + 1):
        if g.sent[m].retain and g.sent[m].topic == topic and g.sent[m].acked and m != value:
            # a will may be published long after it was promised
            if value == 0 or (g.sent[value].acked and g.sent[value].order and g.sent[value].acked_at < g.sent[m].at):
                fail(g, b"retained message %lld was acknowledged, and the topic has %lld", m, value, 0)
    if seen == 0 or not g.sent[seen].acked or g.sent[seen].qos == 0:
        return
    if g.sent[seen].qos == 2 and g.sent[seen].sends > 1:
        return          # published again after a kill, it is new for its owner only: a subscription between both times gets nothing
    for c in range(g.clients):
        for f in range(GROUPS_FROM):
            if g.client[c].sub[f] == 2 and g.client[c].sub_qos[f] and topic_matches(f, topic):
                if g.client[c].live[seen] + g.client[c].retained[seen] == 0:
                    fail(g, b"client %lld has neither message %lld nor its retained copy (filter %lld)", c, seen, f)


cdef void check_routes(World* g, uint32_t w) noexcept nogil:
    cdef uint32_t f, c, other
    cdef int qos
    cdef uint32_t online
    cdef Route* r
    for f in range(FILTERS):
        qos, online = -1, 0
        for c in range(g.clients):
            if g.worker[w].live.sessions[c].qos[f] != NONE:
                online += g.client[c].connected if f >= GROUPS_FROM else 0
                if <int>g.worker[w].live.sessions[c].qos[f] > qos:
                    qos = g.worker[w].live.sessions[c].qos[f]
        for other in range(g.workers):
            r = &g.worker[other].routes[w][f]
            if other == w:
                continue
            if r.there != (qos >= 0) or (qos >= 0 and (r.qos != qos or (r.online == 0) != (online == 0))):
                fail(g, b"worker %lld has a wrong route to worker %lld (filter %lld)", other, w, f)


cdef void check_quiet(World* g, uint32_t w) noexcept nogil:
    # Nothing waits, nothing is kept, and no identity stays that its log has closed.
    cdef Worker* k = &g.worker[w]
    cdef ForeignIdentity* f
    cdef uint32_t i
    for i in range(PENDING):
        if k.waiting[i].kind:
            fail(g, b"worker %lld has not answered packet %lld of client %lld", w, k.waiting[i].kind, k.waiting[i].client)
    if k.links.waiters.used or k.links.commits.n or k.links.retained.n:
        fail(g, b"worker %lld has %lld waiters", w, k.links.waiters.used, 0)
    for i in range(g.workers):
        if i == w:
            continue
        if k.links.peers[i].out.state != LO_LIVE:
            fail(g, b"the link from worker %lld to %lld is not complete", w, i, 0)
        if k.links.peers[i].out.n or k.links.peers[i].inward.holes_n or k.links.peers[i].inward.batches.n:
            fail(g, b"worker %lld keeps %lld messages for %lld", w, k.links.peers[i].out.n, i)
        f = k.links.peers[i].inward.identities
        while f != NULL:
            if own_find(&g.worker[i].links, f.identity) == NULL:
                fail(g, b"worker %lld keeps an identity that worker %lld has closed", w, i, 0)
                break
            f = f.next
    if k.kept:
        fail(g, b"worker %lld keeps %lld references", w, k.kept, 0)


cdef void check_end(World* g) noexcept nogil:
    cdef uint32_t i
    for i in range(1, g.messages + 1):
        if g.sent[i].acked and g.sent[i].qos and g.sent[i].at:
            check_lost(g, <uint16_t>i)
    for i in range(g.workers):
        check_routes(g, i)
        check_quiet(g, i)
    for i in range(TOPICS):
        check_retained(g, i)
    for i in range(g.clients):
        if not g.client[i].connected:
            fail(g, b"client %lld is not connected", i, 0, 0)
