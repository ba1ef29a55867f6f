"""Send a message to the workers that have subscribers of it. This module knows what a match has found and the links. It does not know local
subscribers.

    match -> the workers among its subscribers, each once, with the highest QoS of their routes
          -> a link is full: the publication is refused, before anything is done; or it passes, and its client is not read until there is room
          -> QoS 0, or no route above it: link_send0
          -> otherwise link_send, whose acknowledgement the publisher waits for

A match that is not complete goes to all workers, which match it themselves: this one would know too late whether a link has room.
Cost: short lists are read once more; in long ones a hash finds each worker.
"""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memset

from cext.base.hash cimport hash_bytes
from cext.base.slab cimport SlabItem, slab_get, slab_give, slab_take
from cext.base.view cimport View
from cext.broker.core.bounds cimport LEND_MIN_BYTES
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport Client
from cext.broker.core.link_state cimport BrokerLinks, LINK_WAIT_ENDED, LinkWait, PeerLog, links_of
from cext.broker.core.durable cimport batch_needed, durable_of
from cext.broker.core.publication_state cimport Publication, SCOPE_REMOTE, SCOPE_WILL
from cext.broker.core.settings cimport SHARE_HASH_CLIENT, SHARE_HASH_TOPIC, SHARE_STICKY, SHARE_STREAM
from cext.broker.core.stats cimport DROP_MEMORY
from cext.broker.links.publisher cimport publisher_of_session
from cext.broker.links.records cimport choice_stored, record_choice
from cext.broker.persist.publication cimport dropped, publication_store
from cext.broker.persist.streams cimport stream_message
from cext.codec.frame cimport V5
from cext.link.frame cimport LINK_EXPIRES, LINK_OWNER, LINK_PLAIN, LINK_RETAIN, LINK_WORKERS_MAX, LinkFrame
from cext.link.links cimport (
    link_choose, link_full, link_identity_new, link_send, link_send0, link_waiter_close, link_waiter_new,
)
from cext.link.routes cimport route_announced
from cext.link.state cimport LinkSend
from cext.net.conn cimport conn_resume
from cext.net.conn_state cimport CONN_PAUSED
from cext.session.message cimport message_bytes
from cext.session.session cimport SESSION_ENDED, SESSION_PEER, Session
from cext.topic.index cimport Entry, Group, LONG_FROM, List, SUBSCRIPTION_TEXT_BYTES, group_read, list_entry, subscriber_entry
from cext.topic.match cimport Match

cdef enum:
    GROUP_LOOK_MAX = 256        # members of a group that are looked at for its weight
    PAUSED_FIRST = 16


# ---------------------------------------------------------------- the workers that get it

cdef inline void found_add(BrokerLinks* l, const Entry* e) noexcept nogil:
    cdef Session* s = <Session*>e.subscriber
    cdef uint32_t slot
    if s == NULL or not s.flags & SESSION_PEER:
        return
    slot = (<PeerLog*>s).slot
    if not l.found >> slot & 1:
        l.found |= <uint64_t>1 << slot
        l.found_qos[slot] = 0
    if e.options & 3 > l.found_qos[slot]:
        l.found_qos[slot] = e.options & 3


cdef void found_in_list(Broker* b, BrokerLinks* l, List* list) noexcept nogil:
    cdef Entry* e
    cdef uint32_t i
    if list.n < LONG_FROM:
        for i in range(list.n):
            found_add(l, list_entry(list, i))
        return
    for i in range(l.n):
        e = subscriber_entry(b.index, list, &l.peers[i].session.owner)
        if e != NULL:
            found_add(l, e)


# ---------------------------------------------------------------- sending

cdef void frame_of(Broker* b, const Publication* p, LinkFrame* f) noexcept nogil:
    memset(f, 0, sizeof(LinkFrame))
    f.flags = p.qos | (LINK_RETAIN if p.retain else 0)
    f.text = p.topic
    f.props = p.props
    f.payload = p.payload
    expiry_put(p.expires_ms, f)


cdef void expiry_put(uint64_t expires_ms, LinkFrame* f) noexcept nogil:
    if expires_ms:
        f.flags |= LINK_EXPIRES
        f.expires_ms = expires_ms


