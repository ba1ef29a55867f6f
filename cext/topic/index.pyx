# The subscription index: it finds the subscriber lists for a topic. It does not know what a subscriber is, nor what is delivered:
# it returns lists of opaque entries.
#
#   Index -- roots[0], roots[1] for `$...` -- exact: hash tables of whole filters, 27 by first letter ------- Leaf -- plain: List
#                                          \- top: tree by level, the first 27 ways, `+` and `#` apart ----- Leaf \- groups: List
#
# The drawing shows INDEX_FULL; the other modes leave out one or both of these parts, for comparison (options.pxd).
# Invariants: a Leaf exists while it has a subscriber, a group or a pin, and a tree node while it has a leaf or a child. So an
# index without subscriptions owns no memory except its own struct. A failed allocation leaves everything unchanged.
# Cost: add and remove are O(levels). match.pyx finds the filters of a topic.
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset
from cext.base.cells cimport cells_fini
from cext.base.hash cimport HashKey
from cext.base.view cimport View
from cext.topic.cache cimport cache_bytes, cache_fini, cache_init
from cext.topic.leaf cimport (
    group_find, group_make, leaf_changed, leaf_find, leaf_free, leaf_make, leaf_read, leaf_settle, list_emptied, list_settle,
    tree_free,
)
from cext.topic.level cimport level_tree_init
from cext.topic.name cimport Filter, filter_matches
from cext.topic.options cimport INDEX_FULL, INDEX_HASH, INDEX_SCAN, IndexOptions, LETTERS, by_letter
from cext.topic.subscribers cimport list_add, list_drop, list_find, sub_list, sub_position, tidy
from cext.topic.table cimport Link, Table, spread, table_add, table_buckets, table_chain, table_fini, table_init, table_slot

cdef enum:
    LIST_TIDY_STEPS = 256       # steps of one call of list_tidy


cdef Index* index_new(const HashKey* key, const IndexOptions* options) noexcept nogil:
    cdef Index* ix = <Index*>calloc(1, sizeof(Index))
    cdef IndexOptions defaults
    cdef int i, letter
    if ix == NULL:
        return NULL
    if options == NULL:
        memset(&defaults, 0, sizeof(defaults))
        options = &defaults
    ix.key = key[0]
    ix.by_letter = by_letter(options)
    if options.mode == INDEX_SCAN:
        ix.in_table = IN_TABLE_EXACT | IN_TABLE_WILD
    elif options.mode == INDEX_FULL or options.mode == INDEX_HASH:
        ix.in_table = IN_TABLE_EXACT
    for i in range(2):
        for letter in range(LETTERS):
            table_init(&ix.roots[i].exact[letter])
            ix.roots[i].exact[letter].buckets_min = options.hash_buckets
        level_tree_init(&ix.roots[i].tree, &ix.roots[i].top.level, key, options)
    table_init(&ix.pairs)
    table_init(&ix.groups)
    table_init(&ix.identified)
    cache_init(&ix.cache, options.match_cache if options.mode == INDEX_FULL else 0)
    return ix


# ---- add and remove ----

cdef int index_add(Index* ix, Owner* owner, void* subscriber, const Filter* f, uint8_t options, uint32_t sub_id) noexcept nogil:
    cdef Leaf* leaf = leaf_make(ix, f)
    cdef Group* group
    cdef List* l
    cdef Subscription* sub
    cdef Entry* entry
    if leaf == NULL:
        return -1
    l = &leaf.plain
    if f.group.n:
        group = group_find(ix, leaf, f.group)
        if group == NULL:
            group = group_make(ix, leaf, f.group)
            if group == NULL:
                leaf_settle(ix, leaf)
                return -1
        l = &group.members
    sub = list_find(ix, l, owner)
    if sub != NULL:
        entry = subscription_entry(sub)
        entry.subscriber = subscriber
        entry.options = options
        entry.sub_id = sub_id
        return INDEX_REPLACED
    if list_add(ix, l, owner, subscriber, options, sub_id) == NULL:
        list_settle(ix, l)
        return -1
    if l.live == 1:
        leaf_changed(ix, leaf, f.filter)
    if f.group.n:
        ix.stats.shared += 1
    else:
        ix.stats.subscriptions += 1
    return INDEX_ADDED


cdef void subscription_drop(Index* ix, Subscription* sub) noexcept nogil:
    cdef List* l = sub_list(sub)
    if l.flags & LIST_OF_GROUP:
        ix.stats.shared -= 1
    else:
        ix.stats.subscriptions -= 1
    list_drop(ix, sub)
    if l.live == 0:
        list_emptied(ix, l)
    list_settle(ix, l)


cdef int index_remove(Index* ix, Owner* owner, const Filter* f) noexcept nogil:
    cdef Leaf* leaf = leaf_find(ix, f)
    cdef Group* group
    cdef Subscription* sub
    if leaf == NULL:
        return INDEX_NOT_FOUND
    if f.group.n:
        group = group_find(ix, leaf, f.group)
        if group == NULL:
            return INDEX_NOT_FOUND
        sub = list_find(ix, &group.members, owner)
    else:
        sub = list_find(ix, &leaf.plain, owner)
    if sub == NULL:
        return INDEX_NOT_FOUND
    subscription_drop(ix, sub)
    return INDEX_REMOVED


cdef uint32_t index_remove_some(Index* ix, Owner* owner, uint32_t max) noexcept nogil:
    cdef uint32_t n = 0
    while n < max and owner.head != NULL:
        subscription_drop(ix, owner.head)
        n += 1
    return n


