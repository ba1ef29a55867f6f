# Subscriber lists: the subscribers of one filter, or the members of one shared group.
# This module does not know filters, nor what an owner is: an Owner is the head of its own list of subscriptions.
# Invariants: every live entry and its Subscription know each other's position. Index.pairs contains exactly the subscriptions of
# long lists. Entries are in blocks: one block that grows up to BLOCK_ENTRIES, then more blocks of that size, so that no operation
# moves more than one block. Removals from a pinned list leave gaps; afterwards each operation closes some of them.
# The list itself has room for one entry and one subscription, so a filter with one subscriber is one object. The subscription in
# the list does not know its position: a short list is scanned for it, and a long list has none.
# Cost: add, drop and the search for an owner are O(1), bounded also for a list of a million; nothing for the first subscriber,
# then 24 bytes an entry and 48 a subscription. Positions are stable while the list is pinned, addresses are not.
from libc.stdint cimport UINT32_MAX, uint8_t, uint32_t, uint64_t, uintptr_t
from libc.string cimport memcpy
from cext.topic.index cimport (
    BLOCK_ENTRIES, Entry, FurtherSubscription, Index, LIST_IS_LONG, LONG_FROM, LONG_UNTIL, List, ListBlocks, Owner, SUB_IS_FIRST, Subscription,
    list_entry,
)
from cext.topic.memory cimport memory_give, memory_take
from cext.topic.table cimport Link, spread, table_add, table_chain, table_drop

cdef enum:
    TIDY_STEPS_PER_OPERATION = 4              # steps per operation: more than one removal makes necessary


cdef void list_init(List* l, uint32_t flags) noexcept nogil:
    l.flags = flags
    l.n = 0
    l.live = 0
    l.pins = 0
    l.cap = 1
    l.block = &l.places.only
    l.first.owner = 0


cdef inline uint32_t blocks_after_first(const List* l) noexcept nogil:
    return (l.n + BLOCK_ENTRIES - 1) // BLOCK_ENTRIES - 1 if l.n > BLOCK_ENTRIES else 0


cdef int directory_resize(Index* ix, List* l, uint32_t room) noexcept nogil:
    # Allocate `more` with room for that many blocks; 0: free it. Return -1 if there is no memory; then nothing changed.
    cdef ListBlocks* blocks = &l.places.blocks
    cdef Entry** more = NULL
    cdef uint32_t old_room = 0 if blocks.more == NULL else blocks.room
    if room == old_room:
        return 0
    if room:
        more = <Entry**>memory_take(&ix.account, room * sizeof(Entry*))
        if more == NULL:
            return -1
        if old_room:
            memcpy(more, blocks.more, blocks_after_first(l) * sizeof(Entry*))
    if old_room:
        memory_give(&ix.account, blocks.more, old_room * sizeof(Entry*))
    blocks.more = more
    blocks.room = room
    return 0


cdef void list_fini(Index* ix, List* l) noexcept nogil:
    cdef uint32_t i
    if l.cap == 1:
        return
    for i in range(l.n):
        if sub_place(l, i)[0] != NULL:
            sub_free(ix, sub_place(l, i)[0])
    for i in range(blocks_after_first(l)):
        memory_give(&ix.account, l.places.blocks.more[i], BLOCK_ENTRIES * PLACE_BYTES)
    directory_resize(ix, l, 0)
    memory_give(&ix.account, l.block, l.cap * PLACE_BYTES)


# ---- the subscriptions ----

cdef Subscription* sub_new(Index* ix, List* l, bint further) noexcept nogil:
    # further: it must not be List.first. NULL = no memory.
    cdef FurtherSubscription* sub
    if not further and l.first.owner == 0:
        l.first.owner = SUB_IS_FIRST
        return &l.first
    sub = <FurtherSubscription*>memory_take(&ix.account, sizeof(FurtherSubscription))
    if sub == NULL:
        return NULL
    sub.base.owner = 0
    sub.list = l
    return &sub.base


cdef void sub_free(Index* ix, Subscription* sub) noexcept nogil:
    if sub.owner & SUB_IS_FIRST:
        sub.owner = 0
    else:
        memory_give(&ix.account, sub, sizeof(FurtherSubscription))


cdef uint32_t sub_position(List* l, const Subscription* sub) noexcept nogil:
    cdef uint32_t i = 0
    if not sub.owner & SUB_IS_FIRST:
        return (<FurtherSubscription*>sub).link.n
    while list_sub(l, i) != sub:
        i += 1
    return i


