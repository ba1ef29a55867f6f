# Subscriber lists: who wants what one filter (or one member of a shared group) matches.
# It does not know filters; what an owner is stays outside: an Owner is the head of its own list of subscriptions.
# Invariants: every live entry and its Subscription know each other's place; gaps exist only while the list is pinned;
# exactly the subscriptions of long lists are in Index.pairs.
# Cost: add, drop and "has this owner one here?" are O(1) (amortised for add); 16 + 8 bytes an entry, 48 a subscription;
# a list of one needs no array. Positions are stable under a pin, the arrays' addresses are not.
from libc.stdint cimport UINT32_MAX, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy
from cext.topic.index cimport (
    LIST_IS_LONG, LIST_OF_GROUP, LONG_FROM, LONG_UNTIL,
    Entry, Index, Leaf, List, Owner, SharedGroup, Slot, Subscription,
)
from cext.topic.memory cimport give, resize, take
from cext.topic.table cimport Link, spread, table_add, table_chain, table_drop


cdef Slot* list_slot(List* l) noexcept nogil:
    if l.flags & LIST_OF_GROUP:
        return &(<SharedGroup*>l.home).slot
    return &(<Leaf*>l.home).slot


cdef void list_init(List* l, void* home, uint32_t flags) noexcept nogil:
    l.home = home
    l.flags = flags
    l.n = 0
    l.live = 0
    l.pins = 0
    l.cap = 1
    l.entries = &list_slot(l).entry
    l.subs = &list_slot(l).sub


cdef void list_fini(Index* ix, List* l) noexcept nogil:
    cdef uint32_t i
    for i in range(l.n):
        if l.subs[i] != NULL:
            give(&ix.account, l.subs[i])
    if l.cap > 1:
        give(&ix.account, l.entries)
        give(&ix.account, l.subs)


# ---- the arrays ----

cdef int list_grow(Index* ix, List* l) noexcept nogil:
    cdef uint64_t cap = <uint64_t>l.cap + l.cap // 2 + 2
    cdef void* entries
    cdef void* subs
    if cap > UINT32_MAX:
        return -1
    if l.cap > 1:
        entries = resize(&ix.account, l.entries, cap * sizeof(Entry))
        if entries == NULL:
            return -1
        l.entries = <Entry*>entries             # larger than cap says until the other one follows: harmless
        subs = resize(&ix.account, l.subs, cap * sizeof(Subscription*))
        if subs == NULL:
            return -1
    else:
        entries = take(&ix.account, cap * sizeof(Entry))
        if entries == NULL:
            return -1
        subs = take(&ix.account, cap * sizeof(Subscription*))
        if subs == NULL:
            give(&ix.account, entries)
            return -1
        memcpy(entries, l.entries, l.n * sizeof(Entry))
        memcpy(subs, l.subs, l.n * sizeof(Subscription*))
    l.entries = <Entry*>entries
    l.subs = <Subscription**>subs
    l.cap = <uint32_t>cap
    return 0


cdef void list_shrink(Index* ix, List* l) noexcept nogil:
    cdef Slot* slot = list_slot(l)
    cdef void* p
    if l.cap == 1:
        return
    if l.n <= 1:
        slot.entry = l.entries[0]
        slot.sub = l.subs[0]
        give(&ix.account, l.entries)
        give(&ix.account, l.subs)
        l.entries = &slot.entry
        l.subs = &slot.sub
        l.cap = 1
    elif l.n < l.cap // 4:
        l.cap = 2 * l.n
        p = resize(&ix.account, l.entries, l.cap * sizeof(Entry))
        if p != NULL:                           # without memory to move to, the larger block stays
            l.entries = <Entry*>p
        p = resize(&ix.account, l.subs, l.cap * sizeof(Subscription*))
        if p != NULL:
            l.subs = <Subscription**>p


# ---- whose is it ----

cdef inline uint32_t pair_hash(Index* ix, const void* owner, const void* l) noexcept nogil:
    # Addresses are not the client's to choose; the key makes their pattern useless all the same.
    return spread((<uint64_t>owner * <uint64_t>0x9E3779B97F4A7C15) ^ <uint64_t>l ^ ix.key.k0)


