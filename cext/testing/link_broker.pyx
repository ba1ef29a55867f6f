# A broker as a model: sessions, inbox records, retained messages, shared groups, wills, and a store whose open batch a kill loses. It
# uses the links as cext/link/links.pxd asks for; where it leaves out a duty, a rule is switched off.
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memmove, memset, strlen
from cext.base.view cimport View
from cext.link.frame cimport LINK_OWNER, LINK_PLAIN, LinkFrame
from cext.link.links cimport (
    link_arrived, link_choose, link_committed, link_full, link_identity_end, link_identity_known, link_identity_new, link_identity_restore, link_owner,
    link_restore, link_restore_hole, link_retained, link_retained_to, link_seal, link_send, link_send0, link_start, link_wait_commit,
    link_wait_current, link_wait_routes, link_waiter_cancel, link_waiter_close, link_waiter_new, links_fini, links_init,
)
from cext.link.routes cimport route_count, route_online
from cext.link.rules cimport (
    RULE_CHOICE_RECORDED, RULE_CURRENT_AFTER_ROUTES, RULE_LOCAL_IDENTITY, RULE_MARK_IN_BATCH, RULE_NOT_BEFORE_READY,
    RULE_OPEN_AFTER_ACK, RULE_ORDER_OF_OWNER, RULE_RELEASE_LATE, RULE_RETAINED_AFTER_COMMIT, RULE_WAIT_ALL, RULE_WILL_RECORDED,
)
from cext.link.state cimport LINK_LATER, LINK_NO_MEMBER, LINK_NO_MEMORY, LINK_TAKEN, LinkHole, LinkSend, LinkWaiter
from cext.testing.link_clients cimport (
    client_connack, client_message, client_puback, client_pubrec, client_suback,
)
from cext.testing.link_net cimport net_bind, net_close, net_kill, net_send
from cext.testing.link_world cimport (
    CLIENTS, Copy, Due, FILTERS, GROUPS_FROM, HOLES, IDENTITIES, Inbound, KIND_GROUP, KIND_LIVE, KIND_RETAINED, Known, LONG, LongDelivery, Mark,
    NONE, PAYLOAD_MAX, PENDING, PIDS, QUEUE, Route, Sent, Session, SimMessage, State, TOPICS, WAIT_CONNACK, WAIT_CURRENT, WAIT_PUBACK,
    WAIT_PUBCOMP, WAIT_PUBREC, WAIT_ROUTED, WAIT_ROUTES, WAIT_SUBACK, WILL, WORKERS, Waiting, Worker, World, chance, fail, note, without,
)

cdef extern from *:
    """
    static const char *const sim_topics[] = {"a/x", "a/y", "b/x", "b/y"};
    static const char *const sim_filters[] = {"a/x", "a/+", "+/x", "#", "$share/g/a/+", "$share/h/#"};
    static const unsigned char sim_matches[] = {1, 3, 5, 15, 3, 15};
    static const char sim_payload[128] = {0};
    """
    const char* sim_topics[]
    const char* sim_filters[]
    const uint8_t sim_matches[]
    const char sim_payload[]


cdef inline View text_of_filter(uint32_t filter) noexcept nogil:
    cdef View v
    v.p = <const uint8_t*>sim_filters[filter]
    v.n = <uint32_t>strlen(sim_filters[filter])
    return v


cdef inline View text_of_topic(uint32_t topic) noexcept nogil:
    cdef View v
    v.p = <const uint8_t*>sim_topics[topic]
    v.n = <uint32_t>strlen(sim_topics[topic])
    return v


cdef bint topic_matches(uint32_t filter, uint32_t topic) noexcept nogil:
    return sim_matches[filter] >> topic & 1


cdef uint32_t filter_of(View text) noexcept nogil:
    cdef uint32_t i
    for i in range(FILTERS):
        if strlen(sim_filters[i]) == text.n and memcmp(sim_filters[i], text.p, text.n) == 0:
            return i
    return FILTERS


cdef uint16_t message_of(World* g, const LinkFrame* f) noexcept nogil:
    # The properties of a message are its number, because one without payload has no other place for it.
    cdef uint16_t m = 0
    if f.props.n == 2:
        memcpy(&m, f.props.p, 2)
    if m == 0 or m > g.messages:
        fail(g, b"a frame has message %lld of %lld", m, g.messages, 0)
        return 0
    return m


cdef uint32_t owner_of(World* g, uint32_t topic) noexcept nogil:
    return link_owner(&g.worker[0].links, text_of_topic(topic))


# ---------------------------------------------------------------- sessions