cdef inline void sub_put(List* l, uint32_t i, Subscription* sub) noexcept nogil:
    # Put a subscription at a position. A list with one place needs no pointer to it.
    if not sub.owner & SUB_IS_FIRST:
        (<FurtherSubscription*>sub).link.n = i
    if l.cap > 1:
        sub_place(l, i)[0] = sub


cdef void sub_move(Index* ix, List* l, Subscription* old, Subscription* sub) noexcept nogil:
    # Move a subscription to other memory, which its neighbours in the owner's list and the list's place then point to.
    cdef uint32_t at = sub_position(l, old)
    sub.owner |= <uintptr_t>sub_owner(old)
    sub.next = old.next
    sub.prev = old.prev
    if sub.next != NULL:
        sub.next.prev = sub
    if sub.prev != NULL:
        sub.prev.next = sub
    else:
        sub_owner(sub).head = sub
    sub_free(ix, old)
    sub_put(l, at, sub)


cdef int first_leave(Index* ix, List* l) noexcept nogil:
    # The list becomes long, where each subscription needs a link. Return -1 if there is no memory; then nothing changed.
    cdef Subscription* sub
    if l.first.owner == 0:
        return 0
    sub = sub_new(ix, l, True)
    if sub == NULL:
        return -1
    sub_move(ix, l, &l.first, sub)
    return 0


# ---- the blocks ----

cdef int first_block(Index* ix, List* l, uint32_t cap) noexcept nogil:
    # Move the entries of the only block into a block of `cap` places, more than one.
    cdef Entry* block = <Entry*>memory_take(&ix.account, cap * PLACE_BYTES)
    if block == NULL:
        return -1
    memcpy(block, l.block, l.n * sizeof(Entry))
    if l.cap > 1:
        memcpy(block + cap, l.block + l.cap, l.n * sizeof(Subscription*))
        memory_give(&ix.account, l.block, l.cap * PLACE_BYTES)
    else:
        (<Subscription**>(block + cap))[0] = list_sub(l, 0)
        l.places.blocks.more = NULL
        l.places.blocks.low = 0
    l.block = block
    l.cap = cap
    return 0


cdef void no_block(Index* ix, List* l) noexcept nogil:
    # Move what is left of the only block, one place at most, into the list.
    cdef Entry* block = l.block
    cdef uint32_t cap = l.cap
    if l.n and list_sub(l, 0) != NULL and l.first.owner == 0:
        sub_move(ix, l, list_sub(l, 0), sub_new(ix, l, False))
    l.block = &l.places.only
    l.cap = 1
    l.places.only = block[0]
    memory_give(&ix.account, block, cap * PLACE_BYTES)


