"""Make one merged copy for overlapping subscriptions [v5 3.3.4-2..4]: the highest QoS, and all identifiers in the order of the
lists. This module knows the lists of one match, not how they came to match.

    gather:  every entry of every list -> its session's chain of places (a hash table by session)
    deliver: every chain -> its entries as they are now -> one merged copy

Invariant: a place is a position in a list, and a pin keeps that position unchanged. The module reads the subscriber at a position
again when it delivers. A session that has unsubscribed or ended since the gathering leaves a gap there. So the table keeps no
session alive and the module touches no freed session.
Cost: linear in the entries. Each entry and each probe counts as an eighth of an append. An entry takes 24 bytes, and the table 8
to 16.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memset

from cext.broker.core.bounds cimport SUB_IDS_MAX
from cext.broker.core.broker cimport Broker
from cext.broker.core.job_state cimport Merge, MergePlace
from cext.broker.core.publication_state cimport Publication
from cext.broker.routing.deliver cimport deliver
from cext.broker.routing.delivery_rules cimport NO_LOCAL, RETAIN_AS_PUBLISHED, qos_for
from cext.session.session cimport SESSION_ENDED, Session
from cext.topic.index cimport Entry, List, list_entry

cdef enum:
    SLOTS_MIN = 16
    MERGE_PLACES_MAX = 1 << 30
    NO_PLACE = 0xFFFFFFFFu


cdef inline uint32_t slots_for(uint32_t n) noexcept nogil:
    cdef uint32_t slots = SLOTS_MIN
    while slots < 2 * n:
        slots *= 2
    return slots


cdef uint64_t merge_bytes(uint32_t n) noexcept nogil:
    return 0 if n > MERGE_PLACES_MAX else n * <uint64_t>sizeof(MergePlace) + slots_for(n) * <uint64_t>sizeof(uint32_t)


cdef int merge_begin(Merge* m, uint32_t n) noexcept nogil:
    cdef uint32_t slots
    if n > MERGE_PLACES_MAX:
        return -1
    slots = slots_for(n)
    if n > m.cap or slots > m.slots_cap:
        merge_end(m)
        m.places = <MergePlace*>malloc(n * sizeof(MergePlace))
        m.slots = <uint32_t*>calloc(slots, sizeof(uint32_t))
        if m.places == NULL or m.slots == NULL:
            merge_end(m)
            return -1
        m.cap = n
        m.slots_cap = slots
    else:
        memset(m.slots, 0, slots * sizeof(uint32_t))
    m.mask = slots - 1
    m.n = 0
    return 0


cdef void merge_end(Merge* m) noexcept nogil:
    free(m.places)
    free(m.slots)
    memset(m, 0, sizeof(Merge))


cdef inline uint32_t slot_of(Broker* b, const Merge* m, const void* subscriber) noexcept nogil:
    # A client cannot choose addresses; the key hides their pattern as well.
    return <uint32_t>(((<uint64_t>subscriber ^ b.key.k0) * <uint64_t>0x9E3779B97F4A7C15) >> 32) & m.mask


cdef void merge_gather(Broker* b, Merge* m, List** lists, uint32_t at, uint32_t start, uint32_t end) noexcept nogil:
    cdef MergePlace* place
    cdef MergePlace* first
    cdef void* subscriber
    cdef uint32_t i, slot
    cdef uint64_t steps = 0
    for i in range(start, end):
        steps += 1
        subscriber = list_entry(lists[at], i).subscriber
        if subscriber == NULL or m.n == m.cap:
            continue
        place = &m.places[m.n]
        place.subscriber = NULL
        place.list = at
        place.position = i
        place.next = NO_PLACE
        slot = slot_of(b, m, subscriber)
        while m.slots[slot] and m.places[m.slots[slot] - 1].subscriber != subscriber:
            slot = (slot + 1) & m.mask
            steps += 1
        if m.slots[slot]:
            first = &m.places[m.slots[slot] - 1]
            m.places[first.last].next = m.n
            first.last = m.n
        else:
            place.subscriber = subscriber
            place.last = m.n
            m.slots[slot] = m.n + 1
        m.n += 1
    b.work += (steps + 7) // 8


cdef uint64_t list_merge(Broker* b, Publication* p, Merge* m, List** lists, uint32_t at) noexcept nogil:
    """Deliver one session's merged copy. Returns the number of places visited."""
    cdef Session* s = <Session*>m.places[at].subscriber
    cdef uint32_t ids[SUB_IDS_MAX]
    cdef uint32_t n = 0
    cdef uint8_t qos = 0, retain = 0
    cdef bint wanted = 0
    cdef uint64_t visited = 0
    cdef MergePlace* place
    cdef Entry* e
    while at != NO_PLACE:
        visited += 1
        place = &m.places[at]
        at = place.next
        e = list_entry(lists[place.list], place.position)
        if e.subscriber != s or (e.options & NO_LOCAL and s == p.source):
            continue
        wanted = 1
        if qos_for(b, p, e.options) > qos:
            qos = qos_for(b, p, e.options)
        if e.options & RETAIN_AS_PUBLISHED:
            retain = p.retain
        if e.sub_id and n < SUB_IDS_MAX:
            ids[n] = e.sub_id
            n += 1
    if wanted and not s.flags & SESSION_ENDED:   # `wanted`: an entry still names the session, so it is not freed
        deliver(b, s, p, qos, retain, ids, n)
    return visited


cdef uint32_t merge_deliver(Broker* b, Publication* p, Merge* m, List** lists, uint32_t at, uint64_t limit) noexcept nogil:
    cdef uint64_t steps = 0
    while at < m.n and b.work + steps // 8 < limit:
        steps += 1
        if m.places[at].subscriber != NULL:
            steps += list_merge(b, p, m, lists, at)
            if p.lacks:
                break
        at += 1
    b.work += (steps + 7) // 8
    return at