cdef bint has_room(Broker* b, const Publication* p, const Match* m) noexcept nogil:
    """Return whether each worker that may get the message has room for it, and for a copy for each group of which it has members."""
    cdef BrokerLinks* l = links_of(b)
    cdef uint64_t bytes = p.topic.n + p.props.n + p.payload.n
    cdef uint32_t slot, i, n
    for slot in range(l.n):
        n = (l.found >> slot & 1 and l.found_qos[slot] != 0) or p.owner == slot + 1
        for i in range(m.n_groups):
            n += subscriber_entry(b.index, &m.groups[i].members, &l.peers[slot].session.owner) != NULL
        if n and link_full(&l.links, slot, n, n * bytes):
            return 0
    return 1


cdef inline uint16_t part_of(BrokerLinks* l, View group) noexcept nogil:
    return <uint16_t>(hash_bytes(&l.links.key, group.p, group.n) | 1)        # the same in each run


cdef void numbered_send(Broker* b, BrokerLinks* l, Publication* p, uint32_t slot, View group, bint waits) noexcept nogil:
    """Send with a number: to the subscribers of a worker, or for one of its groups."""
    cdef LinkSend s
    if publication_store(b, p) == NULL:
        dropped(b, p.source, DROP_MEMORY, p.topic)
        return
    if (waits or p.scope & SCOPE_WILL) and l.waiter == NULL:         # another message of the broker itself has its own, or none
        l.waiter = link_waiter_new(&l.links, NULL)
    memset(&s, 0, sizeof(s))
    s.flags = p.qos | (LINK_RETAIN if p.retain else 0)
    if group.n == 0:
        s.flags |= (LINK_PLAIN if p.qos and l.found >> slot & 1 else 0) | (LINK_OWNER if p.owner == slot + 1 else 0)
    s.group = group
    if p.source != NULL and (s.flags & LINK_OWNER or group.n):
        s.publisher = publisher_of_session(b, p.source)
    if group.n and l.identity:
        s.part = part_of(l, group)
        if p.scope & SCOPE_WILL or waits and p.source != NULL and p.source.store_session_id:
            record_choice(b, l.identity, s.part, slot)
            s.batch = l.batch if batch_needed(durable_of(b), p.durability) else 0
    if p.scope & SCOPE_WILL and not p.scope & SCOPE_REMOTE:
        s.batch = l.batch                   # its record says that it is sent
    s.bytes = message_bytes(p.message)
    s.durability = p.durability
    s.identity = l.identity
    if link_send(&l.links, slot, p.message, &s, l.waiter) != 0:
        dropped(b, p.source, DROP_MEMORY, p.topic)


cdef void send_plain(Broker* b, BrokerLinks* l, Publication* p, bint waits) noexcept nogil:
    cdef LinkFrame f
    cdef View nothing
    cdef uint32_t slot
    nothing.p = NULL
    nothing.n = 0
    if p.payload.n >= LEND_MIN_BYTES:
        publication_store(b, p)              # so that all outputs share one payload
    frame_of(b, p, &f)
    f.flags |= LINK_PLAIN
    for slot in range(l.n):
        if p.owner == slot + 1 and p.qos:
            numbered_send(b, l, p, slot, nothing, waits)
            continue
        if p.owner == slot + 1 and not link_full(&l.links, slot, 1, p.topic.n + p.props.n + p.payload.n):
            numbered_send(b, l, p, slot, nothing, 0)         # for the owner alone: a number for subscribers would leave the order of QoS 0
        if not l.found >> slot & 1:
            continue
        if p.qos and l.found_qos[slot]:
            numbered_send(b, l, p, slot, nothing, waits)
        elif not p.scope & SCOPE_REMOTE:     # again after a restart: QoS 0 is sent once
            link_send0(&l.links, slot, &f, p.message)


# ---------------------------------------------------------------- shared groups

cdef inline uint64_t spread_bits(uint64_t x) noexcept nogil:
    x = (x ^ x >> 32) * <uint64_t>0x9E3779B97F4A7C15
    return x ^ x >> 29