cdef bint queue(Worker* w, uint32_t c, uint16_t m, int kind, int qos) noexcept nogil:
    # Deliver to a session of this worker. Return whether the open batch has it.
    cdef World* g = w.world
    cdef Session* s = &w.live.sessions[c]
    cdef Due* d
    if not s.durable or qos == 0:
        if kind >= KIND_GROUP:
            g.sent[m].group_gone[kind - KIND_GROUP] = 1     # this member may lose it
        if g.client[c].connected and g.client[c].home == w.index:
            client_message(g, c, m, kind, qos, 0)
        return 0
    if s.waiting == QUEUE:
        fail(g, b"the queue of client %lld is full", c, 0, 0)
        return 0
    s.seq += 1
    d = &s.queue[s.waiting]
    d.message, d.qos, d.kind, d.seq, d.batch = m, <uint8_t>qos, <uint8_t>kind, s.seq, <uint32_t>w.batch
    s.waiting += 1
    note(g, b"        message %lld is queued for client %lld, as %lld", m, c, s.seq)
    return 1


cdef bint deliver_next(Worker* w, uint32_t c) noexcept nogil:
    # Send what is queued and committed. Return whether there was something.
    cdef Session* s = &w.live.sessions[c]
    cdef Due d
    if s.waiting == 0 or s.queue[0].batch > w.links.committed or not w.world.client[c].connected:
        return 0
    d = s.queue[0]
    s.waiting -= 1
    memmove(&s.queue[0], &s.queue[1], s.waiting * sizeof(Due))
    client_message(w.world, c, d.message, d.kind, d.qos, d.seq)
    return 1


cdef bint deliver_plain(Worker* w, uint16_t m, int qos) noexcept nogil:
    # Once to each session that matches. Return whether the open batch has some of it.
    cdef Sent* k = &w.world.sent[m]
    cdef bint recorded = 0
    cdef uint32_t c, f
    cdef int best
    for c in range(w.world.clients):
        if not w.live.sessions[c].exists:
            continue
        best = -1
        for f in range(GROUPS_FROM):
            if w.live.sessions[c].qos[f] != NONE and topic_matches(f, k.topic) and <int>w.live.sessions[c].qos[f] > best:
                best = w.live.sessions[c].qos[f]
        if best >= 0:
            recorded |= queue(w, c, m, KIND_LIVE, best if best < qos else qos)
    return recorded


cdef int deliver_group(Worker* w, uint16_t m, int qos, uint32_t filter, bint* recorded) noexcept nogil:
    # Deliver to one member, if possible to one that is online.
    cdef uint32_t c, i
    cdef int chosen = -1
    cdef uint32_t from_ = chance(w.world, CLIENTS)
    for i in range(CLIENTS):
        c = (i + from_) % CLIENTS
        if not w.live.sessions[c].exists or w.live.sessions[c].qos[filter] == NONE:
            continue
        if w.world.client[c].connected:
            chosen = <int>c
            break
        if w.live.sessions[c].durable:
            chosen = <int>c
    if chosen < 0:
        return LINK_NO_MEMBER
    i = w.live.sessions[chosen].qos[filter]
    recorded[0] |= queue(w, <uint32_t>chosen, m, KIND_GROUP + (filter - GROUPS_FROM), <int>i if <int>i < qos else qos)
    return LINK_TAKEN


# ---------------------------------------------------------------- actions of the links

cdef void op_keep(void* owner, void* message) noexcept nogil:
    (<Worker*>owner).kept += 1
    (<SimMessage*>message).refs += 1


cdef void op_drop(void* owner, void* message) noexcept nogil:
    if (<SimMessage*>message).refs == 0:
        fail((<Worker*>owner).world, b"worker %lld drops a message that it does not keep", (<Worker*>owner).index, 0, 0)
    (<Worker*>owner).kept -= 1
    (<SimMessage*>message).refs -= 1


cdef void view_of_message(Worker* w, uint16_t m, LinkFrame* out) noexcept nogil:
    cdef Sent* k = &w.world.sent[m]
    out.text = text_of_topic(k.topic)
    w.number[m] = m
    out.props.p, out.props.n = <const uint8_t*>&w.number[m], 2
    out.payload.p, out.payload.n = <const uint8_t*>sim_payload, 0 if k.clear else k.bytes


cdef void op_view(void* owner, void* message, LinkFrame* out) noexcept nogil:
    cdef Worker* w = <Worker*>owner
    view_of_message(w, <uint16_t>(<SimMessage*>message - w.message), out)


cdef void set_retained(Worker* w, uint16_t m) noexcept nogil:
    w.live.retained[w.world.sent[m].topic] = m
    if link_retained(&w.links, &w.message[m], w.batch) != 0:
        fail(w.world, b"no memory", 0, 0, 0)


cdef void record_identity(Worker* w, uint32_t slot, uint64_t log, uint64_t identity, uint16_t part) noexcept nogil:
    cdef Known* k
    if w.live.known_n == IDENTITIES:
        fail(w.world, b"worker %lld keeps too many identities", w.index, 0, 0)
        return
    note(w.world, b"        worker %lld records identity %llx of %lld", w.index, <int64_t>identity, slot)
    k = &w.live.known[w.live.known_n]
    k.log, k.identity, k.part, k.slot = log, identity, part, <uint8_t>slot
    w.live.known_n += 1