cdef Group* index_group(Index* ix, const Filter* f) noexcept nogil:
    cdef Leaf* leaf = leaf_find(ix, f)
    return group_find(ix, leaf, f.group) if leaf != NULL else NULL


cdef void group_identify(Index* ix, Group* group, uint64_t id) noexcept nogil:
    cdef SharedGroup* shared = group_of(&group.members)
    group.id = id
    shared.id_link.hash = spread(id)
    table_add(&ix.identified, &ix.account, &shared.id_link)


cdef Group* group_of_id(Index* ix, uint64_t id) noexcept nogil:
    cdef uint32_t hash = spread(id)
    cdef Link* link = table_chain(&ix.identified, hash)
    while link != NULL and (link.hash != hash or group_of_id_link(link).group.id != id):
        link = link.next
    return &group_of_id_link(link).group if link != NULL else NULL


cdef Entry* index_entry(Index* ix, Owner* owner, const Filter* f) noexcept nogil:
    cdef Leaf* leaf
    cdef Group* group
    if f.group.n == 0:
        leaf = leaf_find(ix, f)
        return subscriber_entry(ix, &leaf.plain, owner) if leaf != NULL else NULL
    group = index_group(ix, f)
    return subscriber_entry(ix, &group.members, owner) if group != NULL else NULL


cdef Entry* subscriber_entry(Index* ix, List* l, Owner* owner) noexcept nogil:
    cdef Subscription* sub = list_find(ix, l, owner)
    return list_entry(l, sub_position(l, sub)) if sub != NULL else NULL


cdef void list_pin(List* l) noexcept nogil:
    l.pins += 1


cdef void list_unpin(Index* ix, List* l) noexcept nogil:
    l.pins -= 1
    if l.pins == 0:
        tidy(ix, l, l.n, LIST_TIDY_STEPS)
        list_settle(ix, l)


cdef bint list_tidy(Index* ix, List* l) noexcept nogil:
    if l.pins != 1:
        return False
    l.pins = 0                  # no other user of positions now
    tidy(ix, l, l.n, LIST_TIDY_STEPS)
    l.pins = 1
    return l.live < l.n


# ---- reading, gauges, the end ----

cdef Subscription* subscription_read(Subscription* s, uint8_t* buf, uint32_t* n, uint8_t* options,
                                     uint32_t* sub_id) noexcept nogil:
    cdef List* l = sub_list(s)
    cdef Entry* entry = subscription_entry(s)
    options[0] = entry.options
    sub_id[0] = entry.sub_id
    n[0] = group_read(&group_of(l).group, buf) if l.flags & LIST_OF_GROUP else leaf_read(leaf_of(l), buf)
    return s.next


cdef uint32_t group_read(Group* group, uint8_t* buf) noexcept nogil:
    cdef View* name = &group.name
    memcpy(buf, b"$share/", 7)
    memcpy(buf + 7, name.p, name.n)
    buf[7 + name.n] = c'/'
    return 8 + name.n + leaf_read(<Leaf*>group.home, buf + 8 + name.n)


cdef Subscription* subscription_next(Subscription* s) noexcept nogil:
    return s.next


cdef Entry* subscription_entry(Subscription* s) noexcept nogil:
    return list_entry(sub_list(s), sub_position(sub_list(s), s))


cdef bint subscription_matches(Subscription* s, View topic) noexcept nogil:
    cdef uint8_t text[65536]
    cdef View filter
    cdef List* l = sub_list(s)
    filter.p = text
    filter.n = leaf_read(<Leaf*>group_of(l).group.home if l.flags & LIST_OF_GROUP else leaf_of(l), text)
    return filter_matches(filter, topic)


cdef uint64_t index_bytes(Index* ix) noexcept nogil:
    return ix.account.cells.used_bytes + cache_bytes(&ix.cache)


cdef void index_stats(Index* ix, IndexStats* out) noexcept nogil:
    cdef int i, letter
    out[0] = ix.stats
    out.bytes = index_bytes(ix)
    out.cache_hits = ix.cache.hits + ix.cache.hit
    out.cache_misses = ix.cache.misses + ix.cache.looked - ix.cache.hit
    out.buckets = table_buckets(&ix.pairs) + table_buckets(&ix.groups) + table_buckets(&ix.identified)
    for i in range(2):
        out.buckets += table_buckets(&ix.roots[i].tree.crowd)
        for letter in range(LETTERS):
            out.exact += ix.roots[i].exact[letter].n
            out.buckets += table_buckets(&ix.roots[i].exact[letter])


cdef void table_free(Index* ix, Table* exact) noexcept nogil:
    cdef Link* link
    cdef Link* following
    cdef uint64_t b
    for b in range(table_buckets(exact)):
        link = table_slot(exact, <uint32_t>b)[0]
        while link != NULL:
            following = link.next
            leaf_free(ix, <Leaf*>link)
            link = following
    table_fini(exact, &ix.account)


cdef void index_free(Index* ix) noexcept nogil:
    # The owners are not touched, because they may be freed already. Their lists of subscriptions are dangling afterwards.
    cdef int i, letter
    if ix == NULL:
        return
    for i in range(2):
        for letter in range(LETTERS):
            table_free(ix, &ix.roots[i].exact[letter])
        tree_free(ix, &ix.roots[i])
        table_fini(&ix.roots[i].tree.crowd, &ix.account)
    table_fini(&ix.pairs, &ix.account)
    table_fini(&ix.groups, &ix.account)
    table_fini(&ix.identified, &ix.account)
    cache_fini(&ix.cache)
    cells_fini(&ix.account.cells)
    free(ix)
