"""Shared subscriptions: select the member of a group that gets a message, and hand over the deliveries of a member whose session
ends. This module knows the strategies and the order of members. It does not know topics or how a delivery is queued.

    share_deliver:    group -> strategy -> one member -> deliver
    share_hand_over:  ended session's queue -> group by its id -> share_deliver

Offline members are skipped while any member is online. Invariants: QoS 2 that was sent once never goes to another client [v5
4.8.2-5]; a delivery that a client has answered, also with an error, is done [v5 4.8.2-6]; an ended session gets nothing.
Cost: at most SHARE_LOOK_MAX members are looked at per message, each counted as an eighth of an append. Larger groups are
therefore seen in parts: "fewest" means fewest of a part. If no member of the part is online, the member that was last seen online
gets the message. If that member is gone, too, one member of the part queues the message although others further on may be online,
and the next message looks further.
A strategy does not ask the rules. If its member may not read the topic, one more walk looks for a member that may. So a member without the right
costs a walk of at most SHARE_LOOK_MAX checks, and members without rules cost nothing.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp

from cext.base.hash cimport hash_bytes
from cext.base.view cimport View
from cext.broker.core.broker cimport Broker
from cext.broker.core.publication_state cimport Publication
from cext.broker.core.session_refs cimport session_client, session_security
from cext.broker.core.settings cimport (
    SHARE_HASH_CLIENT, SHARE_HASH_TOPIC, SHARE_LEAST_INFLIGHT, SHARE_RANDOM, SHARE_ROUND_ROBIN, SHARE_STICKY, ShareRule,
)
from cext.broker.core.stats cimport DROP_ACL_READ, DROP_SESSION_ENDED
from cext.broker.persist.accounts cimport ACCOUNT_GONE, account_left
from cext.broker.persist.persist cimport pending_delivery_done
from cext.broker.persist.publication cimport drop, drop_unlogged, publication_fini, publication_of
from cext.broker.routing.deliver cimport deliver_readable
from cext.broker.routing.delivery_rules cimport RETAIN_AS_PUBLISHED, qos_for
from cext.broker.routing.observe cimport observe_receiver
from cext.broker.routing.plugin_gate cimport plugin_gate_may_read
from cext.session.message cimport Message
from cext.session.queue cimport (
    DELIVERY_SHARED, D_DONE, D_WAITING, Delivery, Queue, delivery_message, delivery_release, delivery_topic, queue_at,
)
from cext.session.session cimport SESSION_ENDED, Session, session_share
from cext.topic.index cimport Entry, Group, List, group_identify, group_of_id, list_entry, subscriber_entry
from cext.topic.match cimport MATCH_PART, index_match_some, match_leave

cdef enum:
    NO_MEMBER = 0xFFFFFFFFu         # not a place: a list has fewer places
    RANDOM_TRIES = 8                   # random tries before the next member in turn is taken


# ---------------------------------------------------------------- the strategy of a group

cdef uint8_t strategy_of(Broker* b, View group) noexcept nogil:
    cdef uint32_t low = 0
    cdef uint32_t high = b.settings.n_share_rules
    cdef uint32_t middle
    cdef ShareRule* rule
    cdef int order
    while low < high:
        middle = (low + high) // 2
        rule = &b.settings.share_rules[middle]
        if rule.group.n != group.n:
            order = -1 if rule.group.n < group.n else 1
        else:
            order = memcmp(rule.group.p, group.p, group.n)
        if order == 0:
            return rule.strategy
        if order < 0:
            low = middle + 1
        else:
            high = middle
    return b.settings.share_strategy if b.settings.share_strategy else SHARE_ROUND_ROBIN


cdef uint8_t share_strategy(Broker* b, const Group* g) noexcept nogil:
    return g.strategy if g.strategy else strategy_of(b, g.name)


cdef void group_init(Broker* b, Group* g) noexcept nogil:
    b.groups_met += 1
    group_identify(b.index, g, b.groups_met)
    g.strategy = strategy_of(b, g.name)


# ---------------------------------------------------------------- members

cdef inline Session* member_at(const List* l, uint32_t at) noexcept nogil:
    """Return the session at this place of the list; NULL = the place is empty or the session has ended."""
    cdef Session* s = <Session*>list_entry(l, at).subscriber
    return s if s != NULL and not s.flags & SESSION_ENDED else NULL


cdef inline uint32_t look_count(const List* l) noexcept nogil:
    return l.n if l.n < SHARE_LOOK_MAX else SHARE_LOOK_MAX


cdef inline uint32_t next_place(const List* l, uint32_t at) noexcept nogil:
    return at + 1 if at + 1 < l.n else 0


cdef uint32_t member_from(Broker* b, const List* l, uint32_t start) noexcept nogil:
    """Return the first online member from `start` on; if none is online, the first member."""
    cdef uint32_t at = start
    cdef uint32_t chosen = NO_MEMBER
    cdef uint32_t i
    cdef Session* s
    for i in range(look_count(l)):
        s = member_at(l, at)
        if s != NULL and s.client != NULL:
            b.work += i // 8
            return at
        if s != NULL and chosen == NO_MEMBER:
            chosen = at
        at = next_place(l, at)
    b.work += look_count(l) // 8
    return chosen


cdef inline bint is_online(const List* l, uint32_t at) noexcept nogil:
    cdef Session* s = member_at(l, at) if at != NO_MEMBER else NULL
    return s != NULL and s.client != NULL


cdef uint32_t round_robin(Broker* b, Group* g) noexcept nogil:
    cdef uint32_t at = member_from(b, &g.members, g.cursor % g.members.n)
    if at != NO_MEMBER:
        g.cursor = at + 1
    return at


# ---------------------------------------------------------------- the other strategies

cdef inline uint64_t mix_bits(uint64_t x) noexcept nogil:
    """Mix the bits of x: each bit of x changes about half of the result's bits."""
    x ^= x >> 30
    x *= <uint64_t>0xBF58476D1CE4E5B9
    x ^= x >> 27
    x *= <uint64_t>0x94D049BB133111EB
    return x ^ x >> 31