cdef int op_message(void* owner, uint32_t slot, const LinkFrame* f, uint64_t* batch) noexcept nogil:
    cdef Worker* w = <Worker*>owner
    cdef World* g = w.world
    cdef uint16_t m = message_of(g, f)
    cdef bint recorded = 0
    cdef LongDelivery* later = NULL
    if m == 0:
        return LINK_TAKEN
    note(g, b"        worker %lld gets message %lld from %lld", w.index, m, slot)
    if w.starved and f.number:
        note(g, b"        worker %lld has no memory for message %lld", w.index, m, 0)
        return LINK_NO_MEMORY
    if f.group.n and deliver_group(w, m, f.flags & 3, filter_of(f.group), &recorded) == LINK_NO_MEMBER:
        note(g, b"        worker %lld has no member", w.index, 0, 0)
        return LINK_NO_MEMBER
    if f.flags & LINK_PLAIN and is_long(w, slot, m):
        later = &w.long_[w.long_n]
    elif f.flags & LINK_PLAIN:
        recorded |= deliver_plain(w, m, f.flags & 3)
    if f.flags & LINK_OWNER:
        if without(g, RULE_ORDER_OF_OWNER):
            w.live.retained[g.sent[m].topic] = m
        else:
            set_retained(w, m)
        if not without(g, RULE_RETAINED_AFTER_COMMIT):
            recorded = 1
    if later != NULL:
        later.log, later.run = w.links.peers[slot].inward.log, w.links.peers[slot].inward.run
        later.number, later.identity, later.message = f.number, f.identity, m
        later.slot, later.qos, later.recorded = <uint8_t>slot, f.flags & 3, recorded
        w.long_n += 1
        return LINK_LATER
    if recorded:
        batch[0] = w.batch
        if f.identity:
            record_identity(w, slot, w.links.peers[slot].inward.log, f.identity, f.part)
    return LINK_TAKEN


cdef bint is_long(Worker* w, uint32_t slot, uint16_t m) noexcept nogil:
    # Messages of one worker and topic stay in order.
    cdef World* g = w.world
    cdef uint32_t i
    if w.long_n == LONG:
        fail(g, b"worker %lld has too many long deliveries", w.index, 0, 0)
        return 0
    for i in range(w.long_n):
        if w.long_[i].slot == slot and g.sent[w.long_[i].message].topic == g.sent[m].topic:
            return 1
    return g.rate[12] != 0 and chance(g, 100) < g.rate[12]


cdef void deliver_long(Worker* w) noexcept nogil:
    # The oldest one, in one step: what a kill leaves of a half is a known limit. Without memory it waits.
    cdef LongDelivery d
    cdef bint recorded
    if w.long_n == 0 or w.starved:
        return
    d = w.long_[0]
    w.long_n -= 1
    memmove(&w.long_[0], &w.long_[1], w.long_n * sizeof(LongDelivery))
    note(w.world, b"        worker %lld delivers message %lld of %lld", w.index, d.message, d.slot)
    w.world.moved += 1
    recorded = deliver_plain(w, d.message, d.qos) or d.recorded
    if recorded and d.identity:
        record_identity(w, d.slot, d.log, d.identity, 0)
    link_arrived(&w.links, d.slot, d.log, d.run, d.number, d.identity, w.batch if recorded else 0)


cdef void op_route(void* owner, uint32_t slot, const LinkFrame* f, uint16_t generation) noexcept nogil:
    cdef uint32_t i = filter_of(f.text)
    cdef Route* r
    if i == FILTERS:
        fail((<Worker*>owner).world, b"a route with an unknown filter", 0, 0, 0)
        return
    r = &(<Worker*>owner).routes[slot][i]
    r.there, r.qos, r.online, r.generation = 1, f.flags, f.online, generation


cdef void op_unroute(void* owner, uint32_t slot, View filter) noexcept nogil:
    (<Worker*>owner).routes[slot][filter_of(filter)].there = 0


cdef void op_routes_end(void* owner, uint32_t slot, uint16_t generation) noexcept nogil:
    cdef Worker* w = <Worker*>owner
    cdef uint32_t i
    for i in range(FILTERS):
        if w.routes[slot][i].generation != generation:
            w.routes[slot][i].there = 0


cdef void op_retained(void* owner, uint32_t slot, const LinkFrame* f, uint16_t generation) noexcept nogil:
    cdef Worker* w = <Worker*>owner
    cdef uint16_t m = message_of(w.world, f)
    cdef Copy* copy = &w.copies[slot][w.world.sent[m].topic]
    copy.message, copy.generation = m if f.payload.n else 0, generation


cdef void op_retained_end(void* owner, uint32_t slot, uint16_t generation) noexcept nogil:
    cdef Worker* w = <Worker*>owner
    cdef uint32_t t
    for t in range(TOPICS):
        if w.copies[slot][t].generation != generation:
            w.copies[slot][t].message = 0


cdef int op_retained_walk(void* owner, uint32_t slot, uint64_t* cursor, uint32_t bytes) noexcept nogil:
    cdef Worker* w = <Worker*>owner
    cdef uint16_t m
    while cursor[0] < TOPICS:
        cursor[0] += 1
        m = w.live.retained[cursor[0] - 1]
        if m != 0 and not w.world.sent[m].clear:
            link_retained_to(&w.links, slot, &w.message[m])
            return 0
    return 1