cdef int another_block(Index* ix, List* l) noexcept nogil:
    cdef ListBlocks* blocks = &l.places.blocks
    cdef uint32_t n = blocks_after_first(l)
    cdef Entry* block
    if (blocks.more == NULL or n == blocks.room) and directory_resize(ix, l, 2 * n if n else 1) != 0:
        return -1
    block = <Entry*>memory_take(&ix.account, BLOCK_ENTRIES * PLACE_BYTES)
    if block == NULL:
        return -1
    blocks.more[n] = block
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
        memory_give(&ix.account, l.places.blocks.more[l.n // BLOCK_ENTRIES - 1], BLOCK_ENTRIES * PLACE_BYTES)
        if l.n == BLOCK_ENTRIES:
            directory_resize(ix, l, 0)


cdef inline bint is_gap(const List* l, uint32_t i) noexcept nogil:
    return list_entry(l, i).subscriber == NULL


cdef inline void move_last(Index* ix, List* l, uint32_t to) noexcept nogil:
    # Move the last entry into a gap: the order of subscribers has no meaning.
    list_entry(l, to)[0] = list_entry(l, l.n - 1)[0]
    sub_put(l, to, list_sub(l, l.n - 1))
    list_pop(ix, l)


cdef void tidy(Index* ix, List* l, uint32_t fresh, uint32_t steps) noexcept nogil:
    while l.live < l.n and steps:
        steps -= 1
        if is_gap(l, l.n - 1):
            list_pop(ix, l)
        elif fresh < l.n and is_gap(l, fresh):
            move_last(ix, l, fresh)
        else:
            if is_gap(l, l.places.blocks.low):
                move_last(ix, l, l.places.blocks.low)
            l.places.blocks.low += 1
    if fresh < l.n and is_gap(l, fresh) and fresh < l.places.blocks.low:
        l.places.blocks.low = fresh
    if l.flags & LIST_IS_LONG and l.n <= LONG_UNTIL:
        list_set_long(ix, l, False)
    if l.n <= 1 and l.cap > 1:
        no_block(ix, l)
    elif l.n < l.cap // 4:
        first_block(ix, l, 2 * l.n)         # if there is no memory for a smaller block, the larger one stays


# ---- the search for an owner ----

cdef inline uint32_t pair_hash(Index* ix, const void* owner, const void* l) noexcept nogil:
    # A client cannot choose addresses. The key makes their pattern useless to an attacker in any case.
    return spread((<uint64_t>owner * <uint64_t>0x9E3779B97F4A7C15) ^ <uint64_t>l ^ ix.key.k0)


cdef Subscription* list_find(Index* ix, List* l, Owner* owner) noexcept nogil:
    cdef uint32_t i
    cdef uint32_t hash
    cdef Link* link
    cdef Subscription* sub
    cdef FurtherSubscription* further
    if not l.flags & LIST_IS_LONG:
        for i in range(l.n):
            sub = list_sub(l, i)
            if sub != NULL and sub_owner(sub) == owner:
                return sub
        return NULL
    hash = pair_hash(ix, owner, l)
    link = table_chain(&ix.pairs, hash)
    while link != NULL:
        further = <FurtherSubscription*>(<uint8_t*>link - <size_t>&(<FurtherSubscription*>NULL).link)
        if link.hash == hash and sub_owner(&further.base) == owner and further.list == l:
            return &further.base
        link = link.next
    return NULL


cdef inline Link* pair_link(Subscription* sub) noexcept nogil:
    return &(<FurtherSubscription*>sub).link


cdef inline void pair_add(Index* ix, List* l, Subscription* sub) noexcept nogil:
    pair_link(sub).hash = pair_hash(ix, sub_owner(sub), l)
    table_add(&ix.pairs, &ix.account, pair_link(sub))


cdef void list_set_long(Index* ix, List* l, bint long_now) noexcept nogil:
    # Walk over LONG_FROM or LONG_UNTIL places.
    cdef uint32_t i
    cdef Subscription* sub
    l.flags ^= LIST_IS_LONG
    for i in range(l.n):
        sub = list_sub(l, i)
        if sub == NULL:
            continue
        if long_now:
            pair_add(ix, l, sub)
        else:
            table_drop(&ix.pairs, &ix.account, pair_link(sub))


cdef Subscription* list_add(Index* ix, List* l, Owner* owner, void* subscriber, uint8_t options, uint32_t sub_id) noexcept nogil:
    cdef Subscription* sub
    cdef Entry* entry
    cdef bint long_now
    if l.live < l.n and l.pins == 0:
        tidy(ix, l, l.n, TIDY_STEPS_PER_OPERATION)
    long_now = l.flags & LIST_IS_LONG or l.n + 1 >= LONG_FROM
    sub = sub_new(ix, l, long_now)
    if sub == NULL:
        return NULL
    if (long_now and first_leave(ix, l) != 0) or list_room(ix, l) != 0:
        sub_free(ix, sub)
        return NULL
    sub.owner |= <uintptr_t>owner
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
    sub_put(l, l.n, sub)
    l.n += 1
    l.live += 1
    if l.flags & LIST_IS_LONG:
        pair_add(ix, l, sub)
    elif long_now:
        list_set_long(ix, l, True)
    return sub


cdef void list_drop(Index* ix, Subscription* sub) noexcept nogil:
    cdef List* l = sub_list(sub)
    cdef Owner* owner = sub_owner(sub)
    cdef uint32_t at = sub_position(l, sub)
    if l.flags & LIST_IS_LONG:
        table_drop(&ix.pairs, &ix.account, pair_link(sub))
    if sub.next != NULL:
        sub.next.prev = sub.prev
    if sub.prev != NULL:
        sub.prev.next = sub.next
    else:
        owner.head = sub.next
    owner.n -= 1
    sub_free(ix, sub)
    list_entry(l, at).subscriber = NULL
    if l.cap > 1:
        sub_place(l, at)[0] = NULL
    if l.live == l.n:
        l.places.blocks.low = at
    l.live -= 1
    tidy(ix, l, at, TIDY_STEPS_PER_OPERATION if l.pins == 0 else 0)