cdef uint32_t random_place(Broker* b, const List* l) noexcept nogil:
    b.dice += <uint64_t>0x9E3779B97F4A7C15
    return <uint32_t>((mix_bits(b.dice ^ b.key.k0) >> 32) * l.n >> 32)


cdef uint32_t random_member(Broker* b, const List* l) noexcept nogil:
    """Return a member, uniformly among the online ones if one of RANDOM_TRIES tries finds one."""
    cdef uint32_t at
    cdef int _
    for _ in range(RANDOM_TRIES):
        at = random_place(b, l)
        if is_online(l, at):
            return at
    return member_from(b, l, random_place(b, l))


cdef uint32_t sticky(Broker* b, Group* g) noexcept nogil:
    """Return the member that was chosen before, wherever it is now in the list. While it is offline, return a substitute."""
    cdef List* l = &g.members
    cdef uint32_t at = g.cursor % l.n
    cdef uint32_t other = NO_MEMBER         # first online member
    cdef uint32_t away = NO_MEMBER
    cdef uint32_t looked = 0
    cdef int _
    cdef Session* s
    for _ in range(look_count(l)):
        looked += 1
        s = member_at(l, at)
        if s != NULL and s == g.chosen and s.client != NULL:
            break
        if s != NULL and s.client != NULL and other == NO_MEMBER:
            other = at
            if g.chosen == NULL:
                break
        if s != NULL and (s == g.chosen or away == NO_MEMBER):
            away = at
        at = next_place(l, at)
    else:
        at = away if other == NO_MEMBER else other
    b.work += looked // 8
    if at != NO_MEMBER:
        g.cursor = at
        g.chosen = list_entry(l, at).subscriber
    return at


cdef inline bint is_less_busy(Session* s, Session* than) noexcept nogil:
    if (s.client != NULL) != (than.client != NULL):
        return s.client != NULL
    if s.queue.pending != than.queue.pending:
        return s.queue.pending < than.queue.pending
    return s.client != NULL and session_client(s).conn.out_bytes < session_client(than).conn.out_bytes


cdef uint32_t least_inflight(Broker* b, Group* g) noexcept nogil:
    cdef List* l = &g.members
    cdef uint32_t at = g.cursor % l.n
    cdef uint32_t chosen = NO_MEMBER
    cdef uint32_t looked = 0
    cdef int _
    cdef Session* least = NULL
    cdef Session* s
    for _ in range(look_count(l)):
        looked += 1
        s = member_at(l, at)
        if s != NULL and (least == NULL or is_less_busy(s, least)):
            least = s
            chosen = at
            if s.client != NULL and s.queue.pending == 0 and session_client(s).conn.out_bytes == 0:
                break            # no member can have less
        at = next_place(l, at)
    b.work += looked // 8
    if chosen != NO_MEMBER:
        g.cursor = chosen + 1
    return chosen