cdef void op_mark(void* owner, uint32_t slot, uint64_t log, uint64_t run, uint64_t number, const LinkHole* holes, uint32_t n) noexcept nogil:
    cdef Worker* w = <Worker*>owner
    cdef Mark* m = &w.live.marks[slot]
    cdef uint32_t i
    if without(w.world, RULE_MARK_IN_BATCH):
        return
    if n > HOLES:
        fail(w.world, b"worker %lld has too many holes", w.index, 0, 0)
        return
    m.log, m.run, m.number, m.holes = log, run, number, n
    for i in range(n):
        m.hole[i] = holes[i].number


cdef void op_forget(void* owner, uint32_t slot, uint64_t log, uint64_t identity) noexcept nogil:
    cdef Worker* w = <Worker*>owner
    cdef uint32_t i, kept = 0
    note(w.world, b"        worker %lld forgets identity %llx of %lld", w.index, <int64_t>identity, slot)
    for i in range(w.live.known_n):
        if w.live.known[i].log != log or w.live.known[i].identity != identity:
            w.live.known[kept] = w.live.known[i]
            kept += 1
    w.live.known_n = kept


cdef void op_lost(void* owner, uint32_t slot) noexcept nogil:
    memset((<Worker*>owner).routes[slot], 0, sizeof((<Worker*>owner).routes[slot]))
    memset((<Worker*>owner).copies[slot], 0, sizeof((<Worker*>owner).copies[slot]))


cdef void op_ready(void* owner) noexcept nogil:
    cdef Worker* w = <Worker*>owner
    w.ready = 1
    w.world.moved += 1
    note(w.world, b"worker %lld is ready", w.index, 0, 0)


# ---------------------------------------------------------------- packets that wait for an answer

cdef Waiting* wait_new(Worker* w, int kind, uint32_t c, uint32_t item, uint16_t m) noexcept nogil:
    cdef uint32_t i
    cdef Waiting* p
    for i in range(PENDING):
        p = &w.waiting[i]
        if p.kind == 0:
            p.kind, p.client, p.item, p.message = <uint8_t>kind, <uint8_t>c, <uint8_t>item, m
            p.epoch, p.worker = w.world.client[c].epoch, w
            p.waiter = link_waiter_new(&w.links, p)
            return p
    fail(w.world, b"worker %lld keeps too many packets without an answer", w.index, 0, 0)
    return NULL


cdef void wait_again(Waiting* p, int kind) noexcept nogil:
    p.kind = <uint8_t>kind
    p.waiter = link_waiter_new(&p.worker.links, p)


cdef Waiting* wait_find(Worker* w, int kind, uint32_t c, uint32_t item) noexcept nogil:
    cdef uint32_t i
    for i in range(PENDING):
        if w.waiting[i].kind == kind and w.waiting[i].client == c and w.waiting[i].item == item:
            return &w.waiting[i]
    return NULL


cdef void wait_commit(Waiting* p) noexcept nogil:
    if link_wait_commit(&p.worker.links, p.waiter, p.worker.batch) != 0:
        fail(p.worker.world, b"no memory", 0, 0, 0)
    link_waiter_close(&p.worker.links, p.waiter)


cdef void op_released(void* owner, void* context) noexcept nogil:
    cdef Waiting* p = <Waiting*>context
    cdef Worker* w = p.worker
    cdef World* g = w.world
    cdef bint here = g.client[p.client].epoch == p.epoch
    cdef int kind = p.kind
    g.moved += 1
    p.waiter = NULL
    if kind == WAIT_ROUTED:
        routed(w, p)
        return
    if kind == WAIT_ROUTES and here:
        routes_confirmed(w, p)
        return
    if kind == WAIT_CURRENT and here:
        retained_read(w, p)
        return
    p.kind = 0
    if kind == WAIT_PUBCOMP and not without(g, RULE_RELEASE_LATE):
        link_identity_end(&w.links, p.identity)
    if not here:
        return
    if kind == WAIT_PUBACK or kind == WAIT_PUBCOMP:
        client_puback(g, p.client, p.item, p.message)
    elif kind == WAIT_PUBREC:
        client_pubrec(g, p.client, p.item, p.message)
    elif kind == WAIT_SUBACK:
        client_suback(g, p.client, p.item)
    elif kind == WAIT_CONNACK:
        client_connack(g, p.client)


# ---------------------------------------------------------------- publishing

cdef uint64_t plain_routes(Worker* w, uint32_t topic, int* qos) noexcept nogil:
    # Return the workers with a route, and per worker the highest QoS.
    cdef uint64_t mask = 0
    cdef uint32_t i, f
    for i in range(w.world.workers):
        qos[i] = 0
        for f in range(GROUPS_FROM):
            if i != w.index and w.routes[i][f].there and topic_matches(f, topic):
                mask |= <uint64_t>1 << i
                if w.routes[i][f].qos > qos[i]:
                    qos[i] = w.routes[i][f].qos
    return mask