cdef uint32_t own_members(List* members, uint32_t* online) noexcept nogil:
    """Count the members of this worker, and those online. Of a large group, of a part of it."""
    cdef uint32_t i, n = 0
    cdef Session* s
    online[0] = 0
    for i in range(members.n if members.n < GROUP_LOOK_MAX else GROUP_LOOK_MAX):
        s = <Session*>list_entry(members, i).subscriber
        if s != NULL and not s.flags & SESSION_ENDED:
            n += 1
            online[0] += s.client != NULL
    return n


cdef inline uint32_t own_announced(BrokerLinks* l, Group* g) noexcept nogil:
    cdef uint8_t text[SUBSCRIPTION_TEXT_BYTES]
    cdef View filter
    filter.p = text
    filter.n = group_read(g, text)
    return route_announced(&l.links, filter)


cdef int group_worker(Broker* b, Group* g, View topic, View client, uint64_t tried, uint8_t* qos) noexcept nogil:
    """Choose by the members online; if no worker has one, by all. A strategy that hashes has the same key and the same weights at all
    workers, so that each of them chooses the same one."""
    cdef BrokerLinks* l = links_of(b)
    cdef uint32_t weights[LINK_WORKERS_MAX]
    cdef uint32_t members[LINK_WORKERS_MAX]
    cdef uint64_t random
    cdef uint32_t slot
    cdef Entry* e
    cdef bint others = 0, online = 0
    cdef View name
    cdef bint hashes = g.strategy == SHARE_STICKY or g.strategy == SHARE_HASH_TOPIC or (g.strategy == SHARE_HASH_CLIENT and client.n)
    cdef int found
    for slot in range(l.n):
        e = subscriber_entry(b.index, &g.members, &l.peers[slot].session.owner)
        members[slot] = e != NULL
        weights[slot] = e.sub_id if e != NULL else 0
        others |= e != NULL
    members[l.links.self] = own_members(&g.members, &weights[l.links.self])
    if not others:
        return <int>l.links.self
    if hashes:
        members[l.links.self] = members[l.links.self] != 0
        weights[l.links.self] = own_announced(l, g)
    for slot in range(l.n):
        online |= weights[slot] != 0 and not tried >> slot & 1
    if hashes:                   # the rest of a hash alone names the worker of a client, or the owner of a topic
        name = g.name if g.strategy == SHARE_STICKY else topic if g.strategy == SHARE_HASH_TOPIC else client
        random = spread_bits(hash_bytes(&l.links.key, name.p, name.n))
    else:
        b.dice += <uint64_t>0x9E3779B97F4A7C15
        random = spread_bits(b.dice ^ b.key.k0)
    found = link_choose(&weights[0] if online else &members[0], l.n, tried, random)
    if found >= 0 and found != <int>l.links.self:
        qos[0] = subscriber_entry(b.index, &g.members, &l.peers[found].session.owner).options & 3
    return found


cdef inline View publisher_id(const Session* s) noexcept nogil:
    cdef View id
    id.p = <const uint8_t*>s.client_id if s != NULL else NULL
    id.n = s.id_len if s != NULL else 0
    return id


cdef bint group_leaves(Broker* b, Publication* p, Group* g, bint waits) noexcept nogil:
    """Send the message to a worker that was chosen for a group. Returns 0 if it is this one, or none has a member."""
    cdef BrokerLinks* l = links_of(b)
    cdef uint8_t text[SUBSCRIPTION_TEXT_BYTES]
    cdef LinkFrame f
    cdef uint8_t qos = 2
    cdef int to
    frame_of(b, p, &f)
    f.group.p = text
    f.group.n = group_read(g, text)
    if p.scope & SCOPE_REMOTE and p.qos == 2:        # again after a restart: without a recorded choice, a member of this worker has it
        to = choice_stored(b, l.identity, part_of(l, f.group))
    else:                                    # a will with QoS 1 may come twice: the choice is not recorded, and the first one may have been another worker
        to = group_worker(b, g, p.topic, publisher_id(p.source), <uint64_t>1 << l.links.self if p.scope & SCOPE_REMOTE else 0, &qos)
    if to < 0 or to == <int>l.links.self:
        return 0
    if p.source != NULL:
        f.publisher = publisher_of_session(b, p.source)
    if p.qos == 0 or qos == 0:
        if not p.scope & SCOPE_REMOTE:
            link_send0(&l.links, <uint32_t>to, &f, p.message)
        return 1
    numbered_send(b, l, p, <uint32_t>to, f.group, waits)
    return 1


