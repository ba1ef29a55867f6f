# Subscriber lists: the subscribers of one filter, or the members of one shared group.
# This module does not know filters, nor what an owner is: an Owner is the head of its own list of subscriptions.
# Invariants: every live entry and its Subscription know each other's position. Index.pairs contains exactly the subscriptions of
# long lists. Entries are in blocks: one block that grows up to BLOCK_ENTRIES, then more blocks of that size, so that no operation
# moves more than one block. Removals from a pinned list leave gaps; afterwards each operation closes some of them.
# Cost: add, drop and the search for an owner are O(1), bounded also for a list of a million; 24 bytes an entry, 48 a
# subscription; a list of one entry needs no block. Positions are stable while the list is pinned, addresses are not.
from libc.stdint cimport UINT32_MAX, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy
from cext.topic.index cimport (
    BLOCK_ENTRIES, Entry, Index, LIST_IS_LONG, LIST_OF_GROUP, LONG_FROM, LONG_UNTIL, List, Owner, SingleBlock, Subscription, group_of,
    leaf_of, list_entry,
)
from cext.topic.memory cimport memory_give, memory_take
from cext.topic.table cimport Link, spread, table_add, table_chain, table_drop

cdef enum:
    TIDY_STEPS_PER_OPERATION = 4              # steps per operation: more than one removal makes necessary


cdef SingleBlock* list_slot(List* l) noexcept nogil:
    if l.flags & LIST_OF_GROUP:
        return &group_of(l).slot
    return &leaf_of(l).slot


cdef void list_init(List* l, uint32_t flags) noexcept nogil:
    l.flags = flags
    l.n = 0
    l.live = 0
    l.pins = 0
    l.low = 0
    l.cap = 1
    l.block = &list_slot(l).entry
    l.more = NULL


cdef inline uint32_t blocks_after_first(const List* l) noexcept nogil:
    return (l.n + BLOCK_ENTRIES - 1) // BLOCK_ENTRIES - 1 if l.n > BLOCK_ENTRIES else 0


cdef int directory_resize(Index* ix, List* l, uint32_t room) noexcept nogil:
    # Allocate `more` with room for that many blocks; 0: free it. Return -1 if there is no memory; then nothing changed.
    cdef Entry** more = NULL
    cdef uint32_t old_room = 0 if l.more == NULL else l.room
    if room == old_room:
        return 0
    if room:
        more = <Entry**>memory_take(&ix.account, room * sizeof(Entry*))
        if more == NULL:
            return -1
        if old_room:
            memcpy(more, l.more, blocks_after_first(l) * sizeof(Entry*))
    if old_room:
        memory_give(&ix.account, l.more, old_room * sizeof(Entry*))
    l.more = more
    l.room = room
    return 0


cdef void list_fini(Index* ix, List* l) noexcept nogil:
    cdef uint32_t i
    for i in range(l.n):
        if list_sub(l, i)[0] != NULL:
            memory_give(&ix.account, list_sub(l, i)[0], sizeof(Subscription))
    for i in range(blocks_after_first(l)):
        memory_give(&ix.account, l.more[i], BLOCK_ENTRIES * PLACE_BYTES)
    directory_resize(ix, l, 0)
    if l.cap > 1:
        memory_give(&ix.account, l.block, l.cap * PLACE_BYTES)


# ---- the blocks ----

cdef int first_block(Index* ix, List* l, uint32_t cap) noexcept nogil:
    # Move the entries of the only block into a block of `cap` places (into the Slot if cap is 1).
    cdef Entry* block = &list_slot(l).entry if cap == 1 else <Entry*>memory_take(&ix.account, cap * PLACE_BYTES)
    if block == NULL:
        return -1
    memcpy(block, l.block, l.n * sizeof(Entry))
    memcpy(block + cap, l.block + l.cap, l.n * sizeof(Subscription*))
    if l.cap > 1:
        memory_give(&ix.account, l.block, l.cap * PLACE_BYTES)
    l.block = block
    l.cap = cap
    return 0


cdef int another_block(Index* ix, List* l) noexcept nogil:
    cdef uint32_t n = blocks_after_first(l)
    cdef Entry* block
    if (l.more == NULL or n == l.room) and directory_resize(ix, l, 2 * n if n else 1) != 0:
        return -1
    block = <Entry*>memory_take(&ix.account, BLOCK_ENTRIES * PLACE_BYTES)
    if block == NULL:
        return -1
    l.more[n] = block
    return 0