cdef int choose(Worker* w, uint32_t filter, uint64_t tried) noexcept nogil:
    # Return the worker for a message of a group; -1 = there is none that was not tried.
    cdef uint32_t weights[WORKERS]
    cdef uint32_t i, c
    for i in range(w.world.workers):
        weights[i] = 1 + 4 * w.routes[i][filter].online if w.routes[i][filter].there else 0
    weights[w.index] = 0
    for c in range(CLIENTS):
        if w.live.sessions[c].exists and w.live.sessions[c].qos[filter] != NONE:
            weights[w.index] += 5 if w.world.client[c].connected else w.live.sessions[c].durable
    return link_choose(weights, w.world.workers, tried, chance(w.world, 1 << 30))


cdef void send_group(Worker* w, uint16_t m, uint32_t filter, LinkSend* s, Inbound* inbox, LinkWaiter* waiter) noexcept nogil:
    # Send or deliver to one log. s.tried: those without a member.
    cdef int to = choose(w, filter, s.tried)
    cdef bint recorded = 0
    cdef LinkFrame f
    if inbox != NULL and inbox.choice[filter - GROUPS_FROM] and s.tried == 0 and not without(w.world, RULE_CHOICE_RECORDED):
        to = inbox.choice[filter - GROUPS_FROM] - 1             # it was chosen in an earlier run
    if to < 0:
        return
    note(w.world, b"        worker %lld chooses %lld for group %lld", w.index, to, filter)
    if inbox != NULL:
        inbox.choice[filter - GROUPS_FROM] = <uint8_t>(to + 1)
        s.batch = w.batch
    if to == w.index:
        if not (inbox != NULL and inbox.group_done >> (filter - GROUPS_FROM) & 1):
            deliver_group(w, m, w.world.sent[m].qos, filter, &recorded)
        if recorded and waiter != NULL and link_wait_commit(&w.links, waiter, w.batch) != 0:
            fail(w.world, b"no memory", 0, 0, 0)
        if inbox != NULL:
            inbox.group_done |= <uint8_t>(1 << (filter - GROUPS_FROM))
    elif w.world.sent[m].qos == 0:
        memset(&f, 0, sizeof(f))
        view_of_message(w, m, &f)
        f.group = s.group
        link_send0(&w.links, <uint32_t>to, &f, &w.message[m])
    else:
        link_send(&w.links, <uint32_t>to, &w.message[m], s, waiter)


cdef void op_again(void* owner, uint32_t slot, void* message, LinkSend* s, LinkWaiter* waiter) noexcept nogil:
    cdef Worker* w = <Worker*>owner
    cdef uint16_t m = <uint16_t>(<SimMessage*>message - w.message)
    cdef Inbound* inbox = NULL
    cdef uint32_t c, i
    note(w.world, b"        worker %lld: %lld has no member for message %lld", w.index, slot, m)
    if s.identity:
        for c in range(CLIENTS):
            for i in range(PIDS):
                if w.live.sessions[c].inbox[i].message == m:
                    inbox = &w.live.sessions[c].inbox[i]
    send_group(w, m, filter_of(s.group), s, inbox, waiter)


cdef bint any_full(Worker* w, uint32_t topic, uint64_t mask, bint retain) noexcept nogil:
    cdef uint32_t i, f, n
    if retain:
        mask |= <uint64_t>1 << link_owner(&w.links, text_of_topic(topic))
    for i in range(w.world.workers):
        n = mask >> i & 1
        for f in range(GROUPS_FROM, FILTERS):
            n += w.routes[i][f].there if topic_matches(f, topic) else 0
        if n and i != w.index and link_full(&w.links, i, n, n * PAYLOAD_MAX):
            return 1
    return 0


cdef void send_plain(Worker* w, uint16_t m, uint64_t identity, uint64_t mask, int* qos, LinkWaiter* waiter) noexcept nogil:  # parameters: what the match has found
    # One copy to each log with a route, and to the owner of a retained message.
    cdef World* g = w.world
    cdef Sent* k = &g.sent[m]
    cdef uint32_t owner = link_owner(&w.links, text_of_topic(k.topic))
    cdef LinkSend s
    cdef LinkFrame f
    cdef uint32_t i
    for i in range(g.workers):
        memset(&s, 0, sizeof(s))
        s.flags = k.qos | (LINK_PLAIN if mask >> i & 1 else 0)
        if k.retain and (i == owner or without(g, RULE_ORDER_OF_OWNER)):
            s.flags |= LINK_OWNER
        if i == w.index or s.flags & (LINK_PLAIN | LINK_OWNER) == 0:
            continue
        if s.flags & LINK_PLAIN and (k.qos == 0 or (qos[i] == 0 and not s.flags & LINK_OWNER)):
            memset(&f, 0, sizeof(f))
            view_of_message(w, m, &f)
            f.flags = LINK_PLAIN
            link_send0(&w.links, i, &f, &w.message[m])
            s.flags &= <uint8_t>~LINK_PLAIN
        if s.flags & (LINK_PLAIN | LINK_OWNER) == 0:
            continue
        s.bytes, s.identity = k.bytes, identity
        if k.qos == 0 and link_full(&w.links, i, 1, k.bytes):
            continue
        link_send(&w.links, i, &w.message[m], &s, NULL if k.qos == 0 or without(g, RULE_WAIT_ALL) else waiter)
    if k.retain and (owner == w.index or without(g, RULE_ORDER_OF_OWNER)):
        if without(g, RULE_ORDER_OF_OWNER):
            w.live.retained[k.topic] = m
        else:
            set_retained(w, m)