cdef uint32_t by_hash(Broker* b, const List* l, uint64_t key) noexcept nogil:
    """Select a member by rendezvous hashing: the key and each client id make a weight, and the highest weight wins. So a member
    that joins or leaves moves only its own share. In a group larger than SHARE_LOOK_MAX only a window is looked at. The key gives
    the window's place, which shifts by one when the group grows by one, so little moves there, too."""
    cdef uint32_t at = <uint32_t>(((key >> 32) * l.n) >> 32) if l.n > SHARE_LOOK_MAX else 0
    cdef uint32_t chosen = NO_MEMBER
    cdef uint64_t weight
    cdef uint64_t highest = 0
    cdef bint online = 0
    cdef int _
    cdef Session* s
    key = mix_bits(key)
    for _ in range(look_count(l)):
        s = member_at(l, at)
        if s != NULL and (s.client != NULL or not online):
            weight = mix_bits(key ^ s.hash)
            if chosen == NO_MEMBER or weight > highest or (s.client != NULL) != online:
                online = s.client != NULL
                chosen = at
                highest = weight
        at = next_place(l, at)
    b.work += look_count(l) // 8
    return chosen


cdef uint64_t share_key(Broker* b, Publication* p, uint8_t strategy) noexcept nogil:
    if strategy == SHARE_HASH_CLIENT:
        if p.source != NULL:
            return p.source.hash
        if p.message != NULL and p.message.source_hash:
            return p.message.source_hash         # a delivery that is handed over, or whose publisher is gone
    return hash_bytes(&b.key, p.topic.p, p.topic.n)


# ---------------------------------------------------------------- one message

cdef uint32_t choose(Broker* b, Publication* p, Group* g) noexcept nogil:
    cdef uint32_t start, at
    if g.members.n == 0:
        return NO_MEMBER
    if g.strategy == 0:
        group_init(b, g)
    if g.members.n <= SHARE_LOOK_MAX:
        return by_strategy(b, p, g)
    start = g.cursor % g.members.n
    at = by_strategy(b, p, g)
    if is_online(&g.members, at):
        g.seen = at
    elif is_online(&g.members, g.seen % g.members.n):
        at = g.seen % g.members.n
    else:
        g.cursor = start + SHARE_LOOK_MAX
    return at


cdef uint32_t by_strategy(Broker* b, Publication* p, Group* g) noexcept nogil:
    if g.strategy == SHARE_RANDOM:
        return random_member(b, &g.members)
    if g.strategy == SHARE_STICKY:
        return sticky(b, g)
    if g.strategy == SHARE_LEAST_INFLIGHT:
        return least_inflight(b, g)
    if g.strategy == SHARE_HASH_TOPIC or g.strategy == SHARE_HASH_CLIENT:
        return by_hash(b, &g.members, share_key(b, p, g.strategy))
    return round_robin(b, g)


cdef inline bint may_get(Broker* b, Session* s, View topic) noexcept nogil:
    """Return whether the rules let the session read the topic. A plugin's verdict that is not known counts as allowed: the plugin gate asks."""
    return s.security == NULL or not session_security(s).guards or plugin_gate_may_read(b, s, topic) != 0


cdef uint32_t readable_member(Broker* b, Publication* p, Group* g, uint32_t refused) noexcept nogil:
    """Return a member that may read the topic, in place of the refused one; an online one if possible. NO_MEMBER = no member of the part may."""
    cdef List* l = &g.members
    cdef bint hashed = g.strategy == SHARE_HASH_TOPIC or g.strategy == SHARE_HASH_CLIENT
    cdef uint64_t key = mix_bits(share_key(b, p, g.strategy)) if hashed else 0
    cdef uint64_t weight = 0
    cdef uint64_t highest = 0
    cdef uint32_t at = random_place(b, l) if g.strategy == SHARE_RANDOM else refused
    cdef uint32_t chosen = NO_MEMBER
    cdef Session* best = NULL
    cdef Session* s
    cdef int _
    for _ in range(look_count(l)):
        at = next_place(l, at)
        s = member_at(l, at)
        b.work += 1
        if s == NULL or (best != NULL and best.client != NULL and s.client == NULL) or not may_get(b, s, p.topic):
            continue
        if hashed:
            weight = mix_bits(key ^ s.hash)
        if best != NULL and (best.client != NULL or s.client == NULL) and not (
                weight > highest if hashed else g.strategy == SHARE_LEAST_INFLIGHT and is_less_busy(s, best)):
            continue
        best = s
        chosen = at
        highest = weight
        if s.client != NULL and not hashed and g.strategy != SHARE_LEAST_INFLIGHT:
            break
    if chosen != NO_MEMBER and g.strategy == SHARE_ROUND_ROBIN:
        g.cursor = chosen + 1
    return chosen