cdef void found_all(BrokerLinks* l) noexcept nogil:
    cdef uint32_t slot
    for slot in range(l.n):
        l.found_qos[slot] = 2
    l.found = (<uint64_t>1 << l.n) - 1 & ~(<uint64_t>1 << l.links.self) if l.n < 64 else ~(<uint64_t>1 << l.links.self)


cdef void identity_take(BrokerLinks* l, Publication* p) noexcept nogil:
    """Give an identity to a QoS 2 message of the broker itself, such as a will. It ends when all workers have acknowledged."""
    cdef LinkWait* k = <LinkWait*>slab_take(&l.waits)
    l.identity = link_identity_new(&l.links)
    l.waiter = link_waiter_new(&l.links, k)
    if k == NULL or l.waiter == NULL:
        if k != NULL:
            slab_give(&l.waits, k)
        return                               # no memory: the identity stays open until the process ends
    k.kind = LINK_WAIT_ENDED
    k.identity = l.identity


cdef bint owner_pause(Broker* b, Client* c) noexcept nogil:
    """Do not read from the client until all links have room. Returns 0 if there is no memory to note it."""
    cdef BrokerLinks* l = links_of(b)
    cdef SlabItem* grown
    if l.paused_n == l.paused_cap:
        grown = <SlabItem*>realloc(l.paused, (2 * l.paused_cap + PAUSED_FIRST) * sizeof(SlabItem))
        if grown == NULL:
            return 0
        l.paused, l.paused_cap = grown, 2 * l.paused_cap + PAUSED_FIRST
    l.paused[l.paused_n] = c.slab
    l.paused_n += 1
    c.jobs += 1
    c.conn.flags |= CONN_PAUSED
    return 1


cdef void paused_resume(Broker* b) noexcept nogil:
    cdef BrokerLinks* l = links_of(b)
    cdef Client* c
    cdef uint32_t i
    for i in range(l.paused_n):
        c = <Client*>slab_get(&b.clients, l.paused[i].index, l.paused[i].generation)
        if c == NULL:
            continue
        c.jobs -= 1
        if c.jobs == 0 and c.conn.flags & CONN_PAUSED:
            conn_resume(&b.reactor, &c.conn)
    free(l.paused)
    l.paused = NULL
    l.paused_n = l.paused_cap = 0


cdef bint links_take(Broker* b, Publication* p, Match* m, bint part, Client* owner) noexcept nogil:
    cdef BrokerLinks* l = links_of(b)
    cdef bint waits = owner != NULL
    cdef uint32_t i
    l.found = 0
    l.waiter = NULL
    if part:
        found_all(l)
    else:
        for i in range(m.n_lists):
            found_in_list(b, l, m.lists[i])
    if l.found == 0 and m.n_groups == 0 and p.owner == 0:
        return 1
    if p.qos and waits and not has_room(b, p, m):
        if p.qos == 1 and owner.version == V5 or not owner_pause(b, owner):
            return 0             # a QoS 2 message was accepted with PUBREC, and 3.x has no code for a refusal: this one passes, and no other follows
    if b.streams != NULL and (m.n_groups or part) and not p.journalled and not stream_message(b, p, NULL if part else m, waits and p.qos != 0):
        return 0                 # before any worker gets it
    if p.qos == 2 and l.identity == 0:
        identity_take(l, p)
    if l.found or p.owner:
        send_plain(b, l, p, waits)
    i = 0
    while i < m.n_groups:
        if m.groups[i].strategy != SHARE_STREAM and group_leaves(b, p, m.groups[i], waits):
            p.elsewhere = 1
            m.n_groups -= 1
            m.groups[i] = m.groups[m.n_groups]
        else:
            i += 1
    if not waits and l.waiter != NULL and not p.scope & SCOPE_WILL:
        link_waiter_close(&l.links, l.waiter)
        l.waiter = NULL
    l.identity = 0
    return 1