cdef void send_groups(Worker* w, uint16_t m, uint64_t identity, Inbound* inbox, LinkWaiter* waiter) noexcept nogil:
    cdef LinkSend s
    cdef uint32_t f
    for f in range(GROUPS_FROM, FILTERS):
        if not topic_matches(f, w.world.sent[m].topic):
            continue
        if choose(w, f, 0) < 0 and (inbox == NULL or inbox.choice[f - GROUPS_FROM] == 0):
            continue
        memset(&s, 0, sizeof(s))
        s.flags, s.identity, s.bytes, s.group = w.world.sent[m].qos, identity, w.world.sent[m].bytes, text_of_filter(f)
        s.part = <uint16_t>(1 + f - GROUPS_FROM) if identity else 0
        send_group(w, m, f, &s, inbox, waiter)


cdef int on_publish(Worker* w, uint32_t c, uint32_t pid, uint16_t message) noexcept nogil:
    cdef World* g = w.world
    cdef Sent* k = &g.sent[message]
    cdef Inbound* inbox = &w.live.sessions[c].inbox[pid]
    cdef int qos[WORKERS]
    cdef uint64_t mask
    cdef Waiting* p
    if k.qos == 2:
        if inbox.message not in (0, message):
            fail(g, b"packet id %lld of client %lld belongs to message %lld", pid, c, inbox.message)
        if inbox.message == 0:
            memset(inbox, 0, sizeof(Inbound))
            inbox.message = message
            inbox.identity = link_identity_new(&w.links)
        p = wait_new(w, WAIT_PUBREC, c, pid, message)
        wait_commit(p)
        return ANSWER_NO
    mask = plain_routes(w, k.topic, qos)
    if k.qos == 1 and any_full(w, k.topic, mask, k.retain):
        return ANSWER_REFUSED
    k.sends += 1
    if k.qos == 0:
        deliver_plain(w, message, 0)
        send_plain(w, message, 0, mask, qos, NULL)
        send_groups(w, message, 0, NULL, NULL)
        return ANSWER_NO
    p = wait_new(w, WAIT_PUBACK, c, pid, message)
    deliver_plain(w, message, 1)
    send_plain(w, message, 0, mask, qos, p.waiter)
    send_groups(w, message, 0, NULL, p.waiter)
    wait_commit(p)
    return ANSWER_NO


cdef int on_pubrel(Worker* w, uint32_t c, uint32_t pid) noexcept nogil:
    # Also the way of a will, whose pid is WILL.
    cdef World* g = w.world
    cdef Inbound* inbox = &w.live.sessions[c].inbox[pid]
    cdef uint16_t m = inbox.message
    cdef int qos[WORKERS]
    cdef uint64_t mask
    cdef uint64_t identity = inbox.identity
    cdef Waiting* p
    if m == 0:
        if pid != WILL:
            p = wait_find(w, WAIT_PUBCOMP, c, pid)
            if p == NULL:
                client_puback(g, c, pid, g.client[c].sending[pid].message)
            else:
                p.epoch = g.client[c].epoch
        return ANSWER_NO
    p = wait_find(w, WAIT_ROUTED, c, pid)
    if p != NULL:
        p.epoch = g.client[c].epoch
        return ANSWER_NO
    mask = plain_routes(w, g.sent[m].topic, qos)
    if any_full(w, g.sent[m].topic, mask, g.sent[m].retain):
        return ANSWER_BLOCKED
    g.sent[m].sends += 1
    note(g, b"        worker %lld publishes message %lld", w.index, m, 0)
    p = wait_new(w, WAIT_ROUTED, c, pid, m)
    p.identity = identity
    if not inbox.local_done or without(g, RULE_LOCAL_IDENTITY):
        deliver_plain(w, m, 2)
    inbox.local_done = 1
    send_plain(w, m, identity, mask, qos, p.waiter)
    send_groups(w, m, identity, inbox, p.waiter)
    if without(g, RULE_OPEN_AFTER_ACK) or (pid == WILL and without(g, RULE_WILL_RECORDED)):
        memset(inbox, 0, sizeof(Inbound))
    if without(g, RULE_RELEASE_LATE):
        link_identity_end(&w.links, identity)
    wait_commit(p)
    return ANSWER_NO


cdef void routed(Worker* w, Waiting* p) noexcept nogil:
    # All logs have the message: its record ends.
    cdef Inbound* inbox = &w.live.sessions[p.client].inbox[p.item]
    if inbox.message == p.message:
        memset(inbox, 0, sizeof(Inbound))
    wait_again(p, WAIT_PUBCOMP)
    wait_commit(p)