cdef bint share_deliver(Broker* b, Publication* p, Group* g) noexcept nogil:
    cdef uint32_t at = choose(b, p, g)
    cdef uint32_t other
    cdef Entry* e
    cdef Session* s
    cdef uint8_t qos
    if at == NO_MEMBER:
        return 0
    if not may_get(b, <Session*>list_entry(&g.members, at).subscriber, p.topic):
        other = readable_member(b, p, g, at)
        if other == NO_MEMBER:
            drop(b, <Session*>list_entry(&g.members, at).subscriber, DROP_ACL_READ, p.topic)
            return 1
        at = other
    e = list_entry(&g.members, at)
    s = <Session*>e.subscriber
    if b.observes:
        observe_receiver(b, s, p, 1)
    qos = qos_for(b, p, e.options)       # [v5 4.8.2-3]
    if qos:
        # the entry remembers the place, so that the same group finds it again without a search
        e.share = p.share = session_share(s, g.id, e.sub_id, e.share)
    deliver_readable(b, s, p, qos, p.retain if e.options & RETAIN_AS_PUBLISHED else 0, &e.sub_id, 1 if e.sub_id else 0)
    p.share = 0
    return 1


# ---------------------------------------------------------------- hand-over

cdef inline bint may_hand_over(const Delivery* d) noexcept nogil:
    if d.message == NULL or not d.qos & DELIVERY_SHARED:
        return 0
    return d.qos & 3 == 1 or d.state == D_WAITING


cdef bint delivery_hand_over(Broker* b, Session* s, Delivery* d) noexcept nogil:
    """Hand one delivery over to another member. Returns 0 if it may not be handed over or there is no member."""
    cdef Publication p
    cdef bint found
    cdef Group* g
    if not may_hand_over(d):
        return 0
    g = group_of_id(b.index, s.shares[d.sub_id].group)
    if g == NULL:
        return 0
    publication_of(&p, d.message)
    p.shaped = 0                 # one client: an encoding for reuse would cost one more copy
    found = share_deliver(b, &p, g)
    publication_fini(b, &p)
    return found


cdef bint share_hand_over(Broker* b, Session* s, uint32_t budget) noexcept nogil:
    cdef Queue* q = &s.queue
    cdef Delivery* d
    cdef uint64_t limit = b.work + budget
    while q.floor != q.tail and b.work < limit:
        b.work += 1
        d = queue_at(q, q.floor)
        q.floor += 1
        if d.state != D_DONE:
            q.pending -= 1
            account_left(b, s, d.qos, ACCOUNT_GONE)
        if d.message == NULL:
            continue
        if not delivery_hand_over(b, s, d) and d.state == D_WAITING:
            drop_unlogged(b, s, DROP_SESSION_ENDED, delivery_topic(d))
        if s.store_session_id:
            pending_delivery_done(b, s, delivery_message(d), q.floor - 1)
        delivery_release(&b.messages, &b.reactor.buffers, d)
    return q.floor == q.tail


# ---------------------------------------------------------------- after a start

cdef Entry* group_of_restored(Broker* b, Session* s, uint32_t* at, Group** g) noexcept nogil:
    """Return the session's entry in the first group of the match, from `at` on, that it is a member of; NULL = it has left."""
    cdef Entry* e
    while at[0] < b.match.n_groups:
        g[0] = b.match.groups[at[0]]
        at[0] += 1
        e = subscriber_entry(b.index, &g[0].members, &s.owner)
        if e != NULL:
            return e
    return NULL


cdef void share_restored(Broker* b, Session* s) noexcept nogil:
    """Restore the groups of the session's shared deliveries. A record stores that a delivery came through a group, but not which.
    The first delivery of a message came through the first matching group, the second through the second, and so on in the order
    of the match. A delivery whose session has left its group becomes a plain one, and so does one whose message matches too much for
    one turn."""
    cdef Queue* q = &s.queue
    cdef uint32_t i = q.floor
    cdef uint32_t at = 0
    cdef Message* last = NULL
    cdef Delivery* d
    cdef Group* g = NULL
    cdef Entry* e
    cdef int rc
    while i != q.tail:
        d = queue_at(q, i)
        i += 1
        if not d.qos & DELIVERY_SHARED or delivery_message(d) == NULL:
            continue
        if delivery_message(d) != last:
            last = delivery_message(d)
            at = 0
            rc = index_match_some(b.index, last.topic.p, last.topic.n, &b.match, b.settings.turn_budget)
            if rc:
                b.match.n_groups = 0
            if rc == MATCH_PART:
                match_leave(b.index, &b.match.place)
        e = group_of_restored(b, s, &at, &g)
        if e != NULL:
            if g.strategy == 0:
                group_init(b, g)
            e.share = session_share(s, g.id, d.sub_id, e.share)
        if e != NULL and e.share:
            d.sub_id = e.share - 1
        else:
            d.qos &= <uint8_t>~DELIVERY_SHARED