cdef int list_room(Index* ix, List* l) noexcept nogil:
    # Make room for one more entry at the end.
    cdef uint32_t cap
    if l.n < l.cap:
        return 0
    if l.n == UINT32_MAX:
        return -1
    if l.cap < BLOCK_ENTRIES:
        cap = l.cap + l.cap // 2 + 1         # 2 places for a local subscriber and another worker
        return first_block(ix, l, cap if cap < BLOCK_ENTRIES else BLOCK_ENTRIES)
    return another_block(ix, l) if l.n % BLOCK_ENTRIES == 0 else 0


cdef void list_pop(Index* ix, List* l) noexcept nogil:
    # Remove the last place, and its block if that was the block's only place.
    l.n -= 1
    if l.n % BLOCK_ENTRIES == 0 and l.n:
        memory_give(&ix.account, l.more[l.n // BLOCK_ENTRIES - 1], BLOCK_ENTRIES * PLACE_BYTES)
        if l.n == BLOCK_ENTRIES:
            directory_resize(ix, l, 0)


cdef inline bint is_gap(const List* l, uint32_t i) noexcept nogil:
    return list_sub(l, i)[0] == NULL


cdef inline void move_last(Index* ix, List* l, uint32_t to) noexcept nogil:
    # Move the last entry into a gap: the order of subscribers has no meaning.
    cdef Subscription* sub = list_sub(l, l.n - 1)[0]
    list_entry(l, to)[0] = list_entry(l, l.n - 1)[0]
    list_sub(l, to)[0] = sub
    sub.link.n = to
    list_pop(ix, l)


cdef void tidy(Index* ix, List* l, uint32_t fresh, uint32_t steps) noexcept nogil:
    while l.live < l.n and steps:
        steps -= 1
        if is_gap(l, l.n - 1):
            list_pop(ix, l)
        elif fresh < l.n and is_gap(l, fresh):
            move_last(ix, l, fresh)
        else:
            if is_gap(l, l.low):
                move_last(ix, l, l.low)
            l.low += 1
    if fresh < l.low and fresh < l.n and is_gap(l, fresh):
        l.low = fresh
    if l.flags & LIST_IS_LONG and l.n <= LONG_UNTIL:
        list_set_long(ix, l, False)
    # If there is no memory for a smaller block, the larger one stays.
    if l.n <= 1 and l.cap > 1:
        first_block(ix, l, 1)
    elif l.n < l.cap // 4:
        first_block(ix, l, 2 * l.n)


# ---- the search for an owner ----

cdef inline uint32_t pair_hash(Index* ix, const void* owner, const void* l) noexcept nogil:
    # A client cannot choose addresses. The key makes their pattern useless to an attacker in any case.
    return spread((<uint64_t>owner * <uint64_t>0x9E3779B97F4A7C15) ^ <uint64_t>l ^ ix.key.k0)


cdef Subscription* list_find(Index* ix, List* l, Owner* owner) noexcept nogil:
    cdef uint32_t i
    cdef uint32_t hash
    cdef Link* link
    cdef Subscription* sub
    if not l.flags & LIST_IS_LONG:
        for i in range(l.n):
            sub = list_sub(l, i)[0]
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
    # Walk over LONG_FROM or LONG_UNTIL places.
    cdef uint32_t i
    cdef Subscription* sub
    l.flags ^= LIST_IS_LONG
    for i in range(l.n):
        sub = list_sub(l, i)[0]
        if sub == NULL:
            continue
        if long_now:
            pair_add(ix, sub)
        else:
            table_drop(&ix.pairs, &ix.account, &sub.link)


cdef Subscription* list_add(Index* ix, List* l, Owner* owner, void* subscriber, uint8_t options, uint32_t sub_id) noexcept nogil:
    cdef Subscription* sub
    cdef Entry* entry
    sub = <Subscription*>memory_take(&ix.account, sizeof(Subscription))
    if sub == NULL:
        return NULL
    if l.live < l.n and l.pins == 0:
        tidy(ix, l, l.low, TIDY_STEPS_PER_OPERATION)
    if list_room(ix, l) != 0:
        memory_give(&ix.account, sub, sizeof(Subscription))
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
    entry = list_entry(l, l.n)
    entry.subscriber = subscriber
    entry.sub_id = sub_id
    entry.options = options
    entry.reserved = 0
    entry.share = 0
    list_sub(l, l.n)[0] = sub
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
    memory_give(&ix.account, sub, sizeof(Subscription))
    list_entry(l, at).subscriber = NULL
    list_sub(l, at)[0] = NULL
    if l.live == l.n:
        l.low = at
    l.live -= 1
    tidy(ix, l, at, TIDY_STEPS_PER_OPERATION if l.pins == 0 else 0)