cdef Subscription* list_find(Index* ix, List* l, Owner* owner) noexcept nogil:
    cdef uint32_t i
    cdef uint32_t hash
    cdef Link* link
    cdef Subscription* sub
    if not l.flags & LIST_IS_LONG:
        for i in range(l.n):
            sub = l.subs[i]
            if sub != NULL and sub.owner == owner:
                return sub
        return NULL
    hash = pair_hash(ix, owner, l)
    link = table_chain(&ix.pairs, hash)
    while link != NULL:
        sub = <Subscription*>link
        if link.hash == hash and sub.owner == owner and sub.list == l:
            return sub
        link = link.next
    return NULL


cdef inline void pair_add(Index* ix, Subscription* sub) noexcept nogil:
    sub.link.hash = pair_hash(ix, sub.owner, sub.list)
    table_add(&ix.pairs, &ix.account, &sub.link)


cdef void list_set_long(Index* ix, List* l, bint long_now) noexcept nogil:
    # Runs over LONG_FROM or LONG_UNTIL subscriptions (in a pinned list over its gaps too, which are of the same order).
    cdef uint32_t i
    l.flags ^= LIST_IS_LONG
    for i in range(l.n):
        if l.subs[i] == NULL:
            continue
        if long_now:
            pair_add(ix, l.subs[i])
        else:
            table_drop(&ix.pairs, &ix.account, &l.subs[i].link)


cdef Subscription* list_add(Index* ix, List* l, Owner* owner, void* who, uint8_t options, uint32_t sub_id) noexcept nogil:
    cdef Subscription* sub
    cdef Entry* entry
    sub = <Subscription*>take(&ix.account, sizeof(Subscription))
    if sub == NULL:
        return NULL
    if l.n == l.cap and list_grow(ix, l) != 0:
        give(&ix.account, sub)
        return NULL
    sub.list = l
    sub.owner = owner
    sub.link.n = l.n
    sub.prev = NULL
    sub.next = owner.head
    if owner.head != NULL:
        owner.head.prev = sub
    owner.head = sub
    owner.n += 1
    entry = &l.entries[l.n]
    entry.who = who
    entry.sub_id = sub_id
    entry.options = options
    entry.reserved = 0
    entry.reserved2 = 0
    l.subs[l.n] = sub
    l.n += 1
    l.live += 1
    if l.flags & LIST_IS_LONG:
        pair_add(ix, sub)
    elif l.n >= LONG_FROM:
        list_set_long(ix, l, True)
    return sub


cdef void list_drop(Index* ix, Subscription* sub) noexcept nogil:
    cdef List* l = sub.list
    cdef Owner* owner = sub.owner
    cdef uint32_t at = sub.link.n
    if l.flags & LIST_IS_LONG:
        table_drop(&ix.pairs, &ix.account, &sub.link)
    if sub.next != NULL:
        sub.next.prev = sub.prev
    if sub.prev != NULL:
        sub.prev.next = sub.next
    else:
        owner.head = sub.next
    owner.n -= 1
    give(&ix.account, sub)
    l.live -= 1
    if l.pins:
        l.entries[at].who = NULL
        l.subs[at] = NULL
        return
    l.n -= 1
    if at != l.n:                               # the last one takes the place: order among subscribers means nothing
        l.entries[at] = l.entries[l.n]
        l.subs[at] = l.subs[l.n]
        l.subs[at].link.n = at
    if l.flags & LIST_IS_LONG and l.n <= LONG_UNTIL:
        list_set_long(ix, l, False)
    list_shrink(ix, l)


cdef void list_close_gaps(Index* ix, List* l) noexcept nogil:
    cdef uint32_t i
    cdef uint32_t to = 0
    if l.live == l.n:
        return
    for i in range(l.n):
        if l.subs[i] == NULL:
            continue
        if to != i:
            l.entries[to] = l.entries[i]
            l.subs[to] = l.subs[i]
            l.subs[to].link.n = to
        to += 1
    l.n = to
    if l.flags & LIST_IS_LONG and l.n <= LONG_UNTIL:
        list_set_long(ix, l, False)
    list_shrink(ix, l)