# ---------------------------------------------------------------- sessions and subscriptions

cdef void session_end(Worker* w, uint32_t c) noexcept nogil:
    cdef Session* s = &w.live.sessions[c]
    cdef Inbound will = s.inbox[WILL]
    cdef uint32_t f, i
    for f in range(FILTERS):
        if s.exists and s.qos[f] != NONE:
            route_count(&w.links, text_of_filter(f), -1, s.qos[f])
    for i in range(WILL):
        if s.inbox[i].message and wait_find(w, WAIT_ROUTED, c, i) == NULL:
            link_identity_end(&w.links, s.inbox[i].identity)
    memset(s, 0, sizeof(Session))
    memset(s.qos, NONE, sizeof(s.qos))
    s.inbox[WILL] = will


cdef void on_connect(Worker* w, uint32_t c, uint16_t will) noexcept nogil:
    cdef Session* s = &w.live.sessions[c]
    cdef bint durable = w.world.client[c].durable
    cdef uint32_t f
    cdef Waiting* p
    if not (s.exists and s.durable and durable):
        session_end(w, c)
    s.exists, s.durable = 1, durable
    if will:
        memset(&s.inbox[WILL], 0, sizeof(Inbound))
        s.inbox[WILL].message = will
        s.inbox[WILL].identity = link_identity_new(&w.links)
    for f in range(GROUPS_FROM, FILTERS):
        if s.qos[f] != NONE:
            route_online(&w.links, text_of_filter(f), 1)
    p = wait_new(w, WAIT_CONNACK, c, 0, 0)
    wait_commit(p)


cdef void on_gone(Worker* w, uint32_t c, bint clean) noexcept nogil:
    cdef Session* s = &w.live.sessions[c]
    cdef uint32_t f, i
    for i in range(PENDING):
        if w.waiting[i].client == c and w.waiting[i].kind in (WAIT_ROUTES, WAIT_CURRENT):
            link_waiter_cancel(&w.links, w.waiting[i].waiter)
            w.waiting[i].kind = 0
    for f in range(GROUPS_FROM, FILTERS):
        if s.qos[f] != NONE:
            route_online(&w.links, text_of_filter(f), -1)
    if s.inbox[WILL].message and not s.inbox[WILL].begun:
        if clean:
            link_identity_end(&w.links, s.inbox[WILL].identity)
            memset(&s.inbox[WILL], 0, sizeof(Inbound))
        else:
            s.inbox[WILL].begun = 1
            w.world.sent[s.inbox[WILL].message].at = w.world.step
    if not s.durable:
        session_end(w, c)


cdef void worker_wills(Worker* w) noexcept nogil:
    cdef uint32_t c
    if not w.ready and not without(w.world, RULE_NOT_BEFORE_READY):
        return
    for c in range(w.world.clients):
        if w.live.sessions[c].inbox[WILL].begun and wait_find(w, WAIT_ROUTED, c, WILL) == NULL:
            on_pubrel(w, c, WILL)


cdef void on_subscribe(Worker* w, uint32_t c, uint32_t filter, uint8_t qos) noexcept nogil:
    cdef Session* s = &w.live.sessions[c]
    cdef int old = -1 if s.qos[filter] == NONE else s.qos[filter]
    cdef Waiting* p = wait_new(w, WAIT_ROUTES, c, filter, 0)
    cdef bint wait
    s.qos[filter] = qos
    wait = route_count(&w.links, text_of_filter(filter), qos, old)
    if old < 0 and filter >= GROUPS_FROM:
        route_online(&w.links, text_of_filter(filter), 1)
    if (wait or filter < GROUPS_FROM) and link_wait_routes(&w.links, p.waiter, filter < GROUPS_FROM) != 0:
        fail(w.world, b"no memory", 0, 0, 0)
    if without(w.world, RULE_CURRENT_AFTER_ROUTES):
        link_wait_current(&w.links, p.waiter)
    link_waiter_close(&w.links, p.waiter)


cdef void routes_confirmed(Worker* w, Waiting* p) noexcept nogil:
    wait_again(p, WAIT_CURRENT)
    if p.item < GROUPS_FROM and not without(w.world, RULE_CURRENT_AFTER_ROUTES):
        if link_wait_current(&w.links, p.waiter) != 0:
            fail(w.world, b"no memory", 0, 0, 0)
    link_waiter_close(&w.links, p.waiter)


cdef void retained_read(Worker* w, Waiting* p) noexcept nogil:
    cdef World* g = w.world
    cdef uint32_t t, owner
    cdef uint16_t m
    cdef uint8_t qos = w.live.sessions[p.client].qos[p.item]
    for t in range(TOPICS):
        owner = link_owner(&w.links, text_of_topic(t))
        m = w.live.retained[t] if owner == w.index or without(g, RULE_ORDER_OF_OWNER) else w.copies[owner][t].message
        if p.item < GROUPS_FROM and qos != NONE and m and not g.sent[m].clear and topic_matches(p.item, t):
            queue(w, p.client, m, KIND_RETAINED, qos if qos < g.sent[m].qos else g.sent[m].qos)
    wait_again(p, WAIT_SUBACK)
    wait_commit(p)


