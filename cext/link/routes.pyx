# The filters that this worker announces. A filter has one entry, however many subscribers it has; a shared group is a filter with
# `$share/GROUP/`. A change is sent at once to each connection that has begun its snapshot, so a snapshot may be sent in slices while
# routes come and go: an entry that is sent twice is the same entry.
# This module does not match topics: a route of another log is an entry of the broker's own index (LinkOps.route).
# Cost: O(1) expected for a subscription; 88 bytes and the text for a filter with subscribers here, none for a route of another log.
from libc.stdint cimport int32_t, uint8_t, uint32_t
from libc.string cimport memcmp, memcpy, memset
from cext.base.hash cimport hash_bytes
from cext.base.view cimport View
from cext.link.frame cimport LF_ROUTE, LF_UNROUTE, LinkFrame
from cext.link.rules cimport RULE_ASK_SECOND, mosq_rule_off
from cext.link.sending cimport frame_send
from cext.link.state cimport LINK_OUT, LO_ROUTES, Links, OwnRoute, route_text
from cext.topic.memory cimport memory_give, take_zeroed
from cext.topic.table cimport Link, table_add, table_chain, table_drop


cdef OwnRoute* route_find(Links* x, View filter, uint32_t hash) noexcept nogil:
    cdef Link* link = table_chain(&x.routes, hash)
    while link != NULL:
        if link.hash == hash and link.n == filter.n and memcmp(<OwnRoute*>link + 1, filter.p, filter.n) == 0:
            return <OwnRoute*>link
        link = link.next
    return NULL


cdef OwnRoute* route_add(Links* x, View filter, uint32_t hash) noexcept nogil:
    cdef OwnRoute* r = <OwnRoute*>take_zeroed(&x.memory, sizeof(OwnRoute) + filter.n)
    if r == NULL:
        return NULL
    r.link.hash, r.link.n = hash, filter.n
    memcpy(r + 1, filter.p, filter.n)
    r.prev = x.route_last
    if r.prev != NULL:
        r.prev.next = r
    else:
        x.route_first = r
    x.route_last = r
    x.routes_digest += hash
    table_add(&x.routes, &x.memory, &r.link)
    return r


cdef void route_drop(Links* x, OwnRoute* r) noexcept nogil:
    cdef uint32_t i
    for i in range(x.n):
        if x.peers[i].out.route_next == r:      # the snapshot goes on behind it
            x.peers[i].out.route_next = r.next
    if r.prev != NULL:
        r.prev.next = r.next
    else:
        x.route_first = r.next
    if r.next != NULL:
        r.next.prev = r.prev
    else:
        x.route_last = r.prev
    x.routes_digest -= r.link.hash
    table_drop(&x.routes, &x.memory, &r.link)
    memory_give(&x.memory, r, sizeof(OwnRoute) + r.link.n)


cdef void announce(Links* x, OwnRoute* r, int type) noexcept nogil:
    cdef LinkFrame f
    cdef uint32_t i
    memset(&f, 0, sizeof(f))
    f.type = <uint8_t>type
    f.flags, f.online, f.text = r.qos, r.online, route_text(r)
    r.online_sent = r.online
    for i in range(x.n):
        if x.peers[i].out.state >= LO_ROUTES:
            frame_send(x, i, LINK_OUT, &f, NULL)


cdef inline int highest(const OwnRoute* r) noexcept nogil:
    return 2 if r.subscribers[2] else 1 if r.subscribers[1] else 0


cdef bint must_wait(Links* x, const OwnRoute* r) noexcept nogil:
    cdef uint32_t i
    for i in range(x.n):
        if i != x.self and not x.peers[i].out.down and x.peers[i].out.confirmed < r.changed:
            return 1
    return 0


cdef int route_count(Links* x, View filter, int added, int removed) noexcept nogil:
    cdef uint32_t hash = <uint32_t>hash_bytes(&x.key, filter.p, filter.n)
    cdef OwnRoute* r = route_find(x, filter, hash)
    cdef bint fresh = r == NULL
    if fresh and added < 0:
        return 0
    if fresh:
        r = route_add(x, filter, hash)
        if r == NULL:
            return -1
    if added >= 0:
        r.subscribers[added] += 1
    if removed >= 0:
        r.subscribers[removed] -= 1
    if r.subscribers[0] + r.subscribers[1] + r.subscribers[2] == 0:
        announce(x, r, LF_UNROUTE)
        route_drop(x, r)
        return 0
    if fresh or highest(r) != r.qos:
        if fresh or highest(r) > r.qos:
            x.changes += 1
            r.changed = x.changes
            r.qos = <uint8_t>highest(r)
            announce(x, r, LF_ROUTE)
            return must_wait(x, r)
        r.qos = <uint8_t>highest(r)
        announce(x, r, LF_ROUTE)
    return added >= 0 and must_wait(x, r) and not mosq_rule_off(x.off, RULE_ASK_SECOND)


cdef void route_online(Links* x, View filter, int32_t change) noexcept nogil:
    # The others need the number as a weight: it is announced when it becomes or leaves zero, and when it has at least doubled or halved.
    cdef OwnRoute* r = route_find(x, filter, <uint32_t>hash_bytes(&x.key, filter.p, filter.n))
    if r == NULL:
        return
    r.online = <uint32_t>(<int32_t>r.online + change)
    if (r.online == 0) != (r.online_sent == 0) or r.online >= 2 * r.online_sent or 2 * r.online <= r.online_sent:
        announce(x, r, LF_ROUTE)


cdef uint32_t route_announced(Links* x, View filter) noexcept nogil:
    cdef OwnRoute* r = route_find(x, filter, <uint32_t>hash_bytes(&x.key, filter.p, filter.n))
    return r.online_sent if r != NULL else 0