cdef void on_unsubscribe(Worker* w, uint32_t c, uint32_t filter) noexcept nogil:
    cdef Session* s = &w.live.sessions[c]
    if s.qos[filter] == NONE:
        return
    if filter >= GROUPS_FROM:
        route_online(&w.links, text_of_filter(filter), -1)
    route_count(&w.links, text_of_filter(filter), -1, s.qos[filter])
    s.qos[filter] = NONE


# ---------------------------------------------------------------- store and life of a worker

cdef void worker_seal(Worker* w) noexcept nogil:
    if w.sealing:
        return
    link_seal(&w.links, w.batch)
    if w.stored:
        memcpy(&w.sealed, &w.live, sizeof(State))
    w.sealed_batch = w.batch
    w.batch += 1
    w.sealing = 1


cdef void worker_commit(Worker* w) noexcept nogil:
    if not w.sealing:
        return
    w.sealing = 0
    if w.stored:
        memcpy(&w.committed, &w.sealed, sizeof(State))
    link_committed(&w.links, w.sealed_batch)


cdef void worker_kill(World* g, uint32_t w) noexcept nogil:
    cdef Worker* k = &g.worker[w]
    note(g, b"worker %lld is killed", w, 0, 0)
    net_kill(g, w)
    links_fini(&k.links)
    if k.kept:
        fail(g, b"worker %lld keeps %lld references at its end", w, k.kept, 0)
    k.alive = k.ready = k.frozen = 0


cdef void store_read(World* g, Worker* w) noexcept nogil:
    # What a start reads: sessions that are not durable have ended, and their wills are due.
    cdef uint32_t c, f, i
    cdef Session* s
    if w.stored:
        memcpy(&w.live, &w.committed, sizeof(State))
    else:
        memset(&w.live, 0, sizeof(State))
        w.live.run = w.committed.run                # the parent counts the starts
        w.live.log = <uint64_t>chance(g, 1 << 30) << 20 | w.index + 1
        for c in range(CLIENTS):
            memset(w.live.sessions[c].qos, NONE, FILTERS)
    w.live.run += 1
    w.committed.run, w.committed.log = w.live.run, w.live.log
    for i in range(g.workers):
        if w.live.marks[i].log:
            link_restore(&w.links, i, w.live.marks[i].log, w.live.marks[i].run, w.live.marks[i].number)
            for f in range(w.live.marks[i].holes):
                link_restore_hole(&w.links, i, w.live.marks[i].hole[f])
    for i in range(w.live.known_n):
        link_identity_known(&w.links, w.live.known[i].slot, w.live.known[i].log, w.live.known[i].identity, w.live.known[i].part)
    for c in range(CLIENTS):
        s = &w.live.sessions[c]
        for i in range(PIDS):
            if s.inbox[i].message and (s.durable or i == WILL):
                link_identity_restore(&w.links, s.inbox[i].identity)
        s.inbox[WILL].begun = s.inbox[WILL].message != 0
        if s.exists and not s.durable:
            s.exists = 0
            memset(s.qos, NONE, FILTERS)
            memset(s.inbox, 0, WILL * sizeof(Inbound))
            s.waiting = 0
        for f in range(FILTERS):
            if s.qos[f] != NONE:
                route_count(&w.links, text_of_filter(f), s.qos[f], -1)
        for i in range(s.waiting):
            s.queue[i].batch = 0


cdef void worker_start(World* g, uint32_t w) noexcept nogil:
    cdef Worker* k = &g.worker[w]
    k.alive, k.ready, k.frozen, k.starved, k.sealing = 1, 0, 0, 0, 0
    k.batch, k.sealed_batch, k.kept, k.long_n = 1, 0, 0, 0
    memset(k.routes, 0, sizeof(k.routes))
    memset(k.copies, 0, sizeof(k.copies))
    memset(k.waiting, 0, sizeof(k.waiting))
    memset(k.message, 0, sizeof(k.message))
    if links_init(&k.links, &g.ops, k, &g.limits, &g.key, w, g.workers) != 0:
        fail(g, b"no memory", 0, 0, 0)
        return
    k.links.off = g.off
    store_read(g, k)
    note(g, b"worker %lld starts, run %lld", w, k.live.run, 0)
    link_start(&k.links, k.live.log, k.live.run)


cdef void broker_ops(World* g) noexcept nogil:
    g.ops.send, g.ops.close, g.ops.bind = net_send, net_close, net_bind
    g.ops.keep, g.ops.drop, g.ops.view = op_keep, op_drop, op_view
    g.ops.message, g.ops.again = op_message, op_again
    g.ops.route, g.ops.unroute, g.ops.routes_end = op_route, op_unroute, op_routes_end
    g.ops.retained, g.ops.retained_end, g.ops.retained_walk = op_retained, op_retained_end, op_retained_walk
    g.ops.mark, g.ops.forget, g.ops.lost = op_mark, op_forget, op_lost
    g.ops.released, g.ops.ready = op_released, op_ready
